//! The copy that precedes another version.

use super::conditions::{Value, find};
use super::rollout::{Rollout, SERVES_WITHIN_SECONDS};
use super::view::View;
use crate::api::AwaitedBackup;
use crate::names::{condition, reason};
use crate::plan::{Refusal, WaitingOn};

/// What EtcdBackups read: the one that has to take a copy, and which copy.
pub(super) fn awaited(view: &View<'_>) -> Option<AwaitedBackup> {
    view.basis.plan.waiting.iter().find_map(|it| {
        let WaitingOn::Copy { backup, token, problem: _ } = it else { return None };
        let (namespace, name) = backup.split_once('/')?;
        Some(AwaitedBackup { namespace: namespace.into(), name: name.into(), token: token.clone() })
    })
}

impl Rollout<'_> {
    /// Whether the copy stalls the rollout; none if it waits for no copy. A copy of much data takes long, and is no problem.
    pub(super) fn stalled_copy(&self) -> Option<(Value, &'static str, String)> {
        let plan = self.view.basis.plan;
        let failed = plan.refusals.iter().find(|it| matches!(it, Refusal::NoCopy { .. }));
        if let Some(refusal) = failed {
            return Some((Value::True, refusal.reason(), self.view.terms().refused(refusal)));
        }
        let awaited = plan.waiting.iter().find_map(|it| {
            let WaitingOn::Copy { backup, problem, token: _ } = it else { return None };
            Some((it, backup, problem.as_ref()))
        });
        let (awaited, backup, problem) = awaited?;
        if problem.is_none() {
            return Some((Value::False, reason::NOT_STALLED, "nothing blocks the rollout".into()));
        }
        let message = format!("waiting for {}", self.view.terms().awaited(awaited));
        let before = find(&self.view.before.conditions, condition::ROLLOUT_STALLED);
        let reported = before.is_some_and(|it| it.status == "True" && it.reason == reason::AWAITING_BACKUP);
        let long = self.view.was(condition::ROLLOUT_STALLED, Value::Unknown, SERVES_WITHIN_SECONDS);
        Some(match reported || long {
            true => {
                let way_out = format!(
                    "no member was restarted: correct EtcdBackup {backup}, set its spec.suspend to true to continue without a \
                     copy, or set spec.version back"
                );
                (Value::True, reason::AWAITING_BACKUP, format!("{message}; {way_out}"))
            }
            false => (Value::Unknown, reason::ROLLING_OUT, message),
        })
    }
}
