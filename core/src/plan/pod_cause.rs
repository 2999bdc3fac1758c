//! Why etcd does not run in a pod, or cannot join from it.

use serde::Serialize;

use crate::names::reason;
use crate::observed::{Blocked, Exit, Observed, Ordinal, Process};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PodCause {
    /// The StatefulSet has not created it yet.
    Missing,
    /// The API server rejects it; in its words.
    Rejected(String),
    Terminating,
    Blocked(Blocked),
    Creating,
    Crashing(Exit),
    DataLost,
    /// The agent waits and has not started etcd.
    NotStarted,
    /// The volume of the pod's previous member is not replaced yet.
    VolumePending,
    /// The peer Service does not list its address, so other members cannot find it.
    AddressNotPublished,
    PreviousMemberRunning,
    /// Its agent still holds the bootstrap order of a cluster that has bootstrapped.
    BootstrapResultPending,
}

impl PodCause {
    /// Why etcd certainly does not run in the pod of this ordinal, if so.
    pub fn of(seen: &Observed, ordinal: Ordinal) -> Option<Self> {
        let Some(pod) = seen.pods.get(&ordinal) else { return Some(Self::of_missing(seen, ordinal)) };
        match &pod.etcd {
            _ if pod.terminating => Some(Self::Terminating),
            Process::CannotStart(blocked) => Some(Self::Blocked(blocked.clone())),
            Process::Failing(exit) => Some(Self::Crashing(exit.clone())),
            Process::Beginning => Some(Self::Creating),
            Process::DataLost => Some(Self::DataLost),
            Process::Waiting | Process::Forming => Some(Self::NotStarted),
            Process::Started => None,
        }
    }

    /// Why the pod of this ordinal cannot become a member yet, if so.
    pub fn against_joining(seen: &Observed, ordinal: Ordinal) -> Option<Self> {
        let Some(pod) = seen.pods.get(&ordinal) else { return Some(Self::of_missing(seen, ordinal)) };
        let claim = seen.claims.get(&ordinal);
        let fresh = claim.is_some_and(|claim| !claim.terminating && claim.member.is_none());
        match &pod.etcd {
            _ if pod.terminating => Some(Self::Terminating),
            Process::CannotStart(blocked) => Some(Self::Blocked(blocked.clone())),
            Process::Beginning => Some(Self::Creating),
            _ if !fresh => Some(Self::VolumePending),
            _ if !pod.published => Some(Self::AddressNotPublished),
            Process::Started | Process::Failing(_) | Process::DataLost => Some(Self::PreviousMemberRunning),
            Process::Forming => Some(Self::BootstrapResultPending),
            Process::Waiting => None,
        }
    }

    fn of_missing(seen: &Observed, ordinal: Ordinal) -> Self {
        let rejected = seen.set.as_ref().and_then(|set| set.rejected.get(&ordinal));
        rejected.map_or(Self::Missing, |message| Self::Rejected(message.clone()))
    }

    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => reason::POD_MISSING,
            Self::Rejected(_) => reason::POD_CREATION_FAILED,
            Self::Terminating => reason::POD_TERMINATING,
            Self::Blocked(Blocked::Unschedulable(_)) => reason::POD_UNSCHEDULABLE,
            Self::Blocked(Blocked::Container { .. } | Blocked::SlowCreation) | Self::Crashing(_) => {
                reason::POD_START_FAILED
            }
            Self::Creating => reason::POD_STARTING,
            Self::DataLost => reason::DATA_LOST,
            Self::NotStarted => reason::MEMBER_STARTING,
            Self::VolumePending => reason::VOLUME_PENDING,
            Self::AddressNotPublished => reason::ADDRESS_NOT_PUBLISHED,
            Self::PreviousMemberRunning => reason::PREVIOUS_MEMBER_RUNNING,
            Self::BootstrapResultPending => reason::BOOTSTRAP_RESULT_PENDING,
        }
    }

    /// A short phrase that follows the name of the pod.
    pub fn text(&self) -> String {
        match self {
            Self::Missing => "pod not created yet".into(),
            Self::Rejected(message) => format!("pod rejected by the API server: {message}"),
            Self::Terminating => "pod terminating".into(),
            Self::Blocked(Blocked::Unschedulable(message)) => format!("unschedulable: {message}"),
            Self::Blocked(Blocked::Container { reason, message }) if message.is_empty() => reason.clone(),
            Self::Blocked(Blocked::Container { reason, message }) => format!("{reason}: {message}"),
            Self::Blocked(Blocked::SlowCreation) => "containers still not created after 20 s".into(),
            Self::Creating => "containers being created".into(),
            Self::Crashing(Exit { code, message }) if message.is_empty() => {
                format!("etcd exits repeatedly, with code {code}")
            }
            Self::Crashing(Exit { message, .. }) => format!("etcd exits repeatedly: {message}"),
            Self::DataLost => "data lost".into(),
            Self::NotStarted => "etcd not started".into(),
            Self::VolumePending => "new volume pending".into(),
            Self::AddressNotPublished => "address not published by the peer Service yet".into(),
            Self::PreviousMemberRunning => "previous etcd process still running".into(),
            Self::BootstrapResultPending => "bootstrap result not delivered yet".into(),
        }
    }
}
