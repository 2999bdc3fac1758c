//! The continuous archive: the archiver of an EtcdBackup, which is a Job that ends only when something is wrong, and the copies that
//! its chain needs.
//!
//! Two archivers at once store one chain (ADR 56), so a new one does not wait for the end of the previous one.

mod job;
mod seen;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::request::Write;
use super::{
    Intent, MAX_RETRIES, Occasion, Seen, Slot, Standing, Unusable, awaits_edit, generation, status,
    usable_cluster, why_blocked,
};
use crate::api::{ArchiveStatus, EtcdBackupStatus, RunStatus};
use crate::backup::progress::Progress;
use crate::names::{condition, reason};
use crate::status::{Fact, Value, find};
pub use job::{ArchiveMark, TOKEN_KEY, token_name};
use job::{archiver, digest, token};
pub use seen::{Archiver, ArchiverState, Heard};

/// An archiver that failed this soon after its start has not got anywhere.
const SHORT: SignedDuration = SignedDuration::from_mins(10);
/// Before the next archiver; four times as long after each further failure.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// Where each further archiver costs a full copy.
const LONGEST_PAUSE_WITH_COPY: SignedDuration = SignedDuration::from_hours(6);
/// Before a copy that the archive needs is tried again, after everything that can pass has had its time.
const COPY_PAUSE: SignedDuration = SignedDuration::from_mins(30);
/// What was reported this long ago does not hold any more.
const FRESH: SignedDuration = SignedDuration::from_secs(60);
/// The status is written this often because of numbers alone.
const REFRESH: SignedDuration = SignedDuration::from_secs(30);
/// Without writes, etcd confirms everything after each interval.
const CONFIRMED_WITHIN: SignedDuration = SignedDuration::from_secs(120);
/// A pod that is deleted ends within its grace, unless its node is lost.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// With what has become certain. Whether an archiver has ended is written before anything follows from it.
pub(super) fn record(
    seen: &Seen<'_>,
    intent: Option<&Intent>,
    recorded: &EtcdBackupStatus,
) -> (Option<ArchiveStatus>, bool) {
    let Some(intent) = intent else { return (recorded.archive.clone(), false) };
    if intent.flush_interval_seconds.is_none() {
        return (None, false);
    }
    let mut archive = recorded.archive.clone().unwrap_or_default();
    if recorded.archive.is_none() && recorded.last_success_time.is_none() {
        ask_for_copy(&mut archive);
    }
    let own = own(seen);
    let ended =
        own.iter().filter_map(|it| Some((*it, it.ended()?))).max_by_key(|(it, _)| (it.created, &it.job));
    let is_recorded = |it: &Archiver| archive.last_run.as_ref().is_some_and(|last| last.job == it.job);
    let has_ended = match ended.filter(|(it, _)| !it.is_terminating && !is_recorded(it)) {
        Some((it, ended)) => {
            archive.ended += 1;
            let has_failed = ended.failure.is_some();
            let is_short = ended.at.duration_since(it.created) < SHORT;
            let before = archive.consecutive_failures.filter(|_| is_short).unwrap_or_default();
            archive.consecutive_failures = has_failed.then(|| before.saturating_add(1));
            archive.last_run = Some(RunStatus {
                job: it.job.clone(),
                generation: it.mark.generation,
                scheduled_time: None,
                request: None,
                archive_copy: None,
                retries: 0,
                failure: ended.failure.as_ref().map(|it| it.reason.to_owned()),
                message: ended.failure.as_ref().map(|it| it.message.clone()),
            });
            archive.last_run_time = Some(Time(ended.at));
            if ended.failure.as_ref().is_some_and(|it| needs_copy(it.reason)) && !archive.copy_needed {
                ask_for_copy(&mut archive);
            }
            true
        }
        None => false,
    };
    if let Some(progress) = seen.heard.and_then(|it| it.fresh(seen.now, FRESH)) {
        refresh(&mut archive, progress);
        // The archiver might not have noticed the newest copy yet.
        let newest = recorded.copies.first().map(|copy| copy.revision);
        let is_noticed = newest.is_none_or(|newest| progress.copy_revision.is_some_and(|it| it >= newest));
        if progress.copy_due && is_noticed && !archive.copy_needed {
            ask_for_copy(&mut archive);
        }
    }
    (Some(archive), has_ended)
}

