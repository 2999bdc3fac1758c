//! What a Job and its pod report about an attempt.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::job::{FETCH, REPLAY, RESTORE};
use super::mark::{Attempt, Mark};
use crate::agent::restoration::Restored;
use crate::backup::report::{Done, Summary};
use crate::names::reason;
use crate::observed::Blocked;
use crate::runs::{Failed, Progress, containers, done, failure, terminated};

/// A Job of an EtcdRestore.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub job: String,
    /// Of the Job.
    pub uid: String,
    pub mark: Mark,
    pub attempt: Attempt,
    pub is_terminating: bool,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// No container has started; what blocks them, if anything does.
    Starting(Option<Blocked>),
    /// The copy is on its way to the volume.
    Fetching,
    /// So is what the archive has after it.
    Replaying,
    Restoring,
    Ended(Result<Success, Failed>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Success {
    pub restored: Restored,
    /// None if the report of an earlier container was lost.
    pub copy: Option<Summary>,
    /// How many revisions of the archive follow it. None for a whole copy.
    pub replayed: Option<i64>,
}

impl Run {
    /// None for a Job of something else.
    pub fn of(job: &Job, pod: Option<&Pod>, now: Timestamp) -> Option<Self> {
        let mark = Mark::on(job)?;
        let created = job.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
        Some(Self {
            job: job.name_any(),
            uid: job.uid()?,
            attempt: mark.attempt.clone()?,
            mark,
            is_terminating: job.metadata.deletion_timestamp.is_some(),
            state: state(job, pod, created, now),
        })
    }

    pub(super) fn is_active(&self) -> bool {
        !matches!(self.state, State::Ended(_))
    }
}

fn state(job: &Job, pod: Option<&Pod>, created: Timestamp, now: Timestamp) -> State {
    match Progress::of(job, pod, created, now) {
        Progress::Starting(blocked) => State::Starting(blocked),
        Progress::Working => {
            let named = |name| pod.and_then(|pod| containers(pod).find(|it| it.name == name));
            let replay = named(REPLAY);
            let getting = named(FETCH).or(replay);
            match getting.and_then(terminated) {
                Some(end) if end.exit_code == 0 => State::Restoring,
                Some(_) | None if replay.is_some() => State::Replaying,
                Some(_) | None => State::Fetching,
            }
        }
        Progress::Over { at: _, failed: Some(failed) } => State::Ended(Err(failure(pod, failed))),
        Progress::Over { at: _, failed: None } => State::Ended(success(pod)),
    }
}

/// Without its report nothing is known of the volume. The next attempt finds what is on it.
fn success(pod: Option<&Pod>) -> Result<Success, Failed> {
    let message = pod.and_then(|pod| {
        let restored = containers(pod).find(|it| it.name == RESTORE)?;
        serde_json::from_str(terminated(restored)?.message.as_deref()?.trim()).ok()
    });
    let (copy, replayed) = match done(pod, FETCH).or_else(|| done(pod, REPLAY)) {
        Some(Done::Fetch { copy }) => (Some(copy), None),
        Some(Done::Replay { copy, replayed, .. }) => (Some(copy), Some(replayed)),
        _ => (None, None),
    };
    let lost = "the pod of the attempt was deleted before its result was read";
    message
        .map(|restored| Success { restored, copy, replayed })
        .ok_or_else(|| Failed { reason: reason::RUN_LOST, message: lost.into() })
}
