//! What an EtcdBackup says about the copies of its cluster.

use kube::ResourceExt;

use crate::api::EtcdBackup;
use crate::names::{condition, reason};
use crate::observed::Backup;
use crate::runs;
use crate::status::find;

/// Its namespace and name, and what it reports.
pub(super) fn of(backup: &EtcdBackup) -> (String, Backup) {
    let status = backup.status.clone().unwrap_or_default();
    let ready = find(&status.conditions, condition::READY).filter(|it| it.status == "False");
    // A run takes its time, also that of another EtcdBackup.
    let runs = [reason::BACKUP_RUNNING, reason::OTHER_BACKUP_RUNNING];
    let waits = find(&status.conditions, condition::RECONCILING)
        .filter(|it| it.status == "True" && !runs.contains(&it.reason.as_str()));
    let seen = Backup {
        last_success: status.last_success_time.map(|time| time.0),
        problem: ready.map(|it| format!("{}: {}", it.reason, it.message)),
        takes_copies: runs::takes_copies(backup),
        waits: waits.map(|it| it.message.clone()),
        requested: runs::requested(backup),
    };
    (format!("{}/{}", backup.namespace().unwrap_or_default(), backup.name_any()), seen)
}