fn ask_for_copy(archive: &mut ArchiveStatus) {
    archive.copies_requested += 1;
    archive.copy_needed = true;
}

fn needs_copy(failure: &str) -> bool {
    [reason::CHAIN_BROKEN, reason::COPY_NEEDED].contains(&failure)
}

/// Numbers change all the time, and a status is not written as often.
fn refresh(archive: &mut ArchiveStatus, progress: &Progress) {
    let before = archive.recovery_point.as_ref().map(|time| time.0);
    let is_due = match (before, progress.confirmed) {
        (Some(before), Some(now)) => now.duration_since(before) >= REFRESH,
        (None, now) => now.is_some(),
        (Some(_), None) => false,
    };
    let is_other =
        (archive.chain_first, archive.copy_revision) != (progress.chain_first, progress.copy_revision);
    if progress.archived_revision.is_some() && (is_due || is_other || archive.archived_revision.is_none()) {
        archive.archived_revision = progress.archived_revision;
        archive.chain_first = progress.chain_first;
        archive.copy_revision = progress.copy_revision;
        archive.recovery_point = progress.confirmed.map(Time).or(archive.recovery_point.take());
    }
}

/// The run for the copy that the archive needs, if it needs one.
pub(super) fn slot(seen: &Seen<'_>, intent: &Intent, recorded: &EtcdBackupStatus) -> Option<Slot> {
    intent.flush_interval_seconds?;
    let archive = recorded.archive.as_ref().filter(|archive| archive.copy_needed)?;
    let number = archive.copies_requested;
    let start = |retries| Slot::Start { occasion: Occasion::Archive(number), retries };
    let Some(run) = archive.last_copy_run.as_ref().filter(|run| run.archive_copy == Some(number)) else {
        return Some(start(0));
    };
    let retries = u32::try_from(run.retries).unwrap_or(u32::MAX);
    let again = start(retries.saturating_add(1));
    if run.generation != generation(seen.backup) {
        return Some(again);
    }
    let failure = status::failure_of(run).unwrap_or_default();
    let pause = match super::is_passing(failure) && retries < MAX_RETRIES {
        true => super::FIRST_RETRY * 4_i32.pow(retries),
        false => COPY_PAUSE,
    };
    let ended = recorded.completion_time.as_ref().map_or(seen.now, |time| time.0);
    let at = ended.saturating_add(pause).unwrap_or(seen.now);
    Some(if at <= seen.now { again } else { Slot::None(Standing::Retries(at)) })
}

/// What follows, and how things stand with the archive.
pub(super) struct Archiving {
    pub writes: Vec<Write>,
    pub fact: Option<Fact>,
}

