//! One word for everything that is awaited or refused: conditions, events, log and metrics share it.

use super::{Refusal, WaitingOn};

impl WaitingOn {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unpause => "Paused",
            Self::Formation { .. } => "Forming",
            Self::Etcd { .. } => "NoAnswer",
            Self::Pod { .. } => "PodNotReady",
            Self::CatchUp { .. } => "CatchingUp",
            Self::Start { .. } => "Starting",
            Self::Voters { .. } => "TooFewVoters",
            Self::Recovery { .. } => "AwaitingRecovery",
            Self::Volumes { .. } => "InspectingVolumes",
            Self::Hashes { .. } => "ComparingData",
            Self::PodsGone { .. } => "PodsEnding",
            Self::ClaimsGone { .. } => "VolumesGoing",
        }
    }
}

impl Refusal {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ForeignVolumes { .. } => "ForeignVolumes",
            Self::UnknownMember { .. } => "UnknownMember",
            Self::ForeignCluster { .. } => "ForeignCluster",
            Self::QuorumWouldBeLost { .. } => "QuorumWouldBeLost",
            Self::LastVoter { .. } => "LastVoter",
            Self::DataLost => "DataLost",
            Self::StopNeedsQuorum { .. } => "StopNeedsQuorum",
            Self::NoSuccessor { .. } => "NoSuccessor",
            Self::HashesDiffer { .. } => "HashesDiffer",
        }
    }
}
