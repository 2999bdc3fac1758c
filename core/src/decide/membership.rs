//! A formed cluster on its way to its size: pods are cheap and come first, membership changes one step at a time.

use super::{delete_claims, set_replicas};
use crate::observed::{ClusterId, Member, MemberId, Members, Observed, Ordinal, Process, Seen, Start};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::quorum::against_leaving;

/// A learner this close to the leader is promoted. etcd's own test is a ratio, and lets one pass that is a million
/// entries behind ten million.
const CLOSE_ENOUGH: u64 = 1000;
/// How long after the formation a member of the bootstrap order may take to publish itself.
const ORDER_LASTS_SECONDS: i64 = 60;

pub fn plan(size: u8, seen: &Observed) -> Plan {
    let members = match &seen.etcd.members {
        Seen::Known(members) => members,
        Seen::Unknown(reason) => return keep_running(seen, reason),
    };
    if let Some(expected) = seen.formed()
        && expected != members.cluster
    {
        return Plan::refuse(Refusal::ForeignCluster { expected, found: members.cluster });
    }
    let stranger = members.list.iter().find(|(_, member)| member.ordinal.is_none());
    if let Some((&member, _)) = stranger {
        return Plan::refuse(Refusal::UnknownMember { member });
    }
    let scaling = Scaling { size, seen, members };
    let replicas = size.max(members.span());
    set_replicas(seen, replicas)
        .then(scaling.end_of_order())
        .then(scaling.labels())
        .then(scaling.stale_volumes(replicas))
        .then(scaling.next_step())
}

/// Nothing is known of the members, so nothing is taken away. Pods come back by themselves; after a stop they are
/// brought back as far as volumes tell of members.
fn keep_running(seen: &Observed, reason: &str) -> Plan {
    let running = seen.set.as_ref().map_or(0, |set| set.replicas);
    let held = seen.claimed_span();
    if running == 0 && held == 0 && seen.pods.is_empty() {
        return Plan::refuse(Refusal::DataLost);
    }
    let waiting = Plan::wait(WaitingOn::Etcd { reason: reason.to_owned() });
    if running >= held && seen.set.is_some() { waiting } else { set_replicas(seen, held.max(running)).then(waiting) }
}

struct Scaling<'a> {
    size: u8,
    seen: &'a Observed,
    members: &'a Members,
}

