//! What an EtcdBackup says about the copies of its cluster.

use kube::ResourceExt;

use crate::api::EtcdBackup;
use crate::names::condition;
use crate::observed::Backup;
use crate::status::find;

/// Its namespace and name, and what it reports.
pub(super) fn of(backup: &EtcdBackup) -> (String, Backup) {
    let status = backup.status.clone().unwrap_or_default();
    let ready = find(&status.conditions, condition::READY).filter(|it| it.status == "False");
    let seen = Backup {
        last_success: status.last_success_time.map(|time| time.0),
        problem: ready.map(|it| format!("{}: {}", it.reason, it.message)),
    };
    (format!("{}/{}", backup.namespace().unwrap_or_default(), backup.name_any()), seen)
}
