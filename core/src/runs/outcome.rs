//! What a Job and its pod report about a run.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use kube::ResourceExt;

use super::job::{Mark, PRUNE, TAKE};
use crate::backup::Word;
use crate::backup::layout::CopyName;
use crate::backup::report::{Done, Outcome, Reason, Report, Summary};
use crate::names::reason;
use crate::observe::blocked;
use crate::observed::Blocked;

/// The watches of Jobs and of pods are not in step, so the end of a Job can be seen before that of its containers.
const CONTAINERS_LAG: SignedDuration = SignedDuration::from_secs(30);
const OUT_OF_MEMORY: &str = "OOMKilled";
const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// Messages are shown in a status.
const LONGEST: usize = 1000;

/// A Job of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub job: String,
    /// Of the Job.
    pub uid: String,
    pub mark: Mark,
    pub created: Timestamp,
    pub is_terminating: bool,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// No container has started; what blocks them, if anything does.
    Starting(Option<Blocked>),
    Working,
    Ended(Box<Ended>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub at: Timestamp,
    pub copy: Option<Summary>,
    /// What the retention deleted.
    pub deleted: Vec<CopyName>,
    /// None: all of it succeeded.
    pub failure: Option<Failed>,
}

/// A reason of [`reason`], and the cause with the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub reason: &'static str,
    pub message: String,
}

impl Failed {
    pub(crate) fn new(reason: &'static str, message: &str) -> Self {
        let end = message.floor_char_boundary(LONGEST);
        Self { reason, message: message[..end].to_owned() }
    }
}

/// Whether the same can succeed a moment later, without anybody changing anything.
pub fn is_passing(failure: &str) -> bool {
    [reason::STORE_UNREACHABLE, reason::ETCD_UNAVAILABLE, reason::INTERRUPTED, reason::RUN_LOST]
        .contains(&failure)
}

impl Run {
    /// None for a Job that is not ours.
    pub fn of(job: &Job, pod: Option<&Pod>, now: Timestamp) -> Option<Self> {
        let created = job.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
        Some(Self {
            job: job.name_any(),
            uid: job.uid()?,
            mark: Mark::on(job)?,
            created,
            is_terminating: job.metadata.deletion_timestamp.is_some(),
            state: state(job, pod, created, now),
        })
    }

    pub fn is_active(&self) -> bool {
        !matches!(self.state, State::Ended(_))
    }

    pub fn ended(&self) -> Option<&Ended> {
        match &self.state {
            State::Ended(ended) => Some(ended),
            State::Starting(_) | State::Working => None,
        }
    }
}

fn state(job: &Job, pod: Option<&Pod>, created: Timestamp, now: Timestamp) -> State {
    match Progress::of(job, pod, created, now) {
        Progress::Starting(blocked) => State::Starting(blocked),
        Progress::Working => State::Working,
        Progress::Over { at, failed } => State::Ended(Box::new(ended(at, pod, failed))),
    }
}

/// How far any Job of the operator is.
pub(crate) enum Progress<'a> {
    Starting(Option<Blocked>),
    Working,
    Over { at: Timestamp, failed: Option<&'a JobCondition> },
}

impl<'a> Progress<'a> {
    pub(crate) fn of(job: &'a Job, pod: Option<&Pod>, created: Timestamp, now: Timestamp) -> Self {
        let is = |type_: &str| condition(job, type_);
        let (complete, failed) = (is("Complete"), is("Failed"));
        let Some(end) = complete.or(failed) else {
            return match pod {
                Some(pod) if has_started(pod) => Self::Working,
                Some(pod) => Self::Starting(blocked(pod, now)),
                None if now.duration_since(created) > CONTAINERS_LAG => {
                    Self::Starting(Some(Blocked::SlowCreation))
                }
                None => Self::Starting(None),
            };
        };
        let at = end.last_transition_time.as_ref().map_or(now, |time| time.0);
        let lags = pod.is_some_and(|pod| !is_over(pod)) && now.duration_since(at) < CONTAINERS_LAG;
        if lags { Self::Working } else { Self::Over { at, failed } }
    }
}

fn ended(at: Timestamp, pod: Option<&Pod>, failed: Option<&JobCondition>) -> Ended {
    let copy = match done(pod, TAKE) {
        Some(Done::Take { copy }) => Some(copy),
        _ => None,
    };
    let deleted = match done(pod, PRUNE) {
        Some(Done::Prune { deleted, .. }) => deleted,
        _ => Vec::new(),
    };
    let failure = failed.map(|failed| {
        let failure = failure(pod, failed);
        // The copy is stored and verified: only the containers after it can have failed.
        let reason = if copy.is_some() { reason::RETENTION_FAILED } else { failure.reason };
        Failed { reason, ..failure }
    });
    Ended { at, copy, deleted, failure }
}

