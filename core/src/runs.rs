//! Runs of backups: from an EtcdBackup and what was observed to the next request and the status. One run is one Job.
//!
//! A Job has a name that follows from what it is for, so two operators that decide the same create one Job. Its outcome is
//! written into the status before anything else comes of it, so it counts once.

mod archive;
mod due;
pub mod events;
mod intent;
mod job;
mod outcome;
mod request;
mod requested;
mod seen;
mod status;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use crate::api::{EtcdBackup, EtcdBackupStatus, RunStatus};
use crate::names::reason;
use crate::status::find;
use crate::validate::Problem;
use archive::Archiving;
pub use archive::{ArchiveMark, Archiver, ArchiverState, Heard, TOKEN_KEY, token_name};
pub use intent::{Intent, cluster_namespace};
pub use job::{Mark, RUN_DEADLINE};
pub(crate) use job::{
    claim_volume, environment, mount, resources, secret_volume, store_mounts, store_volumes,
};
pub use outcome::{Ended, Failed, Run, State, is_passing};
pub(crate) use outcome::{Progress, containers, done, failure, terminated};
pub use request::{Write, http, report};
use requested::slot as requested_slot;
pub use requested::{requested, takes_copies};
pub(crate) use seen::allowed;
pub use seen::{Cluster, PodRules, may_refer};
pub(crate) use status::why_blocked;

/// How often an attempt that failed for a passing reason is repeated.
pub(crate) const MAX_RETRIES: u32 = 3;
/// Before the first repetition; four times as long before each further one.
pub(crate) const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(30);
/// Caches are read again while something outside of them is awaited. It costs no request.
pub(crate) const AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// Finished Jobs that stay, for their logs.
const KEPT_JOBS: usize = 3;

pub struct Seen<'a> {
    pub backup: &'a EtcdBackup,
    pub cluster: Option<&'a Cluster>,
    /// Of all EtcdBackups of the cluster.
    pub runs: &'a [Run],
    /// Of all EtcdBackups of the cluster.
    pub archivers: &'a [Archiver],
    /// What the archiver of this EtcdBackup that runs has answered. None: it has not been asked.
    pub heard: Option<&'a Heard>,
    /// The operator's own image, which has the program.
    pub image: &'a str,
    /// Why the Job could not be created the last time.
    pub trouble: Option<&'a str>,
    pub now: Timestamp,
}

/// What to send, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// None: the status that is there says the same.
    pub status: Option<EtcdBackupStatus>,
    pub writes: Vec<Write>,
    /// When to decide again if nothing changes.
    pub again_at: Option<Timestamp>,
}

/// How things stand with an EtcdBackup.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Standing {
    Invalid(Vec<Problem>),
    /// The cluster does not allow backups from this namespace.
    NotAllowed,
    /// A version that took no backups accepted it.
    AwaitsEdit,
    Suspended,
    /// A reason of [`reason`], and what is awaited.
    Waits(&'static str, String),
    /// A Job is about to be created.
    Starts,
    Runs,
    Retries(Timestamp),
    /// Until the next time of the schedule.
    Rests,
    /// It took its one copy.
    Done,
    /// It failed, and nothing more happens without an edit.
    Failed,
}

