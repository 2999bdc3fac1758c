//! What happens from one observation to the next, as a state machine that the worker of a cluster and the simulation both
//! drive: which observation is fresh enough, which steps of a plan are sent, what an outcome means, and how long to sleep.
//!
//! ```text
//! begin ─▶ (observe) ─▶ consider ─▶ work ─▶ (send beside) ─▶ sent ... ─▶ request ─▶ (send) ─▶ stepped ... ─▶ rest ─▶ begin
//! ```

mod consistency;
mod handshakes;
mod memory;
mod newest;
mod pace;
mod settled;
mod space;
mod work;
mod writes;

use std::time::Duration;

use jiff::Timestamp;

use crate::decide::{Goal, decide};
use crate::names::Names;
use crate::observed::{Observed, Owner, Taken};
use crate::plan::{Action, Plan};
use crate::request::{Object, Request, Role, request};
use crate::status::{FailedWrite, Trouble};
pub use consistency::compared_members;
pub use handshakes::Handshakes;
pub use memory::Memory;
pub use newest::{Newest, Version};
use pace::Pace;
pub use pace::{Clock, LearnsBy, Pause};
use settled::Settled;
pub use settled::{Unseen, show_the_same};
pub use work::{Considered, Effect, Work};
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
    /// There was no response, for this reason: it might have been carried out, which only the next observation shows.
    Ambiguous(String),
}

impl Outcome {
    /// With what was attempted.
    pub fn of(self, what: &str) -> Self {
        match self {
            Self::NotDone(Trouble::Failed(why)) => {
                Self::NotDone(Trouble::Failed(format!("cannot {what}: {why}")))
            }
            Self::Ambiguous(why) => Self::Ambiguous(format!("cannot {what}: {why}")),
            Self::Done | Self::Overtaken | Self::NotDone(_) => self,
        }
    }
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
    writes: SideWrites,
    /// What the last status reports of them.
    reported: Vec<FailedWrite>,
    pace: Pace,
    freshness: Freshness,
    /// Why the last step was not done, if nothing has been done since.
    trouble: Option<Trouble>,
    /// How often in a row etcd has refused the next step.
    refusals: usize,
    /// Whether there was no response to the last step.
    ambiguous: bool,
    settled: Option<Settled>,
}

impl Round {
    /// How the next observation has to be made. Caches do not hold what others created under our names, so what failed is
    /// written again on a live one.
    pub fn begin(&mut self, now: Timestamp) -> Freshness {
        let freshness = std::mem::take(&mut self.freshness);
        if self.writes.retries_object(now) { Freshness::Live } else { freshness }
    }

    /// What to do about an observation that was made like this.
    pub fn consider(&mut self, goal: &Goal, seen: &Observed, unseen: &Unseen, freshness: Freshness) -> Next {
        if self.settled.as_ref().is_some_and(|settled| settled.still_holds(seen, unseen)) {
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

    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The request that carries out a step of a plan, or why it cannot be sent now.
    pub fn request(&self, action: &Action, seen: &Observed, names: &Names) -> Result<Request, Trouble> {
        if let Some(taken) = seen.taken.iter().find(|taken| action.creates(taken.object, seen)) {
            return Err(name_taken(taken, names));
        }
        // Other members find new pods only through the peer Service.
        let peer_service = SideWrite::Object(Object::Service(Role::Peer).title(names));
        if let Some(trouble) = self.writes.trouble(&peer_service).filter(|_| action.needs_peer_service(seen))
        {
            return Err(trouble);
        }
        // Members change only through one that has just served a linearizable read.
        let no_member = || Trouble::Failed("no member serves linearizable reads".into());
        request(action, seen, self.refusals).ok_or_else(no_member)
    }

    /// Whether a write beside the steps is sent now: one that failed waits for a while.
    pub fn is_due(&self, effect: &Effect, now: Timestamp) -> bool {
        self.writes.is_due(&effect.write, now)
    }

    /// What became of a write beside the steps. Returns how the round ends if what was observed might not hold any more:
    /// then no step follows.
    pub fn sent(&mut self, effect: &Effect, outcome: Outcome, now: Timestamp) -> Option<Ended> {
        let outdated = matches!(outcome, Outcome::Overtaken | Outcome::Ambiguous(_));
        if outdated {
            self.freshness = Freshness::Live;
        }
        self.writes.record(effect.write.clone(), outcome, now);
        outdated.then_some(Ended::Overtaken)
    }

    /// What became of a step. Returns how the round ends, unless the next step of the plan may follow: not after one that
    /// could do harm, nor after one that changed the EtcdCluster, because what was read of it is outdated.
    pub fn stepped(&mut self, action: &Action, outcome: Outcome) -> Option<Ended> {
        self.freshness = Freshness::Live;
        let again = std::mem::replace(&mut self.ambiguous, matches!(outcome, Outcome::Ambiguous(_)));
        if matches!(outcome, Outcome::Done | Outcome::Ambiguous(_)) {
            self.memory.space.sent(action);
            self.memory.consistency.sent(action);
        }
        let trouble = match outcome {
            Outcome::Done | Outcome::Overtaken => {
                if outcome == Outcome::Done && action.sets_root_password() {
                    self.memory.auth.password_set();
                }
                (self.trouble, self.refusals) = (None, 0);
                let last = outcome != Outcome::Done || action.is_decided_twice() || action.changes_cluster();
                return last.then_some(Ended::Moved);
            }
            Outcome::Ambiguous(_) if !again => return Some(Ended::Overtaken),
            Outcome::Ambiguous(why) => Trouble::Failed(why),
            Outcome::NotDone(trouble) => trouble,
        };
        self.hold_up(trouble);
        Some(Ended::Stuck)
    }

    /// Neither a step nor an observation was possible.
    pub fn hold_up(&mut self, trouble: Trouble) {
        self.freshness = Freshness::Live;
        if matches!(trouble, Trouble::EtcdNotYet(_)) {
            self.refusals = self.refusals.saturating_add(1);
        }
        self.trouble = Some(trouble);
    }

    /// There is no step to take. `heartbeat` is the time at which the status has to be written again.
    pub fn idle(
        &mut self,
        plan: Plan,
        learns_by: LearnsBy,
        settled: (&Observed, &Unseen, Option<Timestamp>),
    ) -> Ended {
        let (seen, unseen, heartbeat) = settled;
        // The status has just reported the trouble, and nothing newer.
        if self.trouble.take().is_some() || self.writes.failed() != self.reported {
            return Ended::Moved;
        }
        let all_written = self.writes.next_retry(seen.now).is_none();
        self.settled = (plan.is_settled() && all_written).then(|| Settled::of(seen, unseen, heartbeat));
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
                Some(Trouble::EtcdNotYet(_) | Trouble::EvictionNotYet(_) | Trouble::LeftBehind(_)) => {
                    Some(self.pace.waiting(clock.now))
                }
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

/// Why an object cannot be created while another one has its name.
fn name_taken(taken: &Taken, names: &Names) -> Trouble {
    let what = taken.object.title(names);
    match taken.owner {
        Owner::PreviousCluster => Trouble::LeftBehind(what),
        Owner::Other => Trouble::Failed(format!(
            "{what} exists already and has another owner: delete it, or give the cluster another name"
        )),
    }
}

/// None for a clock that was set back.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