impl Scaling<'_> {
    fn cluster(&self) -> ClusterId {
        self.members.cluster
    }

    /// The order has done its work when every member has published itself, or has had time to.
    fn end_of_order(&self) -> Plan {
        let Some(order) = &self.seen.order else { return Plan::default() };
        let Some(formed) = &self.seen.cluster.formed else { return Plan::default() };
        let all_published = self.members.list.values().all(|member| member.start == Start::Published);
        if all_published || self.order_is_over(formed.since) {
            return Plan::act(Action::DeleteOrder { uid: order.uid.clone() });
        }
        Plan::default()
    }

    fn order_is_over(&self, formed: jiff::Timestamp) -> bool {
        self.seen.now.as_second() - formed.as_second() >= ORDER_LASTS_SECONDS
    }

    /// Claims are told whose data they hold before that member can be removed; so one that is removed is known.
    fn labels(&self) -> Plan {
        let mut plan = Plan::default();
        for (&id, member) in &self.members.list {
            let claim = member.ordinal.and_then(|ordinal| Some((ordinal, self.seen.claims.get(&ordinal)?)));
            if let Some((ordinal, claim)) = claim
                && claim.member.is_none()
            {
                plan.actions.push(Action::LabelClaim { ordinal, uid: claim.uid.clone(), member: id });
            }
        }
        plan
    }

    /// Volumes of removed members, and of ordinals that no longer exist. No volume is deleted while the order
    /// exists: its pod would form a cluster once more.
    fn stale_volumes(&self, replicas: u8) -> Plan {
        if self.seen.order.is_some() {
            return Plan::default();
        }
        let stale = |ordinal: Ordinal| {
            let held_by = self.seen.claims.get(&ordinal).and_then(|claim| claim.member);
            match self.members.at(ordinal) {
                None => held_by.is_some() || ordinal.0 >= replicas,
                Some((id, member)) => member.start == Start::Added && held_by.is_some_and(|holder| holder != id),
            }
        };
        let mut plan = delete_claims(self.seen, stale);
        // A claim goes only when its pod goes; the StatefulSet makes both anew.
        let pod = self.seen.pods.iter().find(|(ordinal, pod)| {
            !pod.terminating && ordinal.0 < replicas && self.seen.claims.contains_key(ordinal) && stale(**ordinal)
        });
        if let Some((&ordinal, pod)) = pod {
            plan.actions.push(Action::DeletePod { ordinal, uid: pod.uid.clone() });
        }
        plan
    }

    /// The one membership change that comes next, if any.
    fn next_step(&self) -> Plan {
        let unlabelled = self.members.list.values().filter_map(|member| self.seen.claims.get(&member.ordinal?));
        if unlabelled.into_iter().any(|claim| claim.member.is_none()) {
            // The labels come first, and the next round sees them.
            return Plan::default();
        }
        self.learners()
            .or_else(|| self.replace_lost())
            .or_else(|| self.scale_in())
            .or_else(|| self.scale_out())
            .unwrap_or_default()
    }

    /// Learners are finished before anything else: promoted, or removed when they are no longer wanted or lost.
    fn learners(&self) -> Option<Plan> {
        let mut waiting = Vec::new();
        for (id, learner) in self.members.learners() {
            let ordinal = learner.ordinal?;
            if ordinal.0 >= self.size || self.is_lost(ordinal, learner) {
                return Some(self.remove(id));
            }
            match self.catch_up(id, ordinal, learner) {
                None => {
                    return Some(Plan::act(Action::Promote { ordinal, member: id, cluster: self.cluster() }));
                }
                Some(awaited) => waiting.push(awaited),
            }
        }
        let may_add_another = waiting.len() == 1 && self.two_learners();
        if waiting.is_empty() {
            return None;
        }
        let waiting = Plan { waiting, ..Plan::default() };
        match self.scale_out() {
            Some(adding) if may_add_another && !adding.actions.is_empty() => Some(adding.then(waiting)),
            Some(_) | None => Some(waiting),
        }
    }

    /// What a learner still lacks.
    fn catch_up(&self, id: MemberId, ordinal: Ordinal, learner: &Member) -> Option<WaitingOn> {
        if learner.start != Start::Published {
            return Some(match self.seen.pods.get(&ordinal).map(|pod| &pod.etcd) {
                Some(Process::CannotStart(reason)) => WaitingOn::Pod { ordinal, reason: reason.clone() },
                Some(Process::Waiting | Process::DataLost | Process::Started) | None => WaitingOn::Start { ordinal },
            });
        }
        let index = |id| self.seen.answer_of(id).map(|answer| answer.applied_index);
        let behind = self.members.leader.and_then(index).zip(index(id)).map(|(leader, own)| leader.saturating_sub(own));
        match behind {
            Some(behind) if behind <= CLOSE_ENOUGH => None,
            Some(_) | None => Some(WaitingOn::CatchUp { ordinal, behind }),
        }
    }

    /// Data that is surely gone, or a member of the bootstrap order that never came: starting it late as a voter
    /// would not be safe, a new learner always is.
    fn is_lost(&self, ordinal: Ordinal, member: &Member) -> bool {
        let empty = self.seen.pods.get(&ordinal).is_some_and(|pod| pod.etcd == Process::DataLost);
        let never_came = self.seen.order.is_none() && member.start == Start::Listed;
        empty && member.start == Start::Published || never_came
    }

    fn replace_lost(&self) -> Option<Plan> {
        let lost = self.members.voters().find(|(_, voter)| {
            voter.ordinal.is_some_and(|ordinal| self.is_lost(ordinal, voter))
        });
        // With a single voter lost there is nobody left to take its place from.
        lost.filter(|_| self.members.voters().count() > 1).map(|(id, _)| self.remove(id))
    }

    /// Sick members go first. A sick one that is wanted is removed all the same, and comes back as a learner before
    /// a healthy one is taken away.
    fn scale_in(&self) -> Option<Plan> {
        let voters: Vec<(MemberId, Ordinal)> =
            self.members.voters().filter_map(|(id, voter)| Some((id, voter.ordinal?))).collect();
        if voters.len() <= usize::from(self.size) {
            return None;
        }
        let serving = self.seen.serving();
        let mut excess: Vec<_> = voters.iter().filter(|(_, ordinal)| ordinal.0 >= self.size).collect();
        // Sick before healthy, then the highest.
        excess.sort_by_key(|(id, ordinal)| (serving.contains(id), std::cmp::Reverse(*ordinal)));
        let wanted_but_sick = voters.iter().filter(|(id, ordinal)| ordinal.0 < self.size && !serving.contains(id));
        let mut refused = None;
        for &(id, _) in excess.into_iter().chain(wanted_but_sick) {
            match against_leaving(self.members, &serving, id) {
                None => return Some(self.remove(id)),
                Some(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        refused.map(Plan::refuse)
    }

    /// The lowest ordinal that is missing and whose pod can be found by others; one that cannot start stalls
    /// only itself.
    fn scale_out(&self) -> Option<Plan> {
        let mut waiting = Vec::new();
        for ordinal in Ordinal::below(self.size).filter(|&ordinal| self.members.at(ordinal).is_none()) {
            match self.not_ready_to_join(ordinal) {
                None => {
                    return Some(Plan::act(Action::AddLearner { ordinal, cluster: self.cluster() }));
                }
                Some(reason) => waiting.push(WaitingOn::Pod { ordinal, reason }),
            }
        }
        (!waiting.is_empty()).then_some(Plan { waiting, ..Plan::default() })
    }

    fn not_ready_to_join(&self, ordinal: Ordinal) -> Option<String> {
        let Some(pod) = self.seen.pods.get(&ordinal) else { return Some("is not there yet".into()) };
        let fresh = self.seen.claims.get(&ordinal).is_some_and(|claim| !claim.terminating && claim.member.is_none());
        match &pod.etcd {
            _ if pod.terminating => Some("is ending".into()),
            Process::CannotStart(reason) => Some(reason.clone()),
            _ if !fresh => Some("has no fresh volume yet".into()),
            _ if !pod.published => Some("is not listed by the peer Service yet".into()),
            Process::Started | Process::DataLost => Some("has not ended its former member yet".into()),
            Process::Waiting => None,
        }
    }

    fn two_learners(&self) -> bool {
        let two = |(&id, _): (&MemberId, &Member)| self.seen.answer_of(id).is_some_and(|answer| answer.two_learners);
        self.members.list.iter().filter(|(_, member)| !member.learner).all(two)
    }

    /// Removes a member; if it leads, leadership moves first to the lowest voter that stays and serves.
    fn remove(&self, id: MemberId) -> Plan {
        let serving = self.seen.serving();
        if let Some(refusal) = against_leaving(self.members, &serving, id) {
            return Plan::refuse(refusal);
        }
        if self.members.leader != Some(id) {
            return Plan::act(Action::RemoveMember { member: id, cluster: self.cluster() });
        }
        let mut heirs: Vec<_> = self
            .members
            .voters()
            .filter(|(heir, _)| *heir != id && serving.contains(heir))
            .filter_map(|(heir, voter)| Some((voter.ordinal?, heir)))
            .collect();
        heirs.sort();
        match heirs.first() {
            Some(&(_, to)) => Plan::act(Action::MoveLeader { from: id, to, cluster: self.cluster() }),
            None => Plan::refuse(Refusal::NoSuccessor { leader: id }),
        }
    }
}
