//! What the status of a cluster reports about its backups.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::conditions::Value;
use super::facts::Finding;
use crate::names::reason;
use crate::observed::Backup;

pub(super) fn last_success(backups: &BTreeMap<String, Backup>) -> Option<Timestamp> {
    backups.values().filter_map(|backup| backup.last_success).max()
}

/// Nothing without an EtcdBackup.
pub(super) fn healthy(backups: &BTreeMap<String, Backup>) -> Option<Finding> {
    let problem =
        |(name, backup): (&String, &Backup)| Some(format!("EtcdBackup {name}: {}", backup.problem.as_ref()?));
    let problems: Vec<_> = backups.iter().filter_map(problem).collect();
    let last = backups.iter().filter_map(|(name, backup)| Some((backup.last_success?, name))).max();
    Some(match last {
        _ if backups.is_empty() => return None,
        _ if !problems.is_empty() => (Value::False, reason::BACKUP_FAILED, problems.join("; ")),
        Some((time, name)) => (
            Value::True,
            reason::BACKUP_COMPLETED,
            format!("EtcdBackup {name} took the last copy at {time:.0}"),
        ),
        None => {
            let names: Vec<_> = backups.keys().map(String::as_str).collect();
            let message = format!("no copy has completed yet: EtcdBackup {}", names.join(", "));
            (Value::Unknown, reason::NO_BACKUP_YET, message)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_backup_that_fails_is_named_although_others_succeed_and_none_is_no_condition() {
        let time: Timestamp = "2026-11-18T02:00:09Z".parse().expect("a time");
        let (good, new) = (Backup { last_success: Some(time), ..Backup::default() }, Backup::default());
        let bad = Backup { problem: Some("StoreDenied: 403".into()), ..Backup::default() };
        let of = |all: &[(&str, &Backup)]| {
            let all: BTreeMap<_, _> =
                all.iter().map(|(name, it)| ((*name).to_owned(), (*it).clone())).collect();
            (healthy(&all).map(|(_, reason, message)| (reason, message)), last_success(&all))
        };
        assert_eq!(of(&[]), (None, None));
        let waiting = "no copy has completed yet: EtcdBackup ns/a".to_owned();
        assert_eq!(of(&[("ns/a", &new)]), (Some(("NoBackupYet", waiting)), None));
        let taken = "EtcdBackup ns/a took the last copy at 2026-11-18T02:00:09Z".to_owned();
        assert_eq!(of(&[("ns/a", &good), ("ns/b", &new)]), (Some(("BackupCompleted", taken)), Some(time)));
        let failed = "EtcdBackup ns/b: StoreDenied: 403".to_owned();
        assert_eq!(of(&[("ns/a", &good), ("ns/b", &bad)]), (Some(("BackupFailed", failed)), Some(time)));
    }
}
