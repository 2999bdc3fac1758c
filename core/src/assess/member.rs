//! The state of a member that etcd lists.

use super::Assessment;
use crate::member::MemberProgress;
use crate::observed::{Answer, Exit, Member, MemberId, Process};

/// A learner this close to the leader can be promoted. etcd's own check is a ratio, and accepts one that is a million entries
/// behind ten million.
const CLOSE_ENOUGH: u64 = 1000;
/// How long a learner can fail to start. One that was added while DNS still returned old addresses fails until they expire,
/// which takes half a minute; one that was started on an outdated member list fails forever.
const FAILING_SECONDS: i64 = 45;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// A voter that has just served a linearizable read.
    Serving,
    /// It cannot return as the member that it is, and has to be replaced.
    Lost(Loss),
    /// It has not published itself yet.
    Starting,
    /// A learner that follows the leader, and how many entries it is behind, if both report their index.
    CatchingUp { behind: Option<u64> },
    /// A learner that follows the leader and can be promoted.
    CaughtUp,
    /// It responds and has no leader.
    NoLeader,
    /// It responds and follows a leader, and its linearizable reads fail.
    ReadsFailing,
    /// It does not respond. The state of its pod can tell why.
    Silent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    Data,
    /// It did not start while the bootstrap order existed: to start it later as a voter would not be safe.
    NeverStarted,
    /// The etcd in its pod belongs to another cluster.
    OtherCluster,
    /// A learner that fails for long is not worth keeping.
    Crashing(Exit),
}

impl MemberState {
    /// As far as its response shows.
    pub fn of(answer: Option<&Answer>) -> Self {
        match answer {
            Some(answer) if answer.linearizable => Self::Serving,
            Some(answer) if answer.leader.is_none() => Self::NoLeader,
            Some(_) => Self::ReadsFailing,
            None => Self::Silent,
        }
    }
}

impl Assessment<'_> {
    pub(super) fn judge_member(&self, id: MemberId, member: &Member) -> MemberState {
        let shown = MemberState::of(self.answer_of(id));
        let published = member.start == MemberProgress::Published;
        match (shown, self.loss(id, member)) {
            (MemberState::Serving, _) if !member.learner => MemberState::Serving,
            (_, Some(loss)) => MemberState::Lost(loss),
            (shown, None) if !published && (member.learner || shown == MemberState::Silent) => {
                MemberState::Starting
            }
            (MemberState::Serving | MemberState::ReadsFailing, None) if member.learner => {
                match self.entries_behind(id) {
                    Some(behind) if behind <= CLOSE_ENOUGH => MemberState::CaughtUp,
                    behind => MemberState::CatchingUp { behind },
                }
            }
            (shown, None) => shown,
        }
    }

    /// Behind the leader.
    pub fn entries_behind(&self, member: MemberId) -> Option<u64> {
        let index = |id| self.answer_of(id).map(|answer| answer.applied_index);
        Some(index(self.listed()?.leader?)?.saturating_sub(index(member)?))
    }

    fn loss(&self, id: MemberId, member: &Member) -> Option<Loss> {
        let ordinal = member.ordinal?;
        match (member.start, self.seen.pods.get(&ordinal).map(|pod| &pod.etcd)) {
            _ if self.is_in_another_cluster(ordinal) => Some(Loss::OtherCluster),
            (MemberProgress::Listed, _) if self.seen.order.is_none() => Some(Loss::NeverStarted),
            (MemberProgress::Published, Some(Process::DataLost)) => Some(Loss::Data),
            (_, Some(Process::Failing(exit)))
                if member.learner && self.is_silent_for(id, FAILING_SECONDS) =>
            {
                Some(Loss::Crashing(exit.clone()))
            }
            (MemberProgress::Added | MemberProgress::Listed | MemberProgress::Published, _) => None,
        }
    }

    /// Whether the operator has observed for so long that the member does not serve.
    pub fn is_silent_for(&self, member: MemberId, seconds: i64) -> bool {
        let since = self.seen.etcd.silent_since.get(&member);
        since.is_some_and(|since| self.seen.now.as_second() - since.as_second() >= seconds)
    }
}