pub fn decide(seen: &Seen<'_>) -> Decision {
    // Its Jobs are deleted before or after it, and none takes their place.
    if seen.backup.metadata.deletion_timestamp.is_some() {
        return Decision { status: None, writes: Vec::new(), again_at: None };
    }
    let before = seen.backup.status.clone().unwrap_or_default();
    let mut own: Vec<&Run> =
        seen.runs.iter().filter(|run| Some(&run.mark.uid) == seen.backup.uid().as_ref()).collect();
    own.sort_by_key(|run| (run.created, &run.job));
    let last = own.last().copied();
    let is_recorded = |run: &Run| before.last_run.as_ref().is_some_and(|it| it.job == run.job);
    let ended = last.and_then(|run| Some((run, run.ended()?))).filter(|(run, _)| !is_recorded(run));
    let mut recorded = ended.map_or(before.clone(), |(run, ended)| status::record(&before, run, ended));
    let active = last.filter(|run| run.is_active());
    let intent = Intent::of(seen.backup);
    let (archive, archiver_ended) = archive::record(seen, intent.as_ref().ok(), &recorded);
    recorded.archive = archive;
    let (standing, mark) = match (active, &intent) {
        (Some(run), _) => (starting(run), None),
        (None, Ok(intent)) => next(seen, intent, &recorded, last),
        (None, Err(problems)) => (Standing::Invalid(problems.clone()), None),
    };
    // A Job that was just created reports by itself.
    let (starts, is_silent) = (standing == Standing::Starts, ended.is_none() && seen.trouble.is_none());
    let reported = match seen.trouble.filter(|_| starts) {
        Some(trouble) => {
            Standing::Waits(reason::STEP_FAILED, format!("the Job cannot be created, retrying: {trouble}"))
        }
        None => standing.clone(),
    };
    let Archiving { writes: of_archive, fact } = archive::decide(seen, intent.as_ref().ok(), &recorded);
    let status = status::of(seen, intent.as_ref().ok(), recorded, active, &reported, fact);
    let is_news = status != before && !(starts && is_silent && !archiver_ended);
    let mut writes = Vec::new();
    // What the next steps rely on has to be in the status first.
    if ended.is_none() && !archiver_ended {
        writes.extend(outdated(seen, active, &own));
        let created = intent.as_ref().ok().zip(mark).zip(seen.cluster);
        let created = created
            .and_then(|((intent, mark), cluster)| job::job(seen.backup, intent, cluster, &mark, seen.image));
        writes.extend(created.map(|job| Write::Create(Box::new(job))));
        writes.extend(of_archive);
    }
    let again_at = again_at(seen, intent.as_ref().ok(), &standing);
    Decision { status: is_news.then_some(status), writes, again_at }
}

/// Of a Job that has not ended.
fn starting(run: &Run) -> Standing {
    match &run.state {
        State::Starting(Some(blocked)) => {
            let (reason, message) = why_blocked(&run.job, blocked);
            Standing::Waits(reason, message)
        }
        State::Starting(None) | State::Working | State::Ended(_) => Standing::Runs,
    }
}

/// Without a Job that runs: what comes next, and the Job to create for it.
fn next(
    seen: &Seen<'_>,
    intent: &Intent,
    status: &EtcdBackupStatus,
    last: Option<&Run>,
) -> (Standing, Option<Mark>) {
    if awaits_edit(seen.backup) {
        return (Standing::AwaitsEdit, None);
    }
    let (occasion, retries) = match slot(seen, intent, status, last) {
        Slot::None(standing @ (Standing::Done | Standing::Failed)) => return (standing, None),
        _ if intent.is_suspended => return (Standing::Suspended, None),
        Slot::None(standing) => return (standing, None),
        Slot::Start { occasion, retries } => (occasion, retries),
    };
    let (scheduled_time, request, archive_copy) = match occasion {
        Occasion::Demand => (None, None, None),
        Occasion::Schedule(time) => (Some(time), None, None),
        Occasion::Request(token) => (None, Some(token), None),
        Occasion::Archive(number) => (None, None, Some(number)),
    };
    let cluster = match ready_cluster(seen) {
        Ok(cluster) => cluster,
        Err(standing) => return (standing, None),
    };
    let mark = Mark {
        namespace: seen.backup.namespace().unwrap_or_default(),
        name: seen.backup.name_any(),
        uid: seen.backup.uid().unwrap_or_default(),
        generation: generation(seen.backup),
        scheduled_time,
        request,
        archive_copy,
        retries,
        location: format!(
            "{}/{}",
            intent.location(),
            cluster.id.map(|id| id.to_string()).unwrap_or_default()
        ),
    };
    (Standing::Starts, Some(mark))
}

enum Slot {
    Start { occasion: Occasion, retries: u32 },
    None(Standing),
}

/// What a run is for.
enum Occasion {
    /// The one copy of an EtcdBackup without a schedule.
    Demand,
    Schedule(Timestamp),
    /// The cluster waits for it, with this token.
    Request(String),
    /// The continuous archive needs it.
    Archive(i64),
}

