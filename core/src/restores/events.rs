//! What happened to a restore: one event for each change of its status that users should notice.

use crate::api::EtcdRestoreStatus;
use crate::events::Event;
use crate::names::{condition, event, reason};
use crate::status::find;

const ACTION: &str = "Restore";

/// Between two statuses, the second of which was written over the first.
pub fn of_change(before: Option<&EtcdRestoreStatus>, after: &EtcdRestoreStatus) -> Vec<Event> {
    let nothing = EtcdRestoreStatus::default();
    let before = before.unwrap_or(&nothing);
    let mut events = Vec::new();
    if after.incarnation.is_some() && before.incarnation.is_none() {
        let cluster = after.restored_cluster.as_deref().unwrap_or_default();
        let note = match after.replaced {
            Some(_) => format!("prepares other data for EtcdCluster {cluster}"),
            None => format!("created EtcdCluster {cluster}"),
        };
        events.push(Event::normal(event::RESTORE_STARTED, ACTION, note));
    }
    let failed =
        after.last_run.as_ref().filter(|run| after.last_run != before.last_run && run.failure.is_some());
    if let Some(run) = failed {
        let message = run.message.clone().unwrap_or_default();
        events.push(Event::new(true, run.failure.as_deref().unwrap_or_default(), ACTION, message));
    }
    let changed = |type_: &str| {
        let now = find(&after.conditions, type_)?;
        let then = find(&before.conditions, type_);
        let is_new = then.is_none_or(|then| {
            (&then.status, &then.reason, &then.message) != (&now.status, &now.reason, &now.message)
        });
        is_new.then_some(now)
    };
    let completed = changed(condition::READY).filter(|it| it.status == "True");
    events.extend(completed.map(|it| Event::normal(&it.reason, ACTION, it.message.clone())));
    let stalled = changed(condition::STALLED).filter(|it| it.status == "True");
    let waits = changed(condition::RECONCILING).filter(|it| {
        let is_work = [reason::RESTORE_RUNNING, reason::RETRY_PENDING].contains(&it.reason.as_str());
        it.status == "True" && !is_work
    });
    let warnings = stalled.into_iter().chain(waits);
    events.extend(warnings.map(|it| Event::new(true, &it.reason, ACTION, it.message.clone())));
    events
}
