//! One member continues alone, after a majority has lost its data for good, and with the consent of a user.
//!
//! Nothing here counts on a status. The order is created when the loss is observed and nobody has consented, so consent that comes later is
//! for this loss. It is deleted at the end, so the same consent does nothing again. A volume with data is deleted only if its member
//! responds and is not the survivor: what does not respond might return, or still serve others.

use jiff::SignedDuration;

use super::{Goal, delete_claims, membership::keep_pods};
use crate::assess::{Assessment, PodState, Quorum};
use crate::observed::{Answer, Members, Ordinal, Process, Recovery, Seen, Unanswered};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::quorum::quorum;
use crate::recovery::{Consent, Survivor, UNDERSTOOD_FROM};

/// How long the survivor can take to serve alone. etcd needs two seconds, and its pod some more.
const SERVES_WITHIN: SignedDuration = SignedDuration::from_secs(90);

/// What may be left of a member in a pod and on its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remnant {
    /// No data: an agent has inspected the volume, or there is none.
    Empty,
    /// Its etcd responds, and has no quorum.
    Responds,
    /// It is about to end, or to be inspected.
    Pending,
    /// It might have data, and might run.
    Unknown(PodState),
}

/// What is left of the members, as far as pods show it.
#[derive(Debug)]
pub(crate) struct Loss<'a> {
    facts: &'a Assessment<'a>,
    /// With what they report, the one with the most data first.
    pub responding: Vec<(Ordinal, &'a Answer)>,
    /// Members whose agents report that their data is gone.
    pub lost: Vec<Ordinal>,
}

impl<'a> Loss<'a> {
    pub fn of(facts: &'a Assessment<'a>) -> Self {
        let seen = facts.seen;
        let answers = seen.etcd.answers.iter().filter_map(|(&it, answer)| Some((it, answer.known()?)));
        let ours = answers.filter(|(_, answer)| Some(answer.cluster) == facts.cluster);
        let mut responding: Vec<_> = ours.collect();
        // Committed entries are the same everywhere: the member that knows of more of them has all that others have.
        responding.sort_by_key(|(it, answer)| (std::cmp::Reverse((answer.commit_index, answer.term)), it.0));
        let is_lost = |it: &Ordinal| {
            seen.pods.get(it).is_some_and(|pod| pod.etcd == Process::DataLost) && is_inspected(facts, *it)
        };
        let lost = seen.pods.keys().copied().filter(is_lost).collect();
        Self { facts, responding, lost }
    }

    /// So many members have lost their data that no quorum comes back by itself.
    pub fn is_final(&self) -> bool {
        let alive = self.responding.len();
        alive > 0 && alive < quorum(alive + self.lost.len())
    }

    /// Of every pod and volume but that of the survivor.
    pub fn others(&self, survivor: Ordinal) -> impl Iterator<Item = (Ordinal, Remnant)> {
        let seen = self.facts.seen;
        let pods = seen.replicas().max(seen.span()).max(seen.pods.keys().last().map_or(0, |it| it.0 + 1));
        let claims = seen.claims.keys().last().map_or(0, |it| it.0 + 1);
        let others = Ordinal::below(pods.max(claims)).filter(move |it| *it != survivor);
        others.map(|it| (it, self.remnant(it)))
    }

    fn remnant(&self, ordinal: Ordinal) -> Remnant {
        let seen = self.facts.seen;
        if self.responding.iter().any(|(it, _)| *it == ordinal) {
            return Remnant::Responds;
        }
        let unknown = || Remnant::Unknown(self.facts.pod(ordinal).clone());
        let claim = seen.claims.get(&ordinal);
        let is_unwritten = claim.is_none_or(|claim| !claim.bound);
        let Some(pod) = seen.pods.get(&ordinal) else {
            let is_rejected = matches!(self.facts.pod(ordinal), PodState::Rejected(_));
            return match is_unwritten {
                true => Remnant::Empty,
                false if is_rejected => unknown(),
                false => Remnant::Pending,
            };
        };
        match &pod.etcd {
            // No kubelet confirms the end of a pod on a lost node.
            _ if pod.terminating && pod.loss.is_some() => unknown(),
            _ if pod.terminating => Remnant::Pending,
            Process::Waiting | Process::DataLost if is_inspected(self.facts, ordinal) => Remnant::Empty,
            Process::CannotStart(_) if is_unwritten => Remnant::Empty,
            Process::Beginning => Remnant::Pending,
            Process::Waiting
            | Process::DataLost
            | Process::Forming
            | Process::CannotStart(_)
            | Process::Started
            | Process::Failing(_) => unknown(),
        }
    }
}

/// The agent in the pod responds now.
fn is_inspected(facts: &Assessment<'_>, ordinal: Ordinal) -> bool {
    matches!(facts.seen.etcd.answers.get(&ordinal), Some(Seen::Unknown(Unanswered::AgentWaiting(_))))
}

