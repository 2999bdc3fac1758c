//! What an EtcdBackup says about the copies of its cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use crate::api::EtcdBackup;
use crate::names::{condition, reason};
use crate::observed::Backup;
use crate::runs;
use crate::status::find;

/// What an archive waits for: it does not fail.
const AWAITED_BY_ARCHIVES: [&str; 7] = [
    reason::COPY_NEEDED,
    reason::SUSPENDED,
    reason::AWAITING_EDIT,
    reason::CLUSTER_NOT_FOUND,
    reason::NOT_BOOTSTRAPPED,
    reason::STOPPED,
    reason::DELETING,
];

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
        problem: ready
            .map(|it| format!("{}: {}", it.reason, it.message))
            .or(archive_problem(&status.conditions)),
        takes_copies: runs::takes_copies(backup),
        waits: waits.map(|it| it.message.clone()),
        requested: runs::requested(backup),
    };
    (format!("{}/{}", backup.namespace().unwrap_or_default(), backup.name_any()), seen)
}

fn archive_problem(conditions: &[Condition]) -> Option<String> {
    let archiving = find(conditions, condition::ARCHIVING).filter(|it| it.status == "False")?;
    let is_awaited = AWAITED_BY_ARCHIVES.contains(&archiving.reason.as_str());
    (!is_awaited).then(|| format!("the archive: {}: {}", archiving.reason, archiving.message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(conditions: &[(&str, &str, &str)]) -> Option<String> {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(type_, status, reason)| {
                json!({"type": type_, "status": status, "reason": reason, "message": "words", "lastTransitionTime": "2026-11-18T02:00:09Z"})
            })
            .collect();
        let backup = json!({"metadata": {"namespace": "ns", "name": "a"}, "spec": {"clusterName": "c", "storageType": "S3"},
            "status": {"conditions": conditions}});
        of(&serde_json::from_value(backup).expect("an EtcdBackup")).1.problem
    }

    #[test]
    fn an_archive_that_fails_is_a_problem_and_one_that_waits_is_none() {
        let taken = ("Ready", "True", "BackupCompleted");
        let words = Some("the archive: StoreUnreachable: words".to_owned());
        assert_eq!(problem(&[taken, ("Archiving", "False", "StoreUnreachable")]), words);
        assert_eq!(problem(&[taken, ("Archiving", "Unknown", "ArchiverNotResponding")]), None);
        assert_eq!(problem(&[taken, ("Archiving", "True", "ArchiveCurrent")]), None);
        for waits in AWAITED_BY_ARCHIVES {
            assert_eq!(problem(&[taken, ("Archiving", "False", waits)]), None, "{waits}");
        }
        let both = [("Ready", "False", "StoreDenied"), ("Archiving", "False", "StoreUnreachable")];
        assert_eq!(problem(&both), Some("StoreDenied: words".into()));
    }
}
