//! The numbers of one EtcdBackup, from its status and its own schedule.

use jiff::{SignedDuration, Timestamp};

use super::{
    BACKUP_CONDITION, BACKUP_DURATION, BACKUP_FAILURES, BACKUP_NEXT, BACKUP_OVERDUE, BACKUP_RECOVERY_POINT,
    BACKUP_SIZE, BACKUP_SUCCESS, Sample, by_condition, plain, seconds,
};
use crate::api::{EtcdBackup, EtcdBackupSpec, EtcdBackupStatus};
use crate::names::{condition, reason};
use crate::runs::RUN_DEADLINE;
use crate::schedule::Schedule;
use crate::status::find;

/// Those that [`crate::runs`] reports.
const CONDITIONS: [&str; 4] =
    [condition::READY, condition::RECONCILING, condition::STALLED, condition::ARCHIVING];
/// Why nothing is archived on purpose.
const NOT_ARCHIVED: [&str; 5] = [
    reason::SUSPENDED,
    reason::STOPPED,
    reason::DELETING,
    reason::CLUSTER_NOT_FOUND,
    reason::NOT_BOOTSTRAPPED,
];

pub fn of_backup(backup: &EtcdBackup) -> Vec<Sample> {
    let status = backup.status.clone().unwrap_or_default();
    let mut samples: Vec<_> = by_condition(&BACKUP_CONDITION, &CONDITIONS, &status.conditions).collect();
    let success = status.last_success_time.as_ref().map(|time| time.0);
    samples.push(plain(&BACKUP_SUCCESS, success.map_or(0.0, seconds)));
    // A database of 2^53 bytes does not exist.
    samples.extend(status.backup_size.map(|bytes| plain(&BACKUP_SIZE, bytes as f64)));
    // A run that takes place has no end yet.
    if let (Some(start), Some(end)) = (&status.start_time, &status.completion_time) {
        samples.push(plain(&BACKUP_DURATION, end.0.duration_since(start.0).as_secs_f64()));
    }
    samples.push(plain(&BACKUP_FAILURES, status.consecutive_failures.unwrap_or_default().into()));
    samples.extend(status.next_run_time.as_ref().map(|time| plain(&BACKUP_NEXT, seconds(time.0))));
    let created = backup.metadata.creation_timestamp.as_ref().map(|time| time.0);
    samples.extend(overdue(&backup.spec, success, created).map(|at| plain(&BACKUP_OVERDUE, seconds(at))));
    let recovery_point = recovery_point(&status, created);
    samples.extend(recovery_point.map(|at| plain(&BACKUP_RECOVERY_POINT, seconds(at))));
    samples
}

/// None: there should be none.
fn recovery_point(status: &EtcdBackupStatus, created: Option<Timestamp>) -> Option<Timestamp> {
    let archive = status.archive.as_ref()?;
    let archiving = find(&status.conditions, condition::ARCHIVING);
    let is_wanted = archiving.is_none_or(|it| !NOT_ARCHIVED.contains(&it.reason.as_str()));
    archive.recovery_point.as_ref().map(|time| time.0).or(created).filter(|_| is_wanted)
}

/// None: nothing is due, or no time can be computed. A run has until the following time of the schedule, and not longer than
/// its Job.
fn overdue(
    spec: &EtcdBackupSpec,
    success: Option<Timestamp>,
    created: Option<Timestamp>,
) -> Option<Timestamp> {
    if spec.suspend {
        return None;
    }
    let Some(cron) = &spec.schedule else {
        return created.filter(|_| success.is_none())?.checked_add(RUN_DEADLINE).ok();
    };
    let schedule = Schedule::in_zone(cron, spec.time_zone.as_deref())?;
    let due = schedule.next_after(success.or(created)?)?;
    let following = schedule.next_after(due).map_or(SignedDuration::MAX, |next| next.duration_since(due));
    due.checked_add(following.min(RUN_DEADLINE)).ok()
}
