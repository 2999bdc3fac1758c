//! The vocabulary of decisions: what is done, what is awaited, what is refused. Log, events, conditions and
//! metrics all speak it.

use std::fmt;

use serde::Serialize;

use crate::observed::{ClusterId, MemberId, Ordinal};

/// What to do now, in this order; what is awaited; what is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub waiting: Vec<WaitingOn>,
    pub refusals: Vec<Refusal>,
}

/// One change. Each carries the evidence it was decided on, so that a stale one fails instead of doing harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Action {
    AddFinalizer,
    RemoveFinalizer,
    CreateOrder { size: u8, attempt: u32 },
    DeleteOrder { uid: String },
    /// Makes the StatefulSet, or changes how many pods it keeps.
    SetReplicas { replicas: u8 },
    /// Writes down whose data a claim holds.
    LabelClaim { ordinal: Ordinal, uid: String, member: MemberId },
    DeleteClaim { ordinal: Ordinal, uid: String },
    DeletePod { ordinal: Ordinal, uid: String },
    DeleteSet { uid: String },
    AddLearner { ordinal: Ordinal, cluster: ClusterId },
    Promote { ordinal: Ordinal, member: MemberId, cluster: ClusterId },
    MoveLeader { from: MemberId, to: MemberId, cluster: ClusterId },
    RemoveMember { member: MemberId, cluster: ClusterId },
}

impl Action {
    /// Whether it takes something away that serves, or moves who serves. At most one of these is in a plan.
    pub fn is_disruptive(&self) -> bool {
        match self {
            Self::DeletePod { .. } | Self::MoveLeader { .. } | Self::RemoveMember { .. } | Self::Promote { .. } => true,
            Self::AddFinalizer
            | Self::RemoveFinalizer
            | Self::CreateOrder { .. }
            | Self::DeleteOrder { .. }
            | Self::SetReplicas { .. }
            | Self::LabelClaim { .. }
            | Self::DeleteClaim { .. }
            | Self::DeleteSet { .. }
            | Self::AddLearner { .. } => false,
        }
    }
}

/// What has to happen elsewhere before there is more to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum WaitingOn {
    Unpause,
    Formation { attempt: u32, missing: Vec<Ordinal> },
    Etcd { reason: String },
    Pod { ordinal: Ordinal, reason: String },
    CatchUp { ordinal: Ordinal, behind: Option<u64> },
    Start { ordinal: Ordinal },
    PodsGone { ordinals: Vec<Ordinal> },
    ClaimsGone { ordinals: Vec<Ordinal> },
}

/// What will not be done until somebody changes something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// Volumes of a former cluster of the same name are in the way.
    ForeignVolumes { ordinals: Vec<Ordinal>, cluster_uid: String },
    /// A member is in etcd's list that no pod of ours belongs to.
    UnknownMember { member: MemberId },
    /// etcd answers, but it is another cluster than the one that formed here.
    ForeignCluster { expected: ClusterId, found: ClusterId },
    QuorumWouldBeLost { member: MemberId, serving_after: usize, quorum_after: usize },
    LastVoter { member: MemberId },
    /// All data of a formed cluster is gone; a new one is never started in its place.
    DataLost,
    StopNeedsQuorum { reason: String },
    NoSuccessor { leader: MemberId },
}

impl Plan {
    pub fn act(action: Action) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    pub fn wait(waiting: WaitingOn) -> Self {
        Self { waiting: vec![waiting], ..Self::default() }
    }

    pub fn refuse(refusal: Refusal) -> Self {
        Self { refusals: vec![refusal], ..Self::default() }
    }

    pub fn is_settled(&self) -> bool {
        self == &Self::default()
    }

    /// Lets `other` follow.
    pub fn then(mut self, other: Self) -> Self {
        let Self { actions, waiting, refusals } = other;
        self.actions.extend(actions);
        self.waiting.extend(waiting);
        self.refusals.extend(refusals);
        self
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpause => f.write_str("spec.paused to be taken back"),
            Self::Formation { attempt, missing } => {
                write!(f, "the cluster to form (attempt {attempt}); not yet there: {}", list(missing))
            }
            Self::Etcd { reason } => write!(f, "etcd to answer: {reason}"),
            Self::Pod { ordinal, reason } => write!(f, "pod {ordinal}: {reason}"),
            Self::CatchUp { ordinal, behind: Some(behind) } => {
                write!(f, "learner {ordinal} to catch up: {behind} entries behind")
            }
            Self::CatchUp { ordinal, behind: None } => write!(f, "learner {ordinal} to say how far it is"),
            Self::Start { ordinal } => write!(f, "member {ordinal} to start"),
            Self::PodsGone { ordinals } => write!(f, "pods to end: {}", list(ordinals)),
            Self::ClaimsGone { ordinals } => write!(f, "volumes to go: {}", list(ordinals)),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignVolumes { ordinals, cluster_uid } => write!(
                f,
                "volumes {} belong to a former cluster of this name (UID {cluster_uid}): delete them, or adopt them",
                list(ordinals)
            ),
            Self::UnknownMember { member } => {
                write!(f, "etcd lists a member {member} that is none of ours: remove it with etcdctl if nobody needs it")
            }
            Self::ForeignCluster { expected, found } => {
                write!(f, "etcd answers as cluster {found}, but this cluster formed as {expected}")
            }
            Self::QuorumWouldBeLost { member, serving_after, quorum_after } => write!(
                f,
                "without member {member} only {serving_after} voters would serve and {quorum_after} are needed: \
                 bring another member back first"
            ),
            Self::LastVoter { member } => write!(f, "member {member} is the last voter"),
            Self::DataLost => f.write_str("all volumes of this cluster are gone: restore a backup into a new cluster"),
            Self::StopNeedsQuorum { reason } => {
                write!(f, "stopping needs a quorum that answers ({reason}): bring members back, or delete the cluster")
            }
            Self::NoSuccessor { leader } => {
                write!(f, "no other voter serves, so leadership cannot move away from member {leader}")
            }
        }
    }
}

fn list(ordinals: &[Ordinal]) -> String {
    if ordinals.is_empty() {
        return "none".into();
    }
    ordinals.iter().map(Ordinal::to_string).collect::<Vec<_>>().join(", ")
}