pub(super) fn decide(seen: &Seen<'_>, intent: Option<&Intent>, recorded: &EtcdBackupStatus) -> Archiving {
    let own = own(seen);
    let ending = |all: &[&Archiver]| -> Vec<Write> {
        let namespace = super::cluster_namespace(seen.backup);
        all.iter().filter(|it| !it.is_terminating).map(|it| it.delete(&namespace)).collect()
    };
    if seen.backup.spec.continuous.is_none() {
        return Archiving { writes: ending(&own), fact: None };
    }
    let (Some(intent), Some(archive)) = (intent, &recorded.archive) else {
        let message = "the spec breaks rules: an archiver that runs stays as it is".to_owned();
        return Archiving {
            writes: Vec::new(),
            fact: Some(fact(Value::Unknown, reason::INVALID_SPEC, message)),
        };
    };
    let cluster = match wanted(seen, intent) {
        Ok(cluster) => cluster,
        Err((reason, message)) => {
            return Archiving { writes: ending(&own), fact: Some(fact(Value::False, reason, message)) };
        }
    };
    let digest = digest(intent, cluster, seen.image);
    let is_lost =
        |it: &Archiver| it.pod_deleted.is_some_and(|since| seen.now.duration_since(since) > ENDS_WITHIN);
    let is_current = |it: &&&Archiver| {
        it.is_active() && !it.is_terminating && !is_lost(it) && it.mark.fits(&digest, &cluster.endpoints)
    };
    let current = own.iter().find(is_current).copied();
    let last = archive.last_run.as_ref().map(|run| run.job.as_str());
    let is_outdated =
        |it: &&&Archiver| Some(**it) != current && (it.is_active() || Some(it.job.as_str()) != last);
    let outdated: Vec<_> = own.iter().filter(is_outdated).copied().collect();
    let mut writes = ending(&outdated);
    let fact = match current {
        Some(archiver) => of_archiver(seen, intent, archive, archiver),
        None => match pending(seen, archive, cluster) {
            Some(fact) => fact,
            None => {
                writes.extend(token(seen.backup, cluster).map(|secret| Write::Token(Box::new(secret))));
                let job = archiver(seen.backup, intent, cluster, archive.ended, seen.image);
                writes.extend(job.map(|job| Write::Create(Box::new(job))));
                match seen.trouble {
                    Some(trouble) => {
                        let message = format!("the archiver cannot be created, retrying: {trouble}");
                        fact(Value::False, reason::STEP_FAILED, message)
                    }
                    None => {
                        let message = "the archiver is being created".to_owned();
                        fact(Value::Unknown, reason::ARCHIVER_STARTING, message)
                    }
                }
            }
        },
    };
    Archiving { writes, fact: Some(fact) }
}

fn own<'a>(seen: &Seen<'a>) -> Vec<&'a Archiver> {
    let uid = seen.backup.uid();
    seen.archivers.iter().filter(|it| Some(&it.mark.uid) == uid.as_ref()).collect()
}

fn fact(value: Value, reason: &'static str, message: String) -> Fact {
    Fact { type_: condition::ARCHIVING, value, reason, message }
}

type Why = (&'static str, String);

/// The cluster, if it has to be archived now.
fn wanted<'a>(seen: &Seen<'a>, intent: &Intent) -> Result<&'a super::Cluster, Why> {
    if awaits_edit(seen.backup) {
        return Err((reason::AWAITING_EDIT, "edit the spec to let it take effect".into()));
    }
    if intent.is_suspended {
        let message = "spec.suspend is true: nothing is archived until it is set to false";
        return Err((reason::SUSPENDED, message.into()));
    }
    usable_cluster(seen).map_err(|unusable| match unusable {
        Unusable::Waits(reason, message) => (reason, message),
        Unusable::NotAllowed => {
            (reason::NAMESPACE_NOT_ALLOWED, "the cluster does not allow it, see condition Stalled".into())
        }
    })
}

/// Why no archiver is created now. None: one is.
fn pending(seen: &Seen<'_>, archive: &ArchiveStatus, cluster: &super::Cluster) -> Option<Fact> {
    let last = archive.last_run.as_ref().filter(|run| run.failure.is_some());
    let failure = last.and_then(|run| run.failure.as_deref()).unwrap_or_default();
    let why = last.and_then(|run| run.message.clone()).unwrap_or_default();
    let word = reason::ALL.iter().find(|it| **it == failure).copied();
    if archive.copy_needed {
        let (word, why) = match word.filter(|word| needs_copy(word)) {
            Some(word) => (word, format!("{why}; ")),
            None => (reason::COPY_NEEDED, String::new()),
        };
        let message = format!(
            "{why}the archive begins after the copy that the operator takes, see condition Reconciling"
        );
        return Some(fact(Value::False, word, message));
    }
    if let Some(at) = next_at(seen, archive, failure).filter(|at| *at > seen.now) {
        let message = format!("{why}; the next archiver starts at {at:.0}");
        return Some(fact(Value::False, word.unwrap_or(reason::RUN_FAILED), message));
    }
    (cluster.serving == 0 || cluster.endpoints.is_empty()).then(|| {
        let message = format!("no member of EtcdCluster {} serves linearizable reads", cluster.names.cluster);
        fact(Value::False, reason::MEMBERS_NOT_SERVING, message)
    })
}

