//! Plans in words, for people: log, events and conditions say it like this.

use std::fmt;

use super::{Action, Plan, Refusal, WaitingOn};
use crate::names::{ADOPT_ANNOTATION, Names};
use crate::observed::{MemberId, Observed, Ordinal};

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
        f.write_str(&Terms::Numbers.action(self))
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Terms::Numbers.awaited(self))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Terms::Numbers.refused(self))
    }
}

/// What pods, volumes and members are called.
#[derive(Clone, Copy)]
pub enum Terms<'a> {
    /// As decisions know them: shorter, and exact.
    Numbers,
    /// As users know them. Numbers that change at every look are rounded, so that the text stays the same.
    Names { names: &'a Names, seen: &'a Observed },
}

impl Terms<'_> {
    pub fn action(self, action: &Action) -> String {
        match action {
            Action::AddFinalizer => "add the finalizer".into(),
            Action::RemoveFinalizer => "remove the finalizer".into(),
            Action::RecordFormed { cluster } => format!("record that cluster {cluster} has formed"),
            Action::CreateOrder { size } => format!("make a bootstrap order for {size} pods"),
            Action::ArmOrder { uid: _ } => "arm the bootstrap order".into(),
            Action::DeleteOrder { uid: _ } => "delete the bootstrap order".into(),
            Action::SetReplicas { replicas } => format!("set the number of pods to {replicas}"),
            Action::LabelClaim { ordinal, uid: _, member } => {
                format!("label {} as that of member {member}", self.volume(*ordinal))
            }
            Action::DeleteClaim { ordinal, uid: _ } => format!("delete {}", self.volume(*ordinal)),
            Action::AdoptClaim { ordinal, uid: _ } => format!("take over {}", self.volume(*ordinal)),
            Action::DeletePod { ordinal, uid: _ } => format!("delete {}", self.pod(*ordinal)),
            Action::DeleteSet { uid: _ } => "delete the StatefulSet".into(),
            Action::AddLearner { ordinal, cluster: _ } => format!("add {} as a learner", self.pod(*ordinal)),
            Action::Promote { ordinal, member, cluster: _ } => {
                format!("promote learner {member} ({}) to a voter", self.pod(*ordinal))
            }
            Action::MoveLeader { from, to, cluster: _ } => {
                format!("move leadership from {} to {}", self.member(*from), self.member(*to))
            }
            Action::RemoveMember { member, cluster: _ } => format!("remove member {}", self.member(*member)),
        }
    }

    pub fn awaited(self, awaited: &WaitingOn) -> String {
        match awaited {
            WaitingOn::Unpause => "spec.paused to be taken back".into(),
            WaitingOn::Formation { missing } => {
                format!("the cluster to form; not yet there: {}", self.pods(missing))
            }
            WaitingOn::Etcd { reason } => format!("etcd to answer: {reason}"),
            WaitingOn::Pod { ordinal, reason } => format!("{}: {reason}", self.pod(*ordinal)),
            WaitingOn::CatchUp { ordinal, behind: Some(behind) } => {
                format!("learner {} to catch up: {}", self.bare(*ordinal), self.behind(*behind))
            }
            WaitingOn::CatchUp { ordinal, behind: None } => {
                format!("learner {} to say how far it is", self.bare(*ordinal))
            }
            WaitingOn::Start { ordinal } => format!("member {} to start", self.bare(*ordinal)),
            WaitingOn::Voters { serving, needed } => {
                format!("more voters to serve before etcd takes a new member: {serving} of {needed}")
            }
            WaitingOn::Recovery { ordinal, member } => {
                format!("member {member} ({}) to come back before it is replaced", self.pod(*ordinal))
            }
            WaitingOn::Volumes { ordinals } => format!(
                "pods {} to look into their volumes: whether the cluster formed is not certain without them",
                self.pods(ordinals)
            ),
            WaitingOn::Hashes { missing } => format!("the hash of the data of {}", self.members(missing)),
            WaitingOn::PodsGone { ordinals } => format!("pods to end: {}", self.pods(ordinals)),
            WaitingOn::ClaimsGone { ordinals } => format!("volumes to go: {}", self.volumes(ordinals)),
        }
    }

    pub fn refused(self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::ForeignVolumes { ordinals, cluster_uid, adoptable } => {
                let volumes = self.volumes(ordinals);
                let way_out = match adoptable {
                    true => format!(
                        "delete them, or adopt them with the annotation {ADOPT_ANNOTATION}={cluster_uid}"
                    ),
                    false => "delete them; adopting is for a cluster that has nothing of its own yet".into(),
                };
                format!(
                    "volumes {volumes} belong to a former cluster of this name (UID {cluster_uid}): {way_out}"
                )
            }
            Refusal::FormationFailed { ordinals } => format!(
                "etcd was started in pods {} and left no data there, and without them no cluster forms: see why \
                 with kubectl logs --previous; if nobody needs what other volumes hold, delete this cluster with all of \
                 them, and create it again",
                self.pods(ordinals)
            ),
            Refusal::UnknownMember { member } => format!(
                "etcd lists a member {member} that is none of ours: remove it with etcdctl if nobody needs it"
            ),
            Refusal::ForeignCluster { expected, found } => {
                format!("etcd answers as cluster {found}, but this cluster formed as {expected}")
            }
            Refusal::QuorumWouldBeLost { member, serving_after, quorum_after } => format!(
                "without member {} only {serving_after} voters would serve and {quorum_after} are needed: \
                 bring another member back first",
                self.member(*member)
            ),
            Refusal::LastVoter { member } => format!("member {} is the last voter", self.member(*member)),
            Refusal::DataLost => {
                "all volumes of this cluster are gone: restore a backup into a new cluster".into()
            }
            Refusal::StopNeedsQuorum { reason } => format!(
                "stopping needs a quorum that answers ({reason}): bring members back, or delete the cluster"
            ),
            Refusal::NoSuccessor { leader } => format!(
                "no other voter serves, so leadership cannot move away from member {}",
                self.member(*leader)
            ),
            Refusal::HashesDiffer { members } => format!(
                "members {} hold different data: remove the wrong ones with etcdctl, or stop with RetainAll",
                self.members(members)
            ),
        }
    }

    fn bare(self, ordinal: Ordinal) -> String {
        match self {
            Self::Numbers => ordinal.to_string(),
            Self::Names { names, .. } => names.pod(ordinal),
        }
    }

    pub fn pod(self, ordinal: Ordinal) -> String {
        match self {
            Self::Numbers => format!("pod {ordinal}"),
            Self::Names { names, .. } => names.pod(ordinal),
        }
    }

    fn volume(self, ordinal: Ordinal) -> String {
        match self {
            Self::Numbers => format!("volume {ordinal}"),
            Self::Names { names, .. } => format!("volume {}", names.claim(ordinal)),
        }
    }

    /// With the pod that it runs in, if that is known.
    pub fn member(self, id: MemberId) -> String {
        match self {
            Self::Numbers => id.to_string(),
            Self::Names { names, seen } => {
                let listed = seen.etcd.members.known().and_then(|members| members.list.get(&id)?.ordinal);
                listed.map_or_else(|| id.to_string(), |ordinal| format!("{} ({id})", names.pod(ordinal)))
            }
        }
    }

    pub fn behind(self, entries: u64) -> String {
        match self {
            Self::Numbers => format!("{entries} entries behind"),
            Self::Names { .. } => {
                let rounded = 10_u64.pow(entries.checked_ilog10().unwrap_or(0));
                format!("at least {rounded} entries behind")
            }
        }
    }

    pub fn pods(self, ordinals: &[Ordinal]) -> String {
        list(ordinals, |&ordinal| self.bare(ordinal))
    }

    fn volumes(self, ordinals: &[Ordinal]) -> String {
        list(ordinals, |&ordinal| match self {
            Self::Numbers => ordinal.to_string(),
            Self::Names { names, .. } => names.claim(ordinal),
        })
    }

    fn members(self, members: &[MemberId]) -> String {
        list(members, |&id| self.member(id))
    }
}

fn list<T>(items: &[T], name: impl Fn(&T) -> String) -> String {
    if items.is_empty() {
        return "none".into();
    }
    items.iter().map(name).collect::<Vec<_>>().join(", ")
}
