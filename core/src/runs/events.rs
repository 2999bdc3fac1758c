//! What happened to a backup: one event for each change of its status that users should notice.

use crate::api::{BackupPhase, EtcdBackupStatus};
use crate::events::Event;
use crate::names::{condition, event, reason};
use crate::status::find;

/// What an operator that tries to reach something was doing.
const ACTION: &str = "Backup";

/// Between two statuses, the second of which was written over the first.
pub fn of_change(before: Option<&EtcdBackupStatus>, after: &EtcdBackupStatus) -> Vec<Event> {
    let nothing = EtcdBackupStatus::default();
    let before = before.unwrap_or(&nothing);
    let mut events = Vec::new();
    let runs = |it: &EtcdBackupStatus| {
        let is_over = it.phase != Some(BackupPhase::Running) || it.completion_time.is_some();
        it.start_time.clone().filter(|_| !is_over)
    };
    if runs(after).is_some() && runs(after) != runs(before) {
        events.push(Event::normal(event::BACKUP_STARTED, ACTION, "taking a copy of the cluster's data"));
    }
    let changed = |type_: &str| {
        let now = find(&after.conditions, type_)?;
        let then = find(&before.conditions, type_);
        let is_new = then.is_none_or(|then| {
            (&then.status, &then.reason, &then.message) != (&now.status, &now.reason, &now.message)
        });
        is_new.then_some(now)
    };
    let has_ended = after.last_run != before.last_run;
    if let Some(ready) = find(&after.conditions, condition::READY).filter(|_| has_ended) {
        let is_warning = ready.status != "True" || ready.reason == reason::RETENTION_FAILED;
        events.push(Event::new(is_warning, &ready.reason, ACTION, ready.message.clone()));
    }
    if let Some(archiving) = changed(condition::ARCHIVING) {
        let then = find(&before.conditions, condition::ARCHIVING);
        let is_new =
            then.is_none_or(|then| (&then.status, &then.reason) != (&archiving.status, &archiving.reason));
        let is_warning = archiving.status != "True";
        if is_new && archiving.reason != reason::ARCHIVER_STARTING {
            events.push(Event::new(is_warning, &archiving.reason, ACTION, archiving.message.clone()));
        }
    }
    let stalled = changed(condition::STALLED).filter(|it| it.status == "True" && !has_ended);
    let waits = changed(condition::RECONCILING).filter(|it| {
        let is_work = [reason::BACKUP_RUNNING, reason::RETRY_PENDING].contains(&it.reason.as_str());
        it.status == "True" && !is_work
    });
    let warnings = stalled.into_iter().chain(waits);
    events.extend(warnings.map(|it| Event::new(true, &it.reason, ACTION, it.message.clone())));
    events
}
