//! What a Job, its pod and the archiver itself report.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::job::ArchiveMark;
use crate::api::EtcdBackup;
use crate::backup::progress::Progress;
use crate::observed::Blocked;
use crate::runs::outcome::{self, Failed};
use crate::runs::request::Write;

/// A Job with an archiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Archiver {
    pub job: String,
    /// Of the Job.
    pub uid: String,
    pub mark: ArchiveMark,
    pub created: Timestamp,
    pub is_terminating: bool,
    /// Since when its pod is being deleted.
    pub pod_deleted: Option<Timestamp>,
    pub state: ArchiverState,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ArchiverState {
    /// What blocks it, if anything does.
    Starting(Option<Blocked>),
    Runs,
    Ended(ArchiverEnd),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ArchiverEnd {
    pub at: Timestamp,
    /// None: a signal ended it.
    pub failure: Option<Failed>,
}

/// What an archiver has answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// The last answer that could be read.
    pub progress: Option<(Timestamp, Progress)>,
    /// Why there was none after it.
    pub error: Option<String>,
}

impl Archiver {
    /// None for a Job of something else.
    pub fn of(job: &Job, pod: Option<&Pod>, now: Timestamp) -> Option<Self> {
        let created = job.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
        let state = match outcome::Progress::of(job, pod, created, now) {
            outcome::Progress::Starting(blocked) => ArchiverState::Starting(blocked),
            outcome::Progress::Working => ArchiverState::Runs,
            outcome::Progress::Over { at, failed } => {
                let failure = failed.map(|failed| outcome::failure(pod, failed));
                ArchiverState::Ended(ArchiverEnd { at, failure })
            }
        };
        Some(Self {
            job: job.name_any(),
            uid: job.uid()?,
            mark: ArchiveMark::on(job)?,
            created,
            is_terminating: job.metadata.deletion_timestamp.is_some(),
            pod_deleted: pod.and_then(|pod| Some(pod.metadata.deletion_timestamp.as_ref()?.0)),
            state,
        })
    }

    /// The one that reports how far the archive of this EtcdBackup is, if any does.
    pub fn to_ask<'a>(all: &'a [Self], backup: &EtcdBackup) -> Option<&'a Self> {
        let uid = backup.uid();
        let responds = |it: &&Self| it.state == ArchiverState::Runs && !it.is_terminating;
        let own = all.iter().filter(|it| Some(&it.mark.uid) == uid.as_ref());
        own.filter(responds).max_by_key(|it| (it.created, &it.job))
    }

    pub fn is_active(&self) -> bool {
        self.ended().is_none()
    }

    pub(super) fn ended(&self) -> Option<&ArchiverEnd> {
        match &self.state {
            ArchiverState::Ended(ended) => Some(ended),
            ArchiverState::Starting(_) | ArchiverState::Runs => None,
        }
    }

    pub(super) fn delete(&self, namespace: &str) -> Write {
        Write::Delete { namespace: namespace.to_owned(), name: self.job.clone(), uid: self.uid.clone() }
    }
}

impl Heard {
    pub(super) fn fresh(&self, now: Timestamp, within: SignedDuration) -> Option<&Progress> {
        let (at, progress) = self.progress.as_ref()?;
        (now.duration_since(*at) <= within).then_some(progress)
    }
}
