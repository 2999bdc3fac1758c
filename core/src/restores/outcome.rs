//! What a Job and its pod report about an attempt.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::job::{FETCH, RESTORE};
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
    Restoring,
    Ended(Result<Success, Failed>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Success {
    pub restored: Restored,
    /// None if the report of an earlier container was lost.
    pub copy: Option<Summary>,
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
            let has_fetched = pod.is_some_and(|pod| {
                let mut fetching = containers(pod).filter(|it| it.name == FETCH);
                fetching.any(|it| terminated(it).is_some_and(|end| end.exit_code == 0))
            });
            if has_fetched { State::Restoring } else { State::Fetching }
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
    let copy = match done(pod, FETCH) {
        Some(Done::Fetch { copy }) => Some(copy),
        _ => None,
    };
    let lost = "the pod of the attempt was deleted before its result was read";
    message
        .map(|restored| Success { restored, copy })
        .ok_or_else(|| Failed { reason: reason::RUN_LOST, message: lost.into() })
}
