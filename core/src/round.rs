//! What happens from one observation to the next, as a state machine that the worker of a cluster and the simulation both
//! drive: which observation is fresh enough, which steps of a plan are sent, what an outcome means, and how long to sleep.
//!
//! ```text
//! begin ─▶ (observe) ─▶ consider ─▶ (send beside) ─▶ (send steps) ─▶ stepped ... ─▶ rest ─▶ begin
//! ```

mod memory;
mod pace;
mod settled;
mod writes;

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::{Goal, decide};
use crate::observed::{Observed, Ordinal};
use crate::plan::{Action, Plan};
use crate::status::{FailedWrite, Trouble};
pub use memory::Memory;
use pace::Pace;
pub use pace::{Clock, LearnsBy, Pause};
use settled::Settled;
pub use settled::Versions;
pub use writes::{SideWrite, SideWrites};

/// Where the objects of an observation are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// From caches, which may not know yet what we did.
    #[default]
    Cached,
    /// From the API server.
    Live,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Somebody else changed the object first: what the request was decided on is outdated.
    Overtaken,
    NotDone(Trouble),
}

/// What an observation leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// As in the last round, in which there was nothing to do.
    Unchanged,
    /// The plan could do harm and comes from a cache: a live observation decides.
    Confirm,
    Proceed(Plan),
}

/// How a round ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a step, or with the decision to observe live.
    Moved,
    /// The objects could not be read, or a step was not done.
    Stuck,
    /// What was read is outdated.
    Overtaken,
    /// The cache does not know yet that the cluster is gone, or that another one has its name.
    Superseded,
    /// With nothing to do until something happens.
    Idle(Plan, LearnsBy),
}

#[derive(Clone, Debug, Default)]
pub struct Round {
    pub memory: Memory,
    pub writes: SideWrites,
    pace: Pace,
    freshness: Freshness,
    /// Why the last step was not done, if nothing has been done since.
    trouble: Option<Trouble>,
    /// How often in a row etcd has refused the next step.
    refusals: usize,
    settled: Option<Settled>,
}

impl Round {
    /// How the next observation has to be made.
    pub fn begin(&mut self) -> Freshness {
        std::mem::take(&mut self.freshness)
    }

    /// What to do about an observation that was made like this.
    pub fn consider(
        &mut self,
        goal: &Goal,
        seen: &Observed,
        versions: &Versions,
        freshness: Freshness,
    ) -> Next {
        if self.settled.as_ref().is_some_and(|settled| settled.still_holds(seen, versions)) {
            return Next::Unchanged;
        }
        self.settled = None;
        let plan = decide(goal, seen);
        if freshness == Freshness::Cached && plan.actions.iter().any(Action::is_decided_twice) {
            self.freshness = Freshness::Live;
            return Next::Confirm;
        }
        Next::Proceed(plan)
    }

    /// Why a step of a plan cannot be taken now, if so: other members find new pods only through the peer Service.
    pub fn obstacle(&self, action: &Action, seen: &Observed, peer_service: &SideWrite) -> Option<Trouble> {
        self.writes.trouble(peer_service).filter(|_| action.needs_peer_service(seen))
    }

    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The pod whose etcd is asked to change the members, if one may be asked. Each judges by its own connections whether a
    /// member may come or leave, and one of them may have missed that a member returned: after a refusal the next one is
    /// asked. A promotion is judged by the leader, whichever member is asked.
    pub fn via(&self, action: &Action, seen: &Observed) -> Option<Ordinal> {
        let (cluster, leaving, turn) = match action {
            Action::AddLearner { cluster, .. } => (cluster, None, self.refusals),
            Action::RemoveMember { member, cluster } => (cluster, Some(*member), self.refusals),
            Action::Promote { cluster, .. } => (cluster, None, 0),
            Action::MoveLeader { from, cluster, .. } => return seen.serves_as(*from, *cluster),
            Action::AddFinalizer
            | Action::RemoveFinalizer
            | Action::RecordFormed { .. }
            | Action::CreateOrder { .. }
            | Action::ArmOrder { .. }
            | Action::DeleteOrder { .. }
            | Action::SetReplicas { .. }
            | Action::AdoptClaim { .. }
            | Action::LabelClaim { .. }
            | Action::DeleteClaim { .. }
            | Action::DeletePod { .. }
            | Action::DeleteSet { .. } => return None,
        };
        seen.etcd.members.known().filter(|members| members.cluster == *cluster)?;
        seen.speakers(leaving).iter().cycle().nth(turn).copied()
    }

