//! A rollout whose image and arguments are tried, before the first member restarts.

use super::conditions::Value;
use super::rollout::{Cause, Rollout, SERVES_WITHIN_SECONDS, reason_of};
use crate::assess::PodState;
use crate::decide::Trial;
use crate::names::{condition, reason};
use crate::observed::{Blocked, PreflightState};

impl Rollout<'_> {
    /// What goes on, if something is tried.
    pub(super) fn tried(&self) -> Option<String> {
        let nodes = match self.roll.trials_under_way().len() {
            0 => return None,
            1 => "1 node".into(),
            many => format!("{many} nodes"),
        };
        Some(format!("trying the new image and arguments on {nodes}"))
    }

    /// Whether that stalls the rollout; none if nothing is tried.
    pub(super) fn stalled_trial(&self) -> Option<(Value, &'static str, String)> {
        let trials = self.roll.trials_under_way();
        if trials.is_empty() {
            return None;
        }
        let is_paused = self.view.basis.goal.paused;
        let causes = trials.iter().filter(|trial| trial.pod.is_some() || !is_paused);
        let causes: Vec<_> = causes.filter_map(|trial| Some((trial, cause(trial)?))).collect();
        let lasting = causes.iter().find(|(_, cause)| cause.lasting);
        let Some((trial, cause)) = lasting.or(causes.first()) else {
            return Some((Value::False, reason::NOT_STALLED, "nothing blocks the rollout".into()));
        };
        let pod = self.view.basis.names.preflight(trial.ordinal);
        let what = format!("{pod} on node {}: {}", trial.node, cause.text);
        let long = self.view.was(condition::ROLLOUT_STALLED, Value::Unknown, SERVES_WITHIN_SECONDS);
        if cause.lasting || long {
            let way_out = format!("no member was restarted: revert {}, or correct it", self.edit());
            return Some((Value::True, cause.reason, format!("{what}; {way_out}")));
        }
        // The successor of a pod that had no result has its time, too, and nothing to report meanwhile.
        let reported = self.reported(&pod).filter(|_| self.view.is_of_same_generation());
        let waiting = || (Value::Unknown, reason::ROLLING_OUT, format!("waiting for {what}"));
        Some(reported.unwrap_or_else(waiting))
    }
}

/// Why it has not succeeded; none if it has.
fn cause(trial: &Trial<'_>) -> Option<Cause> {
    let Some(pod) = trial.pod else {
        let missing = PodState::Missing;
        return Some(Cause { reason: missing.reason(), text: missing.text(), lasting: false });
    };
    let (reason, text, lasting) = match &pod.state {
        PreflightState::Passed => return None,
        PreflightState::Pending => (reason::POD_STARTING, "not finished yet".into(), false),
        PreflightState::Blocked(blocked) => {
            let state = PodState::Blocked(blocked.clone());
            // A new image is pulled, most of the time.
            (reason_of(&state), state.text(), *blocked != Blocked::SlowCreation)
        }
        PreflightState::Failed(exit) => (reason::PREFLIGHT_FAILED, exit.once(), true),
        PreflightState::Interrupted(why) => (reason::POD_START_FAILED, why.clone(), true),
    };
    Some(Cause { reason, text, lasting })
}