/// What a run is due for, if anything.
fn slot(seen: &Seen<'_>, intent: &Intent, status: &EtcdBackupStatus, last: Option<&Run>) -> Slot {
    if let Some(slot @ (Slot::Start { .. } | Slot::None(Standing::Retries(_)))) =
        requested_slot(seen, intent, status)
    {
        return slot;
    }
    let previous = status.last_run.as_ref();
    if let Some(schedule) = &intent.schedule {
        let created = seen.backup.metadata.creation_timestamp.as_ref().map_or(seen.now, |it| it.0);
        let recorded = status.last_schedule_time.as_ref().map(|time| time.0);
        let started = last.and_then(|run| run.mark.scheduled_time);
        let since = recorded.max(started).unwrap_or(created);
        if let Some(time) = due::due(schedule, since, seen.now) {
            return Slot::Start { occasion: Occasion::Schedule(time), retries: 0 };
        }
    }
    if let Some(slot) = archive::slot(seen, intent, status) {
        return slot;
    }
    if intent.schedule.is_some() {
        let scheduled = previous.and_then(|run| Some((run, run.scheduled_time.as_ref()?.0)));
        return match scheduled {
            Some((run, time)) => repeated(seen, status, run, Occasion::Schedule(time), Standing::Rests),
            None => Slot::None(Standing::Rests),
        };
    }
    match previous {
        _ if intent.flush_interval_seconds.is_some() => Slot::None(Standing::Rests),
        Some(run) => repeated(seen, status, run, Occasion::Demand, Standing::Failed),
        None => Slot::Start { occasion: Occasion::Demand, retries: 0 },
    }
}

/// After an attempt has ended: a passing failure is retried, an edit retries any failure, and a success is never repeated.
fn repeated(
    seen: &Seen<'_>,
    status: &EtcdBackupStatus,
    run: &RunStatus,
    occasion: Occasion,
    given_up: Standing,
) -> Slot {
    let Some(failure) = status::failure_of(run) else {
        let is_scheduled = given_up == Standing::Rests;
        return Slot::None(if is_scheduled { Standing::Rests } else { Standing::Done });
    };
    let retries = u32::try_from(run.retries).unwrap_or(u32::MAX);
    let again = Slot::Start { occasion, retries: retries.saturating_add(1) };
    if run.generation != generation(seen.backup) {
        return again;
    }
    if !is_passing(failure) || retries >= MAX_RETRIES {
        return Slot::None(given_up);
    }
    let ended = status.completion_time.as_ref().map_or(seen.now, |time| time.0);
    let at = ended.saturating_add(FIRST_RETRY * 4_i32.pow(retries)).unwrap_or(seen.now);
    if at <= seen.now { again } else { Slot::None(Standing::Retries(at)) }
}

/// Why an EtcdBackup can do nothing with its cluster.
enum Unusable {
    NotAllowed,
    /// A reason of [`reason`], and what is awaited.
    Waits(&'static str, String),
}

impl From<Unusable> for Standing {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::NotAllowed => Self::NotAllowed,
            Unusable::Waits(reason, message) => Self::Waits(reason, message),
        }
    }
}

/// The cluster, if it has data that this EtcdBackup can use.
fn usable_cluster<'a>(seen: &Seen<'a>) -> Result<&'a Cluster, Unusable> {
    let (namespace, name) = (cluster_namespace(seen.backup), &seen.backup.spec.cluster_name);
    let wait = |reason, message: String| Err(Unusable::Waits(reason, message));
    let Some(cluster) = seen.cluster else {
        return wait(reason::CLUSTER_NOT_FOUND, format!("EtcdCluster {namespace}/{name} does not exist"));
    };
    let own = seen.backup.namespace().unwrap_or_default();
    if namespace != own && !cluster.allowed.contains(&own) {
        return Err(Unusable::NotAllowed);
    }
    if cluster.is_deleting {
        return wait(reason::DELETING, format!("EtcdCluster {name} is being deleted"));
    }
    if cluster.id.is_none() {
        return wait(reason::NOT_BOOTSTRAPPED, format!("EtcdCluster {name} has not bootstrapped yet"));
    }
    if cluster.is_stopped {
        return wait(reason::STOPPED, format!("EtcdCluster {name} is stopped: set its spec.size above 0"));
    }
    Ok(cluster)
}

