//! Why a member is restarted: an open list. Nothing that is not on it restarts a member.

use serde::Serialize;

use crate::decide::Goal;
use crate::observed::{Observed, Pod};

/// In the order in which they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Reason {
    /// Its pod is made from something else than what the spec asks for.
    FormDiffers,
    /// The operator accepted a restart while this pod existed.
    RestartRequested,
    /// The operator cannot work with the agent in its pod.
    AgentRequired,
}

/// Who wants a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By an edit or a request, which is consent to what it costs.
    User,
    /// Where a restart stops writes, it waits for consent or a window.
    Operator,
}

impl Reason {
    const ALL: [Self; 3] = [Self::FormDiffers, Self::RestartRequested, Self::AgentRequired];

    pub fn of(pod: &Pod, goal: &Goal, seen: &Observed) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |reason| reason.holds(pod, goal, seen))
    }

    fn holds(self, pod: &Pod, goal: &Goal, seen: &Observed) -> bool {
        match self {
            Self::FormDiffers => {
                goal.form.as_ref().is_some_and(|wanted| pod.form.as_ref() != Some(&wanted.form))
            }
            Self::RestartRequested => {
                seen.cluster.restart.as_ref().is_some_and(|(_, pods)| pods.contains(&pod.uid))
            }
            Self::AgentRequired => pod.agent < goal.lowest_agent,
        }
    }

    pub fn origin(self) -> Origin {
        match self {
            Self::FormDiffers | Self::RestartRequested => Origin::User,
            Self::AgentRequired => Origin::Operator,
        }
    }

    /// How a member is restarted, in the words of users.
    pub fn words(self) -> &'static str {
        match self {
            Self::FormDiffers => "with the changed spec",
            Self::RestartRequested => "as requested",
            Self::AgentRequired => "with the agent that this operator requires",
        }
    }
}
