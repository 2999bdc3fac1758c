//! The state of a pod, and its text: a cause is worded here and nowhere else.

use serde::Serialize;

use super::Assessment;
use crate::names::reason;
use crate::observed::{Blocked, Exit, Ordinal, Pod, Process, Seen, Unanswered};
use crate::version::Version;

/// How far a pod has come: as a member that etcd lists, or on its way to become one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PodState {
    /// The StatefulSet has not created it.
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
    /// etcd runs, or might run.
    Running,
    /// Not listed, and so are all below: the volume of the previous member is not replaced yet.
    VolumePending,
    /// The peer Service does not list its address, so other members cannot find it.
    AddressNotPublished,
    PreviousMemberRunning,
    /// The agent cannot use the certificates of the pod; in its words.
    CertificatesUnusable(String),
    /// Not listed, and its agent waits for this.
    AgentWaiting(String),
    /// Its agent still holds the bootstrap order of a cluster that has bootstrapped.
    BootstrapResultPending,
    /// Not listed, and all members run a later minor version than it does: etcd does not join them.
    VersionTooLow {
        version: Version,
        cluster: Version,
    },
    /// The agent waits on an empty volume, and other members find the pod.
    Joinable,
}

impl Assessment<'_> {
    pub(super) fn judge_pod(&self, ordinal: Ordinal) -> PodState {
        let seen = self.seen;
        let Some(pod) = seen.pods.get(&ordinal) else {
            let rejected = seen.set.as_ref().and_then(|set| set.rejected.get(&ordinal));
            return rejected.map_or(PodState::Missing, |message| PodState::Rejected(message.clone()));
        };
        let unlisted = self.listed().is_some_and(|members| members.at(ordinal).is_none());
        let has_new_volume = seen.claims.contains_key(&ordinal) && !self.has_stale_volume(ordinal);
        match &pod.etcd {
            _ if pod.terminating => PodState::Terminating,
            Process::CannotStart(blocked) => PodState::Blocked(blocked.clone()),
            Process::Beginning => PodState::Creating,
            Process::Failing(exit) => PodState::Crashing(exit.clone()),
            Process::DataLost => PodState::DataLost,
            _ if unlisted && !has_new_volume => PodState::VolumePending,
            _ if unlisted && !pod.published => PodState::AddressNotPublished,
            Process::Started => self.started(ordinal, unlisted),
            Process::Forming if unlisted => PodState::BootstrapResultPending,
            Process::Waiting if unlisted => self.version_too_low(pod).unwrap_or(PodState::Joinable),
            Process::Waiting | Process::Forming => PodState::NotStarted,
        }
    }

    /// It was created for a version that the members do not have yet, or before they got another one.
    fn version_too_low(&self, pod: &Pod) -> Option<PodState> {
        let versions = self.listed()?.list.keys().map(|id| Some(self.answer_of(*id)?.version?.minor()));
        let (version, cluster) = (pod.version?, versions.min()??);
        (version.minor() < cluster).then_some(PodState::VersionTooLow { version, cluster })
    }

    fn started(&self, ordinal: Ordinal, unlisted: bool) -> PodState {
        match self.seen.etcd.answers.get(&ordinal) {
            Some(Seen::Unknown(Unanswered::CertificatesUnusable(error))) => {
                PodState::CertificatesUnusable(error.clone())
            }
            _ if !unlisted => PodState::Running,
            Some(Seen::Unknown(Unanswered::AgentWaiting(awaited))) => PodState::AgentWaiting(awaited.clone()),
            Some(_) | None => PodState::PreviousMemberRunning,
        }
    }
}

impl PodState {
    /// Whether something has to happen to the pod before etcd can start in it.
    pub fn blocks_start(&self) -> bool {
        matches!(self, Self::Missing | Self::Rejected(_) | Self::Terminating | Self::Creating)
            || self.cannot_start()
    }

    /// Whether etcd does not start in the pod as it is.
    pub fn cannot_start(&self) -> bool {
        matches!(self, Self::Blocked(_) | Self::Crashing(_))
    }

    /// Whether etcd would start in it, but not as a member of this cluster.
    pub fn cannot_join(&self) -> bool {
        matches!(self, Self::VersionTooLow { .. })
    }

    pub fn reason(&self) -> &'static str {
        self.words().0
    }

    /// A short phrase that follows the name of the pod.
    pub fn text(&self) -> String {
        self.words().1
    }

    /// What a pod that does not serve waits for.
    pub fn waits_for(&self) -> &'static str {
        self.words().2
    }

    fn words(&self) -> (&'static str, String, &'static str) {
        let (reason, text, waits_for) = match self {
            Self::Missing => (reason::POD_MISSING, "pod not created yet", "its pod to be created"),
            Self::Rejected(message) => {
                let text = format!("pod rejected by the API server: {message}");
                return (reason::POD_CREATION_FAILED, text, "its pod to be created");
            }
            Self::Terminating => (reason::POD_TERMINATING, "pod terminating", "its pod to return"),
            Self::Blocked(blocked) => return blocked_words(blocked),
            Self::Creating => (reason::POD_STARTING, "containers being created", "its containers to start"),
            Self::Crashing(exit) => {
                return (reason::POD_START_FAILED, exit.to_string(), "etcd to keep running");
            }
            Self::DataLost => (reason::DATA_LOST, "data lost", "its replacement"),
            Self::NotStarted => (reason::MEMBER_STARTING, "etcd not started", "etcd to start"),
            Self::Running => (reason::MEMBER_STARTING, "etcd running", "a response from etcd"),
            Self::VolumePending => (reason::VOLUME_PENDING, "new volume pending", "a new volume"),
            Self::AddressNotPublished => (
                reason::ADDRESS_NOT_PUBLISHED,
                "address not published by the peer Service yet",
                "the peer Service to list its address",
            ),
            Self::PreviousMemberRunning => (
                reason::PREVIOUS_MEMBER_RUNNING,
                "previous etcd process still running",
                "the previous etcd process to exit",
            ),
            Self::CertificatesUnusable(error) => {
                let text = format!("its agent cannot use the certificates of the pod: {error}");
                return (reason::CERTIFICATES_UNUSABLE, text, "usable certificates");
            }
            Self::AgentWaiting(awaited) => {
                let text = format!("its agent waits for {awaited}");
                return (reason::AGENT_WAITING, text, "its agent to start etcd");
            }
            Self::BootstrapResultPending => (
                reason::BOOTSTRAP_RESULT_PENDING,
                "bootstrap result not delivered yet",
                "the bootstrap result",
            ),
            Self::VersionTooLow { version, cluster } => {
                let Version { major, minor, .. } = cluster;
                let text =
                    format!("etcd {version} cannot join members that all run {major}.{minor} or later");
                return (
                    reason::POD_START_FAILED,
                    text,
                    "the members to run its version, or a pod with theirs",
                );
            }
            Self::Joinable => {
                (reason::MEMBER_STARTING, "ready to join", "the operator to add it as a learner")
            }
        };
        (reason, text.into(), waits_for)
    }
}

fn blocked_words(blocked: &Blocked) -> (&'static str, String, &'static str) {
    let text = match blocked {
        Blocked::Unschedulable(message) => {
            let text = format!("unschedulable: {message}");
            return (reason::POD_UNSCHEDULABLE, text, "a node that takes its pod");
        }
        Blocked::Container { reason, message } if message.is_empty() => reason.clone(),
        Blocked::Container { reason, message } => format!("{reason}: {message}"),
        Blocked::SlowCreation => "containers still not created after 20 s".into(),
    };
    (reason::POD_START_FAILED, text, "its containers to start")
}