fn condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == type_ && it.status == "True")
}

pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    let both = status.flat_map(|it| [&it.init_container_statuses, &it.container_statuses]);
    both.flatten().flatten()
}

fn has_started(pod: &Pod) -> bool {
    let states = containers(pod).filter_map(|it| it.state.as_ref());
    states.into_iter().any(|state| state.running.is_some() || state.terminated.is_some())
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub(crate) fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

fn report(ended: &ContainerStateTerminated) -> Option<Report> {
    serde_json::from_str(ended.message.as_deref()?.trim()).ok()
}

pub(crate) fn done(pod: Option<&Pod>, verb: &str) -> Option<Done> {
    let container = containers(pod?).find(|it| it.name == verb)?;
    match report(terminated(container)?)?.outcome {
        Outcome::Succeeded(done) => Some(done),
        Outcome::Failed(_) => None,
    }
}

pub(crate) fn failure(pod: Option<&Pod>, job: &JobCondition) -> Failed {
    let message = job.message.as_deref().unwrap_or_default();
    if job.reason.as_deref() == Some(DEADLINE_EXCEEDED) {
        return Failed::new(
            reason::RUN_TIMED_OUT,
            "the run did not end within 6 hours and was terminated: check the log of its pod and the store",
        );
    }
    let Some(pod) = pod else {
        return Failed::new(reason::RUN_LOST, "the pod of the run was deleted before it ended");
    };
    // A node that ends a pod gives the pod a reason; a program that exits gives it none.
    let status = pod.status.clone().unwrap_or_default();
    if let Some(why) = status.reason {
        let message =
            format!("the node ended the pod of the run: {why}: {}", status.message.unwrap_or_default());
        return Failed::new(reason::RUN_LOST, &message);
    }
    let mut ended = containers(pod).filter_map(|it| Some((it.name.as_str(), terminated(it)?)));
    match ended.find(|(_, ended)| ended.exit_code != 0) {
        Some((verb, ended)) => exited(verb, ended),
        None => Failed::new(reason::RUN_LOST, &format!("the pod of the run was lost: {message}")),
    }
}

fn exited(verb: &str, ended: &ContainerStateTerminated) -> Failed {
    if ended.reason.as_deref() == Some(OUT_OF_MEMORY) {
        let message = format!("the container {verb} needed more memory than its limit: report this as a bug");
        return Failed::new(reason::OUT_OF_MEMORY, &message);
    }
    if let Some(Outcome::Failed(failure)) = report(ended).map(|report| report.outcome) {
        let message = format!("{verb}: {}", failure.message);
        return Failed::new(word(&failure.reason), &message);
    }
    // Killed, and not by the program's own handling of signals.
    if ended.exit_code > 128 {
        return Failed::new(reason::RUN_LOST, &format!("the container {verb} was killed"));
    }
    let last_words = ended.message.as_deref().unwrap_or_default().trim();
    Failed::new(
        reason::RUN_FAILED,
        &format!("the container {verb} exited with {}: {last_words}", ended.exit_code),
    )
}

/// As conditions name it.
pub(super) fn word(reason: &Word<Reason>) -> &'static str {
    match reason.known() {
        Some(Reason::InvalidConfiguration) => reason::INVALID_CONFIGURATION,
        Some(Reason::StoreUnreachable) => reason::STORE_UNREACHABLE,
        Some(Reason::StoreDenied) => reason::STORE_DENIED,
        Some(Reason::StoreRejected) => reason::STORE_REJECTED,
        Some(Reason::EtcdUnavailable) => reason::ETCD_UNAVAILABLE,
        Some(Reason::CopyDamaged) => reason::COPY_DAMAGED,
        Some(Reason::Interrupted) => reason::INTERRUPTED,
        Some(Reason::CopyNotFound) => reason::COPY_NOT_FOUND,
        Some(Reason::CopyUnusable) => reason::COPY_UNUSABLE,
        Some(Reason::OutputFailed) => reason::OUTPUT_FAILED,
        Some(Reason::ChainBroken) => reason::CHAIN_BROKEN,
        Some(Reason::CopyNeeded) => reason::COPY_NEEDED,
        Some(Reason::ReplayFailed) => reason::REPLAY_FAILED,
        None => reason::RUN_FAILED,
    }
}
