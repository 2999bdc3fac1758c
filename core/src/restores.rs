//! Restores: from an EtcdRestore and what was observed to the next request and the status.
//!
//! A restore is a bootstrap with one member. The request that creates the EtcdCluster states that it is restored, so no
//! member of it starts before its volume has the data. A Job makes the data on the volume of the first member; when that is in the status and the Job
//! is gone, the label of the claim says whose data it is, and the cluster starts as after a stop.
//!
//! Data that replaces that of a cluster is made in the same way, beside it (`replace.rs`).

mod begin;
pub mod events;
mod intent;
mod job;
mod mark;
mod outcome;
mod replace;
mod replacement;
mod request;
mod start;
mod status;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{
    EtcdBackup, EtcdCluster, EtcdRestore, EtcdRestoreStatus, RestorePhase, RestoreType, RunStatus,
};
use crate::desired::Desired;
use crate::names::{CLUSTER_UID_LABEL, DATA_VOLUME, FINALIZER, Names, reason, volumes_of_restore};
use crate::observed::Ordinal;
use crate::runs::{AGAIN, FIRST_RETRY, Failed, MAX_RETRIES, is_passing};
use crate::validate::{Problem, validate};
pub use intent::{Choice, Intent, backup_of};
use intent::{Obstacle, final_failure};
pub use mark::{Attempt, Mark};
pub use outcome::{Run, State, Success};
pub use replacement::Replacement;
pub use request::{Write, http, report};

pub struct Seen<'a> {
    pub restore: &'a EtcdRestore,
    /// The one that it names, if that exists.
    pub backup: Option<&'a EtcdBackup>,
    pub cluster: Option<&'a EtcdCluster>,
    /// All of the cluster that have the names of [`volumes_of`], by the ordinal of their member.
    pub claims: &'a BTreeMap<Ordinal, PersistentVolumeClaim>,
    /// The names of claims whose data it has replaced.
    pub replaced: &'a [String],
    /// Of this EtcdRestore.
    pub runs: &'a [Run],
    /// The operator's own image, which has the programs.
    pub image: &'a str,
    /// The DNS domain of new clusters.
    pub domain: &'a str,
    /// Why something could not be created the last time.
    pub trouble: Option<&'a str>,
    pub now: Timestamp,
}

/// What to send, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// None: the status that is there says the same.
    pub status: Option<EtcdRestoreStatus>,
    pub writes: Vec<Write>,
    /// When to decide again if nothing changes.
    pub again_at: Option<Timestamp>,
}

