//! One word for everything that is awaited or refused: conditions, events, log and metrics share it.

use super::{Refusal, WaitingOn};
use crate::names::reason;

impl WaitingOn {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unpause => reason::PAUSED,
            Self::Formation { .. } => reason::FORMING,
            Self::Etcd { .. } => reason::NO_ANSWER,
            Self::Pod { .. } => reason::POD_NOT_READY,
            Self::CatchUp { .. } => reason::CATCHING_UP,
            Self::Start { .. } => reason::STARTING,
            Self::Voters { .. } => reason::TOO_FEW_VOTERS,
            Self::Recovery { .. } => reason::AWAITING_RECOVERY,
            Self::Volumes { .. } => reason::INSPECTING_VOLUMES,
            Self::Hashes { .. } => reason::COMPARING_DATA,
            Self::PodsGone { .. } => reason::PODS_ENDING,
            Self::ClaimsGone { .. } => reason::VOLUMES_GOING,
        }
    }
}

impl Refusal {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ForeignVolumes { .. } => reason::FOREIGN_VOLUMES,
            Self::FormationFailed { .. } => reason::FORMATION_FAILED,
            Self::UnknownMember { .. } => reason::UNKNOWN_MEMBER,
            Self::ForeignCluster { .. } => reason::FOREIGN_CLUSTER,
            Self::QuorumWouldBeLost { .. } => reason::QUORUM_WOULD_BE_LOST,
            Self::LastVoter { .. } => reason::LAST_VOTER,
            Self::DataLost => reason::DATA_LOST,
            Self::StopNeedsQuorum { .. } => reason::STOP_NEEDS_QUORUM,
            Self::NoSuccessor { .. } => reason::NO_SUCCESSOR,
            Self::HashesDiffer { .. } => reason::HASHES_DIFFER,
        }
    }
}