    /// What became of a step. Returns whether the next step of the plan may follow: not after one that could do harm, nor
    /// after one that changed the EtcdCluster, because what was read of it is outdated.
    pub fn stepped(&mut self, action: &Action, outcome: Outcome) -> bool {
        self.freshness = Freshness::Live;
        match outcome {
            Outcome::Done => {
                (self.trouble, self.refusals) = (None, 0);
                !(action.is_decided_twice() || action.changes_cluster())
            }
            Outcome::Overtaken => {
                (self.trouble, self.refusals) = (None, 0);
                false
            }
            Outcome::NotDone(trouble) => {
                self.hold_up(trouble);
                false
            }
        }
    }

    /// Neither a step nor an observation was possible. Returns whether that is news.
    pub fn hold_up(&mut self, trouble: Trouble) -> bool {
        self.freshness = Freshness::Live;
        if matches!(trouble, Trouble::EtcdNotYet(_)) {
            self.refusals = self.refusals.saturating_add(1);
        }
        self.trouble.replace(trouble) != self.trouble
    }

    /// The observation is outdated: the next one is made at once, and live.
    pub fn overtaken(&mut self) {
        self.freshness = Freshness::Live;
    }

    /// There is no step to take. `reported` is what the status that was just written says of failed writes, and
    /// `heartbeat` the time at which it has to be written again.
    pub fn idle(
        &mut self,
        plan: Plan,
        learns_by: LearnsBy,
        reported: &[FailedWrite],
        settled: (&Observed, &Versions, Option<Timestamp>),
    ) -> Ended {
        let (seen, versions, heartbeat) = settled;
        // The status has just reported the trouble, and nothing newer.
        if self.trouble.take().is_some() || self.writes.failed() != reported {
            return Ended::Moved;
        }
        let all_written = self.writes.next_retry(seen.now).is_none();
        self.settled = (plan.is_settled() && all_written).then(|| Settled::of(seen, versions, heartbeat));
        Ended::Idle(plan, learns_by)
    }

    /// How long to sleep, if at all.
    pub fn rest(&mut self, ended: &Ended, clock: Clock) -> Option<Pause> {
        match ended {
            Ended::Moved => {
                self.pace.progress();
                None
            }
            Ended::Superseded => Some(self.pace.waiting(clock.now)),
            Ended::Stuck => match &self.trouble {
                Some(Trouble::EtcdNotYet(_) | Trouble::LeftBehind(_)) => Some(self.pace.waiting(clock.now)),
                // That the cluster is deleted with its namespace wakes us.
                Some(Trouble::Failed(_) | Trouble::NamespaceEnding) => Some(self.pace.failure(clock)),
                None => None,
            },
            Ended::Overtaken => None,
            Ended::Idle(plan, learns_by) => {
                let pause = self.pace.after(plan, *learns_by, clock);
                let retry = self.writes.next_retry(clock.now);
                Some(pause.or_sooner(self.memory.next_name(clock.now)).or_sooner(retry))
            }
        }
    }
}

/// The pods whose agents get the addresses of the others; none while there is something to do: an etcd that joins must list
/// the same members as those it joins, so none can be about to be added.
pub fn agents_to_tell(plan: &Plan, seen: &Observed) -> Vec<Ordinal> {
    if plan.actions.is_empty() { seen.waiting_agents().collect() } else { Vec::new() }
}

/// None for a clock that was set back.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
