//! The status of an EtcdBackup.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::outcome::{Ended, Run};
use super::{Intent, Seen, Standing, cluster_namespace, generation};
use crate::api::{BackupPhase, CopyStatus, EtcdBackup, EtcdBackupStatus, RunStatus, Verification};
use crate::backup::layout::data_file;
use crate::backup::manifest;
use crate::backup::report::Summary;
use crate::names::{ALLOW_FROM_ANNOTATION, condition, reason};
use crate::observed::Blocked;
use crate::status::{Fact, History, Value, ours};
use crate::validate::Problem;

/// How many copies the status lists.
const LISTED_COPIES: usize = 10;

/// Why a run has no copy. A copy whose outdated predecessors could not be deleted is a copy.
pub(super) fn failure_of(run: &RunStatus) -> Option<&str> {
    run.failure.as_deref().filter(|failure| *failure != reason::RETENTION_FAILED)
}

/// The outcome of a run, which counts once.
pub(super) fn record(before: &EtcdBackupStatus, run: &Run, ended: &Ended) -> EtcdBackupStatus {
    let mark = &run.mark;
    let last_run = RunStatus {
        job: run.job.clone(),
        generation: mark.generation,
        scheduled_time: mark.scheduled_time.map(Time),
        request: mark.request.clone(),
        archive_copy: mark.archive_copy,
        retries: i32::try_from(mark.retries).unwrap_or(i32::MAX),
        failure: ended.failure.as_ref().map(|it| it.reason.to_owned()),
        message: ended.failure.as_ref().map(|it| it.message.clone()),
    };
    let failed = failure_of(&last_run).is_some();
    let mut next = EtcdBackupStatus {
        start_time: Some(Time(run.created)),
        completion_time: Some(Time(ended.at)),
        last_requested_run: mark
            .request
            .as_ref()
            .map(|_| last_run.clone())
            .or(before.last_requested_run.clone()),
        last_run: Some(last_run.clone()),
        consecutive_failures: failed
            .then(|| before.consecutive_failures.unwrap_or_default().saturating_add(1)),
        ..before.clone()
    };
    next.copies.retain(|copy| !ended.deleted.iter().any(|name| name.as_str() == copy.name));
    if !failed {
        next.last_success_time = Some(Time(ended.at));
    }
    if let Some(archive) = &mut next.archive {
        // Any copy will do.
        archive.copy_needed &= failed;
        if mark.archive_copy.is_some() {
            archive.last_copy_run = Some(last_run);
        }
    }
    if let Some(summary) = &ended.copy {
        let copy = copy(summary, &mark.location);
        next.last_success_time = Some(copy.time.clone());
        next.backup_size = Some(copy.size);
        next.storage_path = Some(copy.location.clone());
        next.etcd_version = Some(summary.etcd_version.clone());
        next.etcd_revision = Some(copy.revision);
        next.copies.insert(0, copy);
        next.copies.truncate(LISTED_COPIES);
    }
    next
}

fn copy(summary: &Summary, location: &str) -> CopyStatus {
    let file = match (summary.compression.known(), summary.encryption.known()) {
        (Some(&compression), Some(&encryption)) => {
            format!("data/{}", data_file(&summary.name, compression, encryption))
        }
        // A later version stores it in another way; the manifest says how.
        _ => format!("copies/{}.json", summary.name),
    };
    CopyStatus {
        name: summary.name.to_string(),
        time: Time(summary.completed_at),
        revision: summary.revision.lowest,
        size: i64::try_from(summary.bytes).unwrap_or(i64::MAX),
        location: format!("{location}/{file}"),
        verified: summary.verification.known().map(|verification| match verification {
            manifest::Verification::ReadBack => Verification::ReadBack,
            manifest::Verification::Checksum => Verification::Checksum,
        }),
    }
}