/// How things stand with an EtcdRestore.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Standing {
    Invalid(Vec<Problem>),
    /// For a reason of [`reason`], until a user changes something.
    Blocked(&'static str, String),
    /// A version that restored nothing accepted it.
    AwaitsEdit,
    /// A reason of [`reason`], and what is awaited.
    Waits(&'static str, String),
    /// What happens now.
    Works(String),
    Retries(Timestamp),
    /// For good.
    Failed(Failed),
    Completed,
}

/// What follows from an observation.
struct Next {
    /// With what has become certain.
    recorded: EtcdRestoreStatus,
    standing: Standing,
    writes: Vec<Write>,
}

impl Next {
    fn new(recorded: EtcdRestoreStatus, standing: Standing) -> Self {
        Self { recorded, standing, writes: Vec::new() }
    }

    fn working(recorded: &EtcdRestoreStatus, doing: &str, writes: Vec<Write>) -> Self {
        Self { recorded: recorded.clone(), standing: Standing::Works(doing.into()), writes }
    }

    fn failed(recorded: &EtcdRestoreStatus, reason: &'static str, message: &str) -> Self {
        Self::new(recorded.clone(), Standing::Failed(Failed::new(reason, message)))
    }
}

pub fn decide(seen: &Seen<'_>) -> Decision {
    let nothing = Decision { status: None, writes: Vec::new(), again_at: None };
    // Kubernetes deletes its Jobs.
    if seen.restore.metadata.deletion_timestamp.is_some() {
        return nothing;
    }
    let before = seen.restore.status.clone().unwrap_or_default();
    if is_over(&before) {
        let mut writes = end_jobs(seen);
        writes.extend(replace::take_back(seen, &before));
        return Decision { writes, ..nothing };
    }
    let Next { recorded, standing, mut writes } = match (&before.replaced, &before.incarnation) {
        (Some(replaced), _) => replace::proceed(seen, &before, replaced),
        (None, Some(uid)) => proceed(seen, &before, uid),
        (None, None) => begin::begin(seen, &before),
    };
    let is_news = recorded != before || matches!(standing, Standing::Failed(_) | Standing::Completed);
    // What the next steps rely on has to be in the status first.
    if is_news {
        writes.clear();
    }
    let standing = match seen.trouble.filter(|_| !writes.is_empty()) {
        Some(trouble) => {
            Standing::Waits(reason::STEP_FAILED, format!("the last request failed, retrying: {trouble}"))
        }
        None => standing,
    };
    let status = status::of(seen, recorded, &standing);
    let again_at = match &standing {
        Standing::Waits(..) | Standing::Works(_) => seen.now.checked_add(AGAIN).ok(),
        Standing::Retries(at) => Some(*at),
        // The object that blocks it can be in another namespace.
        Standing::Blocked(..) => seen.now.checked_add(AGAIN).ok(),
        Standing::Invalid(_) | Standing::AwaitsEdit | Standing::Failed(_) | Standing::Completed => None,
    };
    Decision { status: (status != before).then_some(status), writes, again_at }
}

/// It is never carried out again.
fn is_over(status: &EtcdRestoreStatus) -> bool {
    status.completion_time.is_some() || status.phase == Some(RestorePhase::Completed)
}

/// The name of the EtcdCluster that it is about. Whose data it replaces does not change once consent is accepted.
pub fn cluster_of(restore: &EtcdRestore) -> &str {
    let status = restore.status.as_ref().filter(|status| status.replaced.is_some());
    status.and_then(|status| status.restored_cluster.as_deref()).unwrap_or(&restore.spec.cluster_name)
}

/// What the volumes are called on which it makes data.
pub fn volumes_of(restore: &EtcdRestore) -> String {
    let status = restore.status.as_ref();
    let replaces = match status.filter(|status| status.incarnation.is_some()) {
        Some(status) => status.replaced.is_some(),
        None => restore.spec.restore_type == Some(RestoreType::Replace),
    };
    match restore.uid().filter(|_| replaces) {
        Some(uid) => volumes_of_restore(&uid),
        None => DATA_VOLUME.into(),
    }
}

/// The cluster is there, and waits for its data.
fn proceed(seen: &Seen<'_>, before: &EtcdRestoreStatus, uid: &str) -> Next {
    let name = before.restored_cluster.clone().unwrap_or_default();
    if seen.restore.spec.cluster_name != name {
        let message =
            format!("clusterName was changed after EtcdCluster {name} was created for this restore");
        return Next::failed(before, reason::INVALID_SPEC, &message);
    }
    let own = seen.cluster.filter(|cluster| {
        cluster.uid().as_deref() == Some(uid) && cluster.metadata.deletion_timestamp.is_none()
    });
    let Some(cluster) = own.filter(|cluster| is_created_by(seen.restore, cluster)) else {
        let message = format!(
            "EtcdCluster {name} was deleted, or lost its annotation, before its data was restored: create another EtcdRestore"
        );
        return Next::failed(before, reason::CLUSTER_GONE, &message);
    };
    match &before.restored_volume_uid {
        Some(volume) => start::start(seen, before, cluster, volume),
        None => prepare(seen, before, cluster),
    }
}

/// Until the volume has the data.
fn prepare(seen: &Seen<'_>, before: &EtcdRestoreStatus, cluster: &EtcdCluster) -> Next {
    let name = cluster.name_any();
    let has_data = cluster.status.as_ref().is_some_and(|status| status.cluster_id.is_some());
    if has_data && before.replaced.is_none() {
        let message = format!(
            "EtcdCluster {name} bootstrapped without the copy: delete it with its volumes, and create another EtcdRestore"
        );
        return Next::failed(before, reason::CLUSTER_EXISTS, &message);
    }
    if let Some(run) = seen.runs.iter().find(|run| run.is_active()) {
        return Next::new(before.clone(), status::of_attempt(run));
    }
    let is_recorded = |run: &&Run| before.last_run.as_ref().is_some_and(|it| it.job == run.job);
    if let Some(run) = seen.runs.iter().find(|run| !is_recorded(run)) {
        return ended(seen, before, run);
    }
    if !seen.runs.is_empty() {
        return Next::working(before, "the last attempt is being removed", end_jobs(seen));
    }
    if let Some(standing) = before.last_run.as_ref().and_then(|run| after_failure(seen, before, run)) {
        return Next::new(before.clone(), standing);
    }
    attempt(seen, before, cluster)
}

/// The outcome of an attempt, which counts once.
fn ended(seen: &Seen<'_>, before: &EtcdRestoreStatus, run: &Run) -> Next {
    let State::Ended(outcome) = &run.state else {
        return Next::new(before.clone(), status::of_attempt(run));
    };
    let failure = outcome.as_ref().err();
    let last_run = RunStatus {
        job: run.job.clone(),
        generation: run.attempt.generation,
        scheduled_time: None,
        request: None,
        archive_copy: None,
        retries: i32::try_from(run.attempt.retries).unwrap_or(i32::MAX),
        failure: failure.map(|it| it.reason.to_owned()),
        message: failure.map(|it| it.message.clone()),
    };
    let recorded =
        EtcdRestoreStatus { last_run: Some(last_run), last_run_time: Some(Time(seen.now)), ..before.clone() };
    let recorded = match outcome {
        Ok(Success { restored, copy, replayed }) => EtcdRestoreStatus {
            restored_volume_uid: Some(run.attempt.claim_uid.clone()),
            restored_revision: Some(restored.revision),
            served_revision: Some(restored.served_revision),
            restored_size: i64::try_from(restored.bytes).ok(),
            replayed_revisions: *replayed,
            replaced: replace::with_made(before.replaced.clone(), run),
            copy_name: copy.as_ref().map(|copy| copy.name.to_string()).or(before.copy_name.clone()),
            ..recorded
        },
        Err(_) => recorded,
    };
    Next::new(recorded, Standing::Works("an attempt has ended".into()))
}

/// A passing failure is repeated; any other is the end. None: the next attempt is due.
fn after_failure(seen: &Seen<'_>, before: &EtcdRestoreStatus, run: &RunStatus) -> Option<Standing> {
    let failure = run.failure.as_deref()?;
    let retries = u32::try_from(run.retries).unwrap_or(u32::MAX);
    if !is_passing(failure) || retries >= MAX_RETRIES {
        let word = reason::ALL.iter().find(|it| **it == failure).copied().unwrap_or(reason::RUN_FAILED);
        let way_out = match before.replaced {
            Some(_) => "is as it was: create another EtcdRestore",
            None => "has no data: delete it with its volumes, and create another EtcdRestore",
        };
        let message = format!(
            "{}; EtcdCluster {} {way_out}",
            run.message.clone().unwrap_or_default(),
            before.restored_cluster.clone().unwrap_or_default()
        );
        return Some(Standing::Failed(Failed { reason: word, message }));
    }
    let ended = before.last_run_time.as_ref().map_or(seen.now, |time| time.0);
    let at = ended.saturating_add(FIRST_RETRY * 4_i32.pow(retries)).unwrap_or(seen.now);
    (at > seen.now).then_some(Standing::Retries(at))
}

/// Everything that a Job needs, one after the other, and then the Job.
fn attempt(seen: &Seen<'_>, before: &EtcdRestoreStatus, cluster: &EtcdCluster) -> Next {
    let name = cluster.name_any();
    let wait = |reason, message: String| Next::new(before.clone(), Standing::Waits(reason, message));
    let intent = match Intent::of(seen.restore, seen.backup) {
        Ok(intent) => intent,
        Err(Obstacle::Waits(reason, message)) => return wait(reason, message),
        Err(obstacle) => return Next::new(before.clone(), Standing::Failed(final_failure(obstacle))),
    };
    let Ok(of_cluster) = validate(cluster) else {
        return wait(
            reason::INVALID_SPEC,
            format!("the spec of EtcdCluster {name} breaks rules: see its status"),
        );
    };
    if of_cluster.paused {
        return wait(reason::PAUSED, format!("EtcdCluster {name} is paused: set its spec.paused to false"));
    }
    // Its worker keeps it from being deleted without a trace, and records the domain that URLs of members have.
    let has_domain = cluster.status.as_ref().is_some_and(|status| status.domain.is_some());
    if !has_domain || !cluster.finalizers().iter().any(|it| it == FINALIZER) {
        return Next::working(before, &format!("EtcdCluster {name} is being prepared"), Vec::new());
    }
    let names = Names::of(cluster, seen.domain).with_volumes(&volumes_of(seen.restore));
    let desired = Desired { intent: &of_cluster, names: &names, agent_image: seen.image, operator: None };
    let replaces = before.replaced.is_some();
    let plan = job::Plan { restore: seen.restore, intent: &intent, desired: &desired, replaces };
    match seen.claims.get(&Ordinal(0)) {
        None => {
            let create = vec![Write::CreateClaim(Box::new(plan.claim()))];
            Next::working(before, &format!("creating volume {}", names.claim(Ordinal(0))), create)
        }
        Some(claim) if claim.metadata.deletion_timestamp.is_some() || !is_of(claim, cluster) => {
            let message = format!("claim {} is being deleted, or is of another cluster", claim.name_any());
            wait(reason::VOLUMES_TERMINATING, message)
        }
        Some(claim) => {
            let retries = before.last_run.as_ref().map_or(0, |run| run.retries.saturating_add(1));
            let attempt = Attempt {
                claim_uid: claim.uid().unwrap_or_default(),
                retries: u32::try_from(retries).unwrap_or(u32::MAX),
                generation: generation(seen.restore),
                made: plan.made(),
            };
            let mark = Mark { attempt: Some(attempt), ..Mark::of(seen.restore) };
            let create = vec![Write::CreateJob(Box::new(plan.job(&mark)))];
            Next::working(before, "creating the Job that restores the copy", create)
        }
    }
}

fn is_of(claim: &PersistentVolumeClaim, cluster: &EtcdCluster) -> bool {
    claim.labels().get(CLUSTER_UID_LABEL) == cluster.uid().as_ref()
}

/// Their results are in the status; while their pods exist, the volume cannot be deleted.
fn end_jobs(seen: &Seen<'_>) -> Vec<Write> {
    let ended = seen.runs.iter().filter(|run| !run.is_terminating);
    ended.map(|run| Write::delete(seen.restore, run)).collect()
}

fn is_created_by(restore: &EtcdRestore, cluster: &EtcdCluster) -> bool {
    Mark::on(cluster).is_some_and(|mark| mark.is_of(restore))
}

fn generation(restore: &EtcdRestore) -> i64 {
    restore.metadata.generation.unwrap_or_default()
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod replacing;
#[cfg(test)]
mod tests;