/// An edit starts the next one at once.
fn next_at(seen: &Seen<'_>, archive: &ArchiveStatus, failure: &str) -> Option<Timestamp> {
    let failures = u32::try_from(archive.consecutive_failures?).ok()?;
    let run = archive.last_run.as_ref().filter(|run| run.generation == generation(seen.backup))?;
    let longest = if needs_copy(failure) { LONGEST_PAUSE_WITH_COPY } else { LONGEST_PAUSE };
    let factor = 4_i32.checked_pow(failures.saturating_sub(1)).unwrap_or(i32::MAX);
    let pause = FIRST_PAUSE.checked_mul(factor).unwrap_or(longest).min(longest);
    archive.last_run_time.as_ref().filter(|_| run.failure.is_some())?.0.saturating_add(pause).ok()
}

fn of_archiver(seen: &Seen<'_>, intent: &Intent, archive: &ArchiveStatus, archiver: &Archiver) -> Fact {
    let job = &archiver.job;
    let starting = |why: String| fact(Value::Unknown, reason::ARCHIVER_STARTING, why);
    match &archiver.state {
        ArchiverState::Starting(Some(blocked)) => {
            let (reason, message) = why_blocked(job, blocked);
            return fact(Value::False, reason, message);
        }
        ArchiverState::Starting(None) => return starting(format!("Job {job} starts")),
        ArchiverState::Runs | ArchiverState::Ended(_) => {}
    }
    let Some(heard) = seen.heard else {
        return kept(seen).unwrap_or_else(|| starting(format!("Job {job} has not been asked yet")));
    };
    let Some(progress) = heard.fresh(seen.now, FRESH) else {
        let error = heard.error.as_deref().unwrap_or("it has not responded for a minute");
        let message = format!("Job {job}: {error}; status.archive has what it reported last");
        return fact(Value::Unknown, reason::ARCHIVER_NOT_RESPONDING, message);
    };
    if let Some(trouble) = &progress.trouble {
        return fact(Value::False, super::outcome::word(&trouble.reason), trouble.message.clone());
    }
    let Some(archived) = progress.archived_revision else {
        return starting(format!("Job {job} reads where the archive ends"));
    };
    let interval = intent.flush_interval_seconds.unwrap_or_default();
    let limit = CONFIRMED_WITHIN.max(SignedDuration::from_secs(i64::from(interval) * 3));
    let is_confirmed = progress.confirmed.is_some_and(|at| seen.now.duration_since(at) <= limit);
    if !is_confirmed && seen.now.duration_since(archiver.created) > limit {
        let message = format!(
            "nothing after revision {archived} was confirmed for more than {} s: see kubectl logs job/{job}",
            limit.as_secs()
        );
        return fact(Value::False, reason::ARCHIVE_BEHIND, message);
    }
    if !is_confirmed {
        return kept(seen).unwrap_or_else(|| starting(format!("Job {job} catches up")));
    }
    let mut message = format!(
        "every revision is stored {interval} s after it was written; status.archive has the recovery point"
    );
    if archive.copy_needed {
        message += "; a replay would take more than 10 minutes, so a copy is being taken";
    }
    fact(Value::True, reason::ARCHIVE_CURRENT, message)
}

/// As it was reported before: an operator that has just started has not asked yet.
fn kept(seen: &Seen<'_>) -> Option<Fact> {
    let before = find(&seen.backup.status.as_ref()?.conditions, condition::ARCHIVING)?;
    let reason = *reason::ALL.iter().find(|it| **it == before.reason)?;
    (before.status == "True").then(|| fact(Value::True, reason, before.message.clone()))
}