/// The whole status, from what was recorded and how things stand.
pub(super) fn of(
    seen: &Seen<'_>,
    intent: Option<&Intent>,
    recorded: EtcdBackupStatus,
    active: Option<&Run>,
    standing: &Standing,
    archiving: Option<Fact>,
) -> EtcdBackupStatus {
    let backup = seen.backup;
    let conditions = ours(&recorded.conditions);
    let history = History { before: &conditions, generation: backup.metadata.generation, now: seen.now };
    let mut facts = facts(seen, &recorded, standing);
    facts.extend(archiving);
    let scheduled = intent.filter(|intent| !intent.is_suspended).and_then(|intent| intent.schedule.as_ref());
    let started = active.map(|run| run.mark.scheduled_time.map(Time)).unwrap_or_default();
    let last_schedule = recorded.last_run.as_ref().and_then(|run| run.scheduled_time.clone());
    EtcdBackupStatus {
        phase: phase(&recorded, active.is_some(), standing),
        conditions: history.conditions(facts),
        start_time: active.map_or(recorded.start_time.clone(), |run| Some(Time(run.created))),
        completion_time: recorded.completion_time.clone().filter(|_| active.is_none()),
        last_schedule_time: started.or(last_schedule).or(recorded.last_schedule_time.clone()),
        next_run_time: scheduled.and_then(|schedule| schedule.next_after(seen.now)).map(Time),
        observed_generation: Some(generation(backup)),
        ..recorded
    }
}

fn phase(recorded: &EtcdBackupStatus, is_active: bool, standing: &Standing) -> Option<BackupPhase> {
    let is_working =
        is_active || matches!(standing, Standing::Runs | Standing::Starts | Standing::Retries(_));
    if is_working {
        return Some(BackupPhase::Running);
    }
    match &recorded.last_run {
        Some(run) if failure_of(run).is_some() => Some(BackupPhase::Failed),
        Some(_) => Some(BackupPhase::Completed),
        None => match standing {
            Standing::Invalid(_) | Standing::NotAllowed | Standing::AwaitsEdit => Some(BackupPhase::Failed),
            Standing::Suspended
            | Standing::Waits(..)
            | Standing::Starts
            | Standing::Runs
            | Standing::Retries(_)
            | Standing::Rests
            | Standing::Done
            | Standing::Failed => None,
        },
    }
}