/// None if no recovery is due, so that everything else goes on.
pub fn plan(goal: &Goal, facts: &Assessment<'_>) -> Option<Plan> {
    let seen = facts.seen;
    if seen.is_access_denied() || seen.order.is_some() {
        return None;
    }
    match (facts.quorum, &seen.recovery) {
        (Quorum::Held(members), Some(order)) => Some(complete(facts, members, order)),
        (Quorum::Unproven(_), _) if goal.size > 0 => without_quorum(goal, facts),
        (
            Quorum::Held(_) | Quorum::Unproven(_) | Quorum::NotBootstrapped | Quorum::OtherCluster { .. },
            _,
        ) => None,
    }
}

fn without_quorum(goal: &Goal, facts: &Assessment<'_>) -> Option<Plan> {
    let loss = Loss::of(facts);
    match (&facts.seen.recovery, &goal.recovery) {
        // Without a valid spec, nothing is created.
        (None, None) => (goal.form.is_some() && loss.is_final()).then(|| Plan::act(Action::PrepareRecovery)),
        (None, Some(_)) => {
            loss.is_final().then(|| keep_pods(facts.seen).then(Plan::refuse(Refusal::ConsentBeforeLoss)))
        }
        // The consent was withdrawn.
        (Some(Recovery { uid, start: Some(_) }), None) => {
            Some(Plan::act(Action::EndRecovery { uid: uid.clone() }))
        }
        (Some(Recovery { start: None, .. }), None) => None,
        (Some(order), Some(consent)) => Some(carry_out(facts, &loss, order, consent)),
    }
}

fn carry_out(facts: &Assessment<'_>, loss: &Loss<'_>, order: &Recovery, consent: &Consent) -> Plan {
    let pods = keep_pods(facts.seen);
    if !pods.is_settled() {
        return pods;
    }
    let (given, actual) = (consent.cluster, facts.cluster);
    match (&order.start, actual) {
        (_, Some(actual)) if given != actual => Plan::refuse(Refusal::ConsentForOther { given, actual }),
        (_, None) => Plan::refuse(Refusal::NoSurvivor),
        (Some((survivor, replaced)), Some(_)) => force(facts, loss, *survivor, replaced),
        (None, Some(_)) => match chosen(loss, &consent.survivor) {
            Ok(survivor) => fence(facts, loss, order, survivor),
            Err(refusal) => Plan::refuse(refusal),
        },
    }
}

fn chosen(loss: &Loss<'_>, survivor: &Survivor) -> Result<Ordinal, Refusal> {
    // Not a learner, while a voter responds.
    let has_voter = loss.responding.iter().any(|(_, answer)| answer.commit_index > 0);
    let votes = |answer: &Answer| answer.commit_index > 0 || !has_voter;
    let mut usable = loss.responding.iter().filter(|(_, answer)| votes(answer)).map(|(it, _)| *it);
    let unusable = |named: String, usable| Err(Refusal::SurvivorUnusable { named, usable });
    match survivor {
        Survivor::Auto => usable.next().ok_or(Refusal::NoSurvivor),
        Survivor::Pod(named) if usable.clone().any(|it| it == *named) => Ok(*named),
        Survivor::Pod(named) => unusable(named.to_string(), usable.collect()),
        Survivor::Unknown(named) => unusable(named.clone(), usable.collect()),
    }
}

/// No other pod may run a previous member, and no volume may start one, before the survivor continues alone: both would accept writes.
fn fence(facts: &Assessment<'_>, loss: &Loss<'_>, order: &Recovery, survivor: Ordinal) -> Plan {
    let seen = facts.seen;
    let may_return = might_return(facts, loss, survivor);
    if !may_return.is_empty() {
        return Plan::refuse(Refusal::MayReturn { ordinals: may_return });
    }
    if let Some(apart) = apart(loss, survivor) {
        return Plan::wait(apart);
    }
    let others: Vec<(Ordinal, Remnant)> = loss.others(survivor).collect();
    let responds = |it: Ordinal| others.contains(&(it, Remnant::Responds));
    let mut plan = delete_claims(seen, responds);
    let ends = |it: &Ordinal| seen.pods.get(it).filter(|pod| responds(*it) && !pod.terminating);
    if let Some((ordinal, pod)) = others.iter().find_map(|(it, _)| Some((*it, ends(it)?))) {
        plan.actions.push(Action::DeletePod { ordinal, uid: pod.uid.clone() });
        return plan;
    }
    let open = others.iter().filter(|(_, remnant)| *remnant != Remnant::Empty).map(|(it, _)| *it);
    let ordinals: Vec<Ordinal> = open.collect();
    let Some(pod) = seen.pods.get(&survivor).filter(|pod| ordinals.is_empty() && !pod.terminating) else {
        return Plan::wait(WaitingOn::Fence { ordinals });
    };
    // The agent in the next pod of the survivor has to understand the order.
    if !seen.set.as_ref().is_some_and(|set| set.followed && !set.terminating && set.agent >= UNDERSTOOD_FROM)
    {
        return Plan::wait(WaitingOn::Template);
    }
    let new_form = seen.set.as_ref().and_then(|set| set.template.as_ref());
    if pod.form.as_ref().zip(new_form).is_some_and(|(own, new)| own != new) {
        return Plan::refuse(Refusal::SurvivorForm { survivor });
    }
    Plan::act(Action::ArmRecovery { uid: order.uid.clone(), survivor, pod: pod.uid.clone() })
}

