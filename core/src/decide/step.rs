//! The one membership change that comes next.

use std::cmp::Reverse;

use super::opinion::{self, Hold, Opinion};
use crate::member::MemberProgress;
use crate::observed::{Answer, ClusterId, Member, MemberId, Members, Observed, Ordinal, Process};
use crate::plan::{Action, Plan, PodCause, Refusal, WaitingOn};
use crate::quorum::{against_leaving, quorum};

/// A learner this close to the leader is promoted. etcd's own test is a ratio, and lets one pass that is a million
/// entries behind ten million.
const CLOSE_ENOUGH: u64 = 1000;
/// How long a member that is wanted may be silent before it is replaced where it stands in the way.
const SILENCE_SECONDS: i64 = 15;
/// How long a learner may fail to start. One that was added when names still led to former addresses fails until they are
/// forgotten, which takes half a minute; one that was started on a list of yesterday fails for ever.
const FAILING_SECONDS: i64 = 45;

pub struct Step<'a> {
    pub size: u8,
    pub seen: &'a Observed,
    pub members: &'a Members,
}

impl Step<'_> {
    pub fn next(&self) -> Plan {
        if self.seen.order.is_some() {
            // Whoever the order lists may still come as the voter that it lists.
            let coming = |(_, member): (_, &Member)| Some(WaitingOn::Start { ordinal: member.ordinal? });
            let listed =
                self.members.voters().filter(|(_, member)| member.start != MemberProgress::Published);
            return Plan { waiting: listed.filter_map(coming).collect(), ..Plan::default() };
        }
        let serving = self.seen.serving();
        let serves = |id: &MemberId| {
            serving.contains(id) && self.members.list.get(id).is_some_and(|member| !member.learner)
        };
        // In this order: half-done work is finished first, and what is lost is replaced before anything healthy is
        // touched. A further reason to change a member is a further line.
        let concerns = [Self::finish_learner, Self::replace_lost, Self::scale_in, Self::scale_out];
        opinion::first_step(concerns.iter().map(|concern| concern(self)), serves)
    }

    fn cluster(&self) -> ClusterId {
        self.members.cluster
    }

    /// A learner is promoted when it has caught up, and removed when it is no longer wanted or lost.
    fn finish_learner(&self) -> Opinion {
        let mut learners =
            self.members.learners().filter_map(|(id, member)| Some((id, member.ordinal?, member)));
        let next = learners.find_map(|(member, ordinal, learner)| {
            if ordinal.0 >= self.size || self.is_lost(member, ordinal, learner) {
                return Some(self.remove(member));
            }
            let caught_up = self.catching_up(member, ordinal, learner).is_none();
            (caught_up && !self.another_comes_soon())
                .then(|| Plan::act(Action::Promote { ordinal, member, cluster: self.cluster() }))
        });
        Opinion::holding(Hold::Everything, next)
    }

    /// After a promotion etcd takes nobody for five seconds. So where two learners may join at once, the first waits for a
    /// second that can join now or in a moment; one more voter alone would not survive more than there were before.
    fn another_comes_soon(&self) -> bool {
        let comes = |ordinal: Ordinal| {
            let pod = self.seen.pods.get(&ordinal).filter(|pod| !pod.terminating);
            pod.is_some_and(|pod| match pod.etcd {
                Process::Beginning => true,
                Process::Waiting => self.too_few_to_add().is_none(),
                Process::CannotStart(_)
                | Process::Forming
                | Process::DataLost
                | Process::Started
                | Process::Failing(_) => false,
            })
        };
        self.members.learners().count() == 1
            && self.all_accept_two_learners()
            && Ordinal::below(self.size).any(|ordinal| self.members.at(ordinal).is_none() && comes(ordinal))
    }

    /// What a learner still lacks.
    fn catching_up(&self, id: MemberId, ordinal: Ordinal, learner: &Member) -> Option<WaitingOn> {
        if learner.start != MemberProgress::Published {
            return Some(match self.seen.pods.get(&ordinal).map(|pod| &pod.etcd) {
                Some(Process::CannotStart(blocked)) => {
                    WaitingOn::Pod { ordinal, cause: PodCause::Blocked(blocked.clone()) }
                }
                Some(Process::Failing(exit)) => {
                    WaitingOn::Pod { ordinal, cause: PodCause::Crashing(exit.clone()) }
                }
                Some(Process::Beginning) => WaitingOn::Pod { ordinal, cause: PodCause::Creating },
                Some(Process::Waiting | Process::Forming | Process::DataLost | Process::Started) | None => {
                    WaitingOn::Start { ordinal }
                }
            });
        }
        let index = |id| self.seen.answer_of(id).map(|answer| answer.applied_index);
        let leader = self.members.leader.and_then(index);
        let behind = leader.zip(index(id)).map(|(leader, own)| leader.saturating_sub(own));
        match behind {
            Some(behind) if behind <= CLOSE_ENOUGH => None,
            Some(_) | None => Some(WaitingOn::CatchUp { ordinal, behind }),
        }
    }

    /// Data that is surely gone, or a member of the bootstrap order that never came: starting it late as a voter
    /// would not be safe, a new learner always is. A learner that fails for long is not worth keeping either.
    fn is_lost(&self, id: MemberId, ordinal: Ordinal, member: &Member) -> bool {
        let process = self.seen.pods.get(&ordinal).map(|pod| &pod.etcd);
        match (member.start, process) {
            _ if self.seen.is_in_another_cluster(ordinal, self.cluster()) => true,
            (MemberProgress::Listed, _) => true,
            (MemberProgress::Published, Some(Process::DataLost)) => true,
            (_, Some(Process::Failing(_))) => member.learner && self.has_been_silent(id, FAILING_SECONDS),
            (MemberProgress::Added | MemberProgress::Published, _) => false,
        }
    }

    fn replace_lost(&self) -> Opinion {
        let is_lost =
            |id, voter: &Member| voter.ordinal.is_some_and(|ordinal| self.is_lost(id, ordinal, voter));
        let lost = self.members.voters().find(|(id, voter)| is_lost(*id, voter));
        Opinion::holding(Hold::Everything, lost.map(|(id, _)| self.remove(id)))
    }

    /// Sick members go first. When only a sick one that is wanted can go, it is removed all the same, and comes back
    /// as a learner before a healthy one is taken away. While this waits, members can still be added.
    fn scale_in(&self) -> Opinion {
        Opinion::holding(Hold::ServingVoters, self.next_to_leave())
    }

    fn next_to_leave(&self) -> Option<Plan> {
        let voters: Vec<(MemberId, Ordinal)> =
            self.members.voters().filter_map(|(id, voter)| Some((id, voter.ordinal?))).collect();
        if voters.len() <= usize::from(self.size) {
            return None;
        }
        let serving = self.seen.serving();
        let mut excess: Vec<_> = voters.iter().filter(|(_, ordinal)| ordinal.0 >= self.size).collect();
        excess.sort_by_key(|(id, ordinal)| (serving.contains(id), Reverse(*ordinal)));
        let mut refused = None;
        for &&(id, _) in &excess {
            match against_leaving(self.members, &serving, id) {
                None => return Some(self.remove(id)),
                Some(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        let mut sick = voters.iter().filter(|(id, ordinal)| ordinal.0 < self.size && !serving.contains(id));
        match sick.find(|(id, _)| against_leaving(self.members, &serving, *id).is_none()) {
            Some(&(member, _)) if self.has_been_silent(member, SILENCE_SECONDS) => Some(self.remove(member)),
            Some(&(member, ordinal)) => Some(Plan::wait(WaitingOn::Recovery { ordinal, member })),
            None => refused.map(Plan::refuse),
        }
    }

    fn has_been_silent(&self, member: MemberId, seconds: i64) -> bool {
        let since = self.seen.etcd.silent_since.get(&member);
        since.is_some_and(|since| self.seen.now.as_second() - since.as_second() >= seconds)
    }

    /// The lowest ordinal that is missing and whose pod can be found by others; one that cannot start stalls
    /// only itself.
    fn scale_out(&self) -> Opinion {
        Opinion::holding(Hold::Everything, self.next_to_join())
    }

    fn next_to_join(&self) -> Option<Plan> {
        let mut waiting: Vec<WaitingOn> = self
            .members
            .learners()
            .filter_map(|(id, learner)| self.catching_up(id, learner.ordinal?, learner))
            .collect();
        let mut ready = None;
        for ordinal in Ordinal::below(self.size).filter(|&ordinal| self.members.at(ordinal).is_none()) {
            match PodCause::against_joining(self.seen, ordinal) {
                None => ready = ready.or(Some(ordinal)),
                Some(cause) => waiting.push(WaitingOn::Pod { ordinal, cause }),
            }
        }
        let waiting = Plan { waiting, ..Plan::default() };
        let Some(ordinal) = ready else { return (!waiting.is_settled()).then_some(waiting) };
        Some(match self.members.learners().count() {
            0 => self.add(ordinal).then(waiting),
            1 if self.all_accept_two_learners() => self.add(ordinal).then(waiting),
            _ => self.make_room().unwrap_or(waiting),
        })
    }

    fn add(&self, ordinal: Ordinal) -> Plan {
        match self.too_few_to_add() {
            Some(waiting) => Plan::wait(waiting),
            None => Plan::act(Action::AddLearner { ordinal, cluster: self.cluster() }),
        }
    }

    /// etcd refuses a new member that could cost the quorum, and the learner would be a voter soon.
    fn too_few_to_add(&self) -> Option<WaitingOn> {
        let voters = self.members.voters().count();
        let serving = self.seen.serving();
        let serving = self.members.voters().filter(|(id, _)| serving.contains(id)).count();
        let needed = quorum(voters + 1);
        (voters > 1 && serving < needed).then_some(WaitingOn::Voters { serving, needed })
    }

    /// A learner whose pod cannot start any more gives its place to one whose pod waits.
    fn make_room(&self) -> Option<Plan> {
        let stuck = |ordinal| {
            self.seen.pods.get(&ordinal).is_some_and(|pod| matches!(pod.etcd, Process::CannotStart(_)))
        };
        let mut unstarted =
            self.members.learners().filter(|(_, learner)| learner.start == MemberProgress::Added);
        unstarted.find(|(_, learner)| learner.ordinal.is_some_and(stuck)).map(|(id, _)| self.remove(id))
    }

    /// Each member applies an addition by its own limit, so all that run must have the same.
    fn all_accept_two_learners(&self) -> bool {
        let mut started =
            self.members.list.iter().filter(|(_, member)| member.start != MemberProgress::Added);
        started.all(|(&id, _)| self.seen.answer_of(id).is_some_and(Answer::accepts_two_learners))
    }

    /// Removes a member; if it leads, leadership moves first to the lowest voter that stays and serves.
    fn remove(&self, id: MemberId) -> Plan {
        let serving = self.seen.serving();
        if let Some(refusal) = against_leaving(self.members, &serving, id) {
            return Plan::refuse(refusal);
        }
        let Some(leader) = self.members.leader else {
            return Plan::wait(WaitingOn::Leader);
        };
        if leader != id {
            return Plan::act(Action::RemoveMember { member: id, cluster: self.cluster() });
        }
        let heirs = self.members.voters().filter(|(heir, _)| *heir != id && serving.contains(heir));
        let lowest = heirs.filter_map(|(heir, voter)| Some((voter.ordinal?, heir))).min();
        match lowest {
            Some((_, to)) => Plan::act(Action::MoveLeader { from: id, to, cluster: self.cluster() }),
            None => Plan::refuse(Refusal::NoSuccessor { leader: id }),
        }
    }
}