fn facts(seen: &Seen<'_>, recorded: &EtcdBackupStatus, standing: &Standing) -> Vec<Fact> {
    let fact =
        |type_, value, (reason, message): (&'static str, String)| Fact { type_, value, reason, message };
    let blocked = blocking(seen, recorded, standing);
    let ready = match &blocked {
        Some(why) => (Value::False, why.clone()),
        None => last_result(recorded),
    };
    let working = working(standing);
    vec![
        fact(condition::READY, ready.0, ready.1),
        match working {
            Some(what) => fact(condition::RECONCILING, Value::True, what),
            None => fact(condition::RECONCILING, Value::False, resting(seen.backup, standing)),
        },
        match blocked {
            Some(why) => fact(condition::STALLED, Value::True, why),
            None => {
                let nothing = "nothing blocks the operator".to_owned();
                fact(condition::STALLED, Value::False, (reason::NOT_STALLED, nothing))
            }
        },
    ]
}

/// What keeps everything from going on until somebody changes something.
fn blocking(
    seen: &Seen<'_>,
    recorded: &EtcdBackupStatus,
    standing: &Standing,
) -> Option<(&'static str, String)> {
    let backup = seen.backup;
    match standing {
        Standing::Invalid(problems) => {
            let problems: Vec<_> = problems.iter().map(Problem::to_string).collect();
            Some((reason::INVALID_SPEC, problems.join("; ")))
        }
        Standing::NotAllowed => {
            let (own, other) = (backup.namespace().unwrap_or_default(), cluster_namespace(backup));
            let name = &backup.spec.cluster_name;
            let message = format!(
                "EtcdCluster {name} does not allow backups from namespace {own}; to allow them: kubectl annotate -n {other} \
                 etcd {name} {ALLOW_FROM_ANNOTATION}={own}"
            );
            Some((reason::NAMESPACE_NOT_ALLOWED, message))
        }
        Standing::AwaitsEdit => {
            let message = "a version of the operator that took no backups accepted this object: edit its spec or create it again \
                           to let it take effect";
            Some((reason::AWAITING_EDIT, message.into()))
        }
        Standing::Failed => Some(last_result(recorded).1),
        Standing::Suspended
        | Standing::Waits(..)
        | Standing::Starts
        | Standing::Runs
        | Standing::Retries(_)
        | Standing::Rests
        | Standing::Done => None,
    }
}

/// What the last run came to.
fn last_result(recorded: &EtcdBackupStatus) -> (Value, (&'static str, String)) {
    let Some(run) = &recorded.last_run else {
        return (Value::Unknown, (reason::NO_BACKUP_YET, "no run has ended yet".into()));
    };
    let word =
        |failure: &str| reason::ALL.iter().find(|it| **it == failure).copied().unwrap_or(reason::RUN_FAILED);
    let message = run.message.clone().unwrap_or_default();
    if let Some(failure) = failure_of(run) {
        return (Value::False, (word(failure), message));
    }
    let copy = match recorded
        .copies
        .first()
        .filter(|copy| Some(&copy.time) == recorded.last_success_time.as_ref())
    {
        Some(copy) => format!("copy {} has revision {} and {} bytes", copy.name, copy.revision, copy.size),
        None => format!("Job {} completed, and its result was lost with its pod", run.job),
    };
    match &run.failure {
        Some(_) => {
            let message = format!("{copy}; outdated copies were not deleted: {message}");
            (Value::True, (reason::RETENTION_FAILED, message))
        }
        None => (Value::True, (reason::BACKUP_COMPLETED, copy)),
    }
}

fn working(standing: &Standing) -> Option<(&'static str, String)> {
    match standing {
        Standing::Waits(reason, message) => Some((reason, message.clone())),
        Standing::Starts | Standing::Runs => Some((reason::BACKUP_RUNNING, "a copy is being taken".into())),
        Standing::Retries(at) => {
            let message = format!("the last attempt failed, see lastRun; the next one starts at {at:.0}");
            Some((reason::RETRY_PENDING, message))
        }
        Standing::Invalid(_)
        | Standing::NotAllowed
        | Standing::AwaitsEdit
        | Standing::Suspended
        | Standing::Rests
        | Standing::Done
        | Standing::Failed => None,
    }
}

fn resting(backup: &EtcdBackup, standing: &Standing) -> (&'static str, String) {
    match standing {
        Standing::Suspended => {
            (reason::SUSPENDED, "spec.suspend is true: no run starts until it is set to false".into())
        }
        Standing::Rests if backup.spec.schedule.is_none() => {
            (reason::UP_TO_DATE, "the next copy is taken when the archive needs one".into())
        }
        Standing::Rests => (reason::UP_TO_DATE, "the next run starts at nextRunTime".into()),
        Standing::Invalid(_)
        | Standing::NotAllowed
        | Standing::AwaitsEdit
        | Standing::Waits(..)
        | Standing::Starts
        | Standing::Runs
        | Standing::Retries(_)
        | Standing::Done
        | Standing::Failed => (reason::UP_TO_DATE, "nothing is pending".into()),
    }
}

/// Why the pod of a run has not started, with the way out.
pub(crate) fn why_blocked(job: &str, blocked: &Blocked) -> (&'static str, String) {
    match blocked {
        Blocked::Unschedulable(message) => {
            (reason::POD_UNSCHEDULABLE, format!("no node takes the pod of Job {job}: {message}"))
        }
        Blocked::Container { reason: why, message } => {
            (reason::POD_START_FAILED, format!("the pod of Job {job} cannot start: {why}: {message}"))
        }
        Blocked::SlowCreation => {
            let message = format!(
                "the pod of Job {job} does not start: Secrets and volumes that the spec names might be missing; \
                 see kubectl describe pod -l job-name={job}"
            );
            (reason::POD_STARTING, message)
        }
    }
}