/// Those that do not respond and might have data; and all that respond, if these could be a quorum.
fn might_return(facts: &Assessment<'_>, loss: &Loss<'_>, survivor: Ordinal) -> Vec<(Ordinal, PodState)> {
    let enough_respond = !loss.is_final();
    let state = |(ordinal, remnant): (Ordinal, Remnant)| match remnant {
        Remnant::Unknown(state) => Some((ordinal, state)),
        Remnant::Responds if enough_respond => Some((ordinal, facts.pod(ordinal).clone())),
        Remnant::Responds | Remnant::Empty | Remnant::Pending => None,
    };
    let survivor_alone =
        (enough_respond && loss.lost.is_empty()).then(|| (survivor, facts.pod(survivor).clone()));
    loss.others(survivor).filter_map(state).chain(survivor_alone).collect()
}

/// Members that respond and are not connected might be a quorum once they are.
fn apart(loss: &Loss<'_>, survivor: Ordinal) -> Option<WaitingOn> {
    let (_, own) = loss.responding.iter().find(|(it, _)| *it == survivor)?;
    let reaches =
        |from: &Answer, to: &Answer| from.reaches.as_ref().is_some_and(|it| it.contains(&to.member));
    let mut others = loss.responding.iter().filter(|(it, _)| *it != survivor);
    let (_, other) = others.find(|(_, other)| !reaches(own, other) && !reaches(other, own))?;
    Some(WaitingOn::Connection { from: own.member, to: other.member })
}

/// The pod that ran before the order is ended. Its agent reads the order when it is created again.
fn force(facts: &Assessment<'_>, loss: &Loss<'_>, survivor: Ordinal, replaced: &str) -> Plan {
    let seen = facts.seen;
    let wait = || Plan::wait(WaitingOn::ForcedStart { survivor });
    let incomplete = || Plan::refuse(Refusal::RecoveryIncomplete { survivor });
    match seen.pods.get(&survivor) {
        None => wait(),
        Some(pod) if pod.terminating => {
            if pod.loss.is_some() {
                incomplete()
            } else {
                wait()
            }
        }
        Some(pod) if pod.uid == replaced => {
            let open = loss.others(survivor).filter(|(_, it)| *it != Remnant::Empty).map(|(it, _)| it);
            match open.collect::<Vec<_>>() {
                none if none.is_empty() => {
                    Plan::act(Action::DeletePod { ordinal: survivor, uid: pod.uid.clone() })
                }
                ordinals => Plan::wait(WaitingOn::Fence { ordinals }),
            }
        }
        Some(pod) => match pod.created {
            Some(created) if seen.now.duration_since(created) < SERVES_WITHIN => wait(),
            Some(_) | None => incomplete(),
        },
    }
}

/// A quorum serves: that of the survivor alone, or the previous one has returned.
fn complete(facts: &Assessment<'_>, members: &Members, order: &Recovery) -> Plan {
    let seen = facts.seen;
    let end = Plan::act(Action::EndRecovery { uid: order.uid.clone() });
    let Some((survivor, _)) = order.start else { return end };
    let alone = members.at(survivor).filter(|(id, _)| facts.serves(*id) && facts.serving().count() == 1);
    let loss = Loss::of(facts);
    if alone.is_none() || loss.responding.len() > 1 {
        return end;
    }
    let mut left = members.by_ordinal().into_iter().filter(|(_, member)| member.ordinal != Some(survivor));
    let open = loss.others(survivor).filter(|(_, it)| *it != Remnant::Empty).map(|(it, _)| it);
    let open: Vec<Ordinal> = open.collect();
    match left.next() {
        Some(_) if !open.is_empty() => Plan::wait(WaitingOn::Fence { ordinals: open }),
        // Releases before 3.5.25 and 3.6.6 leave some of them in the list.
        Some((member, _)) => Plan::act(Action::RemoveMember { member, cluster: members.cluster }),
        None if seen.cluster.incarnation.as_ref() != Some(&order.uid) => {
            Plan::act(Action::RecordIncarnation { incarnation: order.uid.clone() })
        }
        None => end,
    }
}