/// The cluster, if a copy of it can be taken now.
fn ready_cluster<'a>(seen: &Seen<'a>) -> Result<&'a Cluster, Standing> {
    let cluster = usable_cluster(seen)?;
    let name = &cluster.names.cluster;
    let wait = |reason, message: String| Err(Standing::Waits(reason, message));
    if cluster.serving == 0 || cluster.endpoints.is_empty() {
        return wait(
            reason::MEMBERS_NOT_SERVING,
            format!("no member of EtcdCluster {name} serves linearizable reads"),
        );
    }
    match seen.runs.iter().find(|run| run.is_active()) {
        Some(run) => {
            let message = format!("Job {} takes a copy of the same cluster", run.job);
            wait(reason::OTHER_BACKUP_RUNNING, message)
        }
        None => Ok(cluster),
    }
}

/// Jobs that are not needed any more: one that could not start before its EtcdBackup was edited, and the oldest that ended.
fn outdated(seen: &Seen<'_>, active: Option<&Run>, own: &[&Run]) -> Vec<Write> {
    let is_blocked = |run: &&Run| matches!(run.state, State::Starting(Some(_)));
    let edited = active.filter(|run| is_blocked(run) && run.mark.generation != generation(seen.backup));
    let ended: Vec<_> = own.iter().filter(|run| !run.is_active()).collect();
    let oldest = ended.iter().take(ended.len().saturating_sub(KEPT_JOBS)).map(|run| **run);
    let delete = edited.into_iter().chain(oldest).filter(|run| !run.is_terminating);
    delete.map(|run| Write::delete(&cluster_namespace(seen.backup), run)).collect()
}

fn again_at(seen: &Seen<'_>, intent: Option<&Intent>, standing: &Standing) -> Option<Timestamp> {
    let schedule = intent.and_then(|intent| intent.schedule.as_ref());
    let scheduled = schedule.and_then(|schedule| schedule.next_after(seen.now));
    let other = match standing {
        Standing::Waits(..) | Standing::NotAllowed | Standing::Starts | Standing::Runs => {
            seen.now.checked_add(AGAIN).ok()
        }
        Standing::Retries(at) => Some(*at),
        Standing::Invalid(_)
        | Standing::AwaitsEdit
        | Standing::Suspended
        | Standing::Rests
        | Standing::Done
        | Standing::Failed => None,
    };
    let follows = intent.is_some_and(|intent| intent.flush_interval_seconds.is_some());
    let archive = seen.now.checked_add(AGAIN).ok().filter(|_| follows);
    [scheduled, other, archive].into_iter().flatten().min()
}

/// Versions that took no backups marked every object, and what had no effect takes effect with an edit only.
fn awaits_edit(backup: &EtcdBackup) -> bool {
    let conditions = backup.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let stalled = find(conditions, crate::names::condition::STALLED);
    stalled.is_some_and(|it| {
        [reason::NOT_IMPLEMENTED, reason::AWAITING_EDIT].contains(&it.reason.as_str())
            && it.observed_generation == backup.metadata.generation
    })
}

fn generation(backup: &EtcdBackup) -> i64 {
    backup.metadata.generation.unwrap_or_default()
}

/// Of Jobs that are for one EtcdBackup, those that are for a previous one of its name. Kubernetes deletes Jobs only with an
/// EtcdBackup of their own namespace.
pub fn orphans<'a>(jobs: impl Iterator<Item = &'a Job>, uid: Option<&str>) -> Vec<Write> {
    let gone = jobs.filter(|job| {
        let of_run = Mark::on(*job).map(|mark| mark.uid);
        let its = of_run.or_else(|| ArchiveMark::on(*job).map(|mark| mark.uid));
        its.is_some_and(|its| uid != Some(&its))
    });
    gone.filter_map(|job| {
        let (namespace, name, uid) = (job.namespace()?, job.name_any(), job.uid()?);
        job.metadata.deletion_timestamp.is_none().then_some(Write::Delete { namespace, name, uid })
    })
    .collect()
}

#[cfg(test)]
mod tests;
