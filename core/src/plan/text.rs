//! Plans in words, for people: log, events and conditions say it like this.

use std::fmt;

use super::{Action, Plan, Refusal, WaitingOn};
use crate::observed::{MemberId, Ordinal};

/// One line for each thing that is done, awaited or refused.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { actions, waiting, refusals } = self;
        actions.iter().try_for_each(|action| writeln!(f, "do: {action}"))?;
        waiting.iter().try_for_each(|awaited| writeln!(f, "wait for: {awaited}"))?;
        refusals.iter().try_for_each(|refusal| writeln!(f, "refuse: {refusal}"))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("add the finalizer"),
            Self::RemoveFinalizer => f.write_str("remove the finalizer"),
            Self::RecordFormed { cluster } => write!(f, "record that cluster {cluster} has formed"),
            Self::CreateOrder { size } => write!(f, "make a bootstrap order for {size} pods"),
            Self::ArmOrder { uid: _ } => f.write_str("arm the bootstrap order"),
            Self::DeleteOrder { uid: _ } => f.write_str("delete the bootstrap order"),
            Self::SetReplicas { replicas } => write!(f, "set the number of pods to {replicas}"),
            Self::LabelClaim { ordinal, uid: _, member } => {
                write!(f, "label volume {ordinal} as that of member {member}")
            }
            Self::DeleteClaim { ordinal, uid: _ } => write!(f, "delete volume {ordinal}"),
            Self::DeletePod { ordinal, uid: _ } => write!(f, "delete pod {ordinal}"),
            Self::DeleteSet { uid: _ } => f.write_str("delete the StatefulSet"),
            Self::AddLearner { ordinal, cluster: _ } => write!(f, "add pod {ordinal} as a learner"),
            Self::Promote { ordinal, member, cluster: _ } => {
                write!(f, "promote learner {member} (pod {ordinal}) to a voter")
            }
            Self::MoveLeader { from, to, cluster: _ } => write!(f, "move leadership from {from} to {to}"),
            Self::RemoveMember { member, cluster: _ } => write!(f, "remove member {member}"),
        }
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpause => f.write_str("spec.paused to be taken back"),
            Self::Formation { missing } => {
                write!(f, "the cluster to form; not yet there: {}", list(missing))
            }
            Self::Etcd { reason } => write!(f, "etcd to answer: {reason}"),
            Self::Pod { ordinal, reason } => write!(f, "pod {ordinal}: {reason}"),
            Self::CatchUp { ordinal, behind: Some(behind) } => {
                write!(f, "learner {ordinal} to catch up: {behind} entries behind")
            }
            Self::CatchUp { ordinal, behind: None } => write!(f, "learner {ordinal} to say how far it is"),
            Self::Start { ordinal } => write!(f, "member {ordinal} to start"),
            Self::Voters { serving, needed } => {
                write!(f, "more voters to serve before etcd takes a new member: {serving} of {needed}")
            }
            Self::Recovery { ordinal, member } => {
                write!(f, "member {member} (pod {ordinal}) to come back before it is replaced")
            }
            Self::Volumes { ordinals } => write!(
                f,
                "pods {} to look into their volumes: whether the cluster formed is not certain without them",
                list(ordinals)
            ),
            Self::Hashes { missing } => write!(f, "the hash of the data of {}", ids(missing)),
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
                write!(
                    f,
                    "etcd lists a member {member} that is none of ours: remove it with etcdctl if nobody needs it"
                )
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
            Self::DataLost => {
                f.write_str("all volumes of this cluster are gone: restore a backup into a new cluster")
            }
            Self::StopNeedsQuorum { reason } => {
                write!(
                    f,
                    "stopping needs a quorum that answers ({reason}): bring members back, or delete the cluster"
                )
            }
            Self::NoSuccessor { leader } => {
                write!(f, "no other voter serves, so leadership cannot move away from member {leader}")
            }
            Self::HashesDiffer { members } => write!(
                f,
                "members {} hold different data: remove the wrong ones with etcdctl, or stop with RetainAll",
                ids(members)
            ),
        }
    }
}

fn ids(members: &[MemberId]) -> String {
    members.iter().map(MemberId::to_string).collect::<Vec<_>>().join(", ")
}

fn list(ordinals: &[Ordinal]) -> String {
    if ordinals.is_empty() {
        return "none".into();
    }
    ordinals.iter().map(Ordinal::to_string).collect::<Vec<_>>().join(", ")
}
