//! One word for everything that is awaited or refused: conditions, events, logs and metrics share it.

use super::{Refusal, WaitingOn};
use crate::names::reason;

impl WaitingOn {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unpause => reason::PAUSED,
            Self::Restore { .. } | Self::Replacement { .. } => reason::RESTORE_RUNNING,
            Self::Formation { .. } => reason::BOOTSTRAPPING,
            Self::Quorum { .. } => reason::MEMBERS_UNREACHABLE,
            Self::Leader => reason::NO_LEADER,
            Self::Pod { state, .. } => state.reason(),
            Self::CatchUp { .. } => reason::CATCHING_UP,
            Self::Start { .. } => reason::MEMBER_STARTING,
            Self::Voters { .. } => reason::TOO_FEW_VOTERS,
            Self::Recovery { .. } => reason::AWAITING_RECOVERY,
            Self::NodeReturn { .. }
            | Self::Isolation { .. }
            | Self::OthersJoin { .. }
            | Self::OtherNode { .. } => reason::NODE_LOST,
            Self::Fence { .. } | Self::ForcedStart { .. } => reason::RECOVERING_QUORUM,
            Self::Volumes { .. } => reason::INSPECTING_VOLUMES,
            Self::Hashes { .. } | Self::Comparison { .. } => reason::COMPARING_DATA,
            Self::Window { .. } => reason::AWAITING_WINDOW,
            Self::SetGone => reason::STATEFULSET_RECREATING,
            Self::OthersServe { .. } => reason::AWAITING_RECOVERY,
            Self::Template | Self::Preflight { .. } | Self::Rolled { .. } | Self::PodsBack { .. } => {
                reason::ROLLING_OUT
            }
            Self::Copy { .. } => reason::AWAITING_BACKUP,
            Self::Consent { .. } => reason::CONSENT_REQUIRED,
            Self::Approval { .. } => reason::APPROVAL_REQUIRED,
            Self::Successor { .. } => reason::AWAITING_RECOVERY,
            Self::Versions | Self::StorageVersion { .. } | Self::Snapshots { .. } => reason::ROLLING_OUT,
            Self::AlarmsCleared { .. } => reason::ALARM_ACTIVE,
            Self::DowngradeEnd { .. } => reason::ROLLING_OUT,
            Self::QuorumMargin { .. } => reason::QUORUM_AT_RISK,
            Self::Connection { .. } => reason::PEERS_DISCONNECTED,
            Self::Trust { .. } | Self::Use { .. } | Self::Clients { .. } => reason::ROTATING_AUTHORITIES,
            Self::Issuance { .. } => reason::CERTIFICATE_NOT_ISSUED,
            Self::PodsGone { .. } => reason::PODS_TERMINATING,
            Self::ClaimsGone { .. } => reason::VOLUMES_TERMINATING,
        }
    }
}

impl Refusal {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ForeignVolumes { .. } | Self::VolumesElsewhere { .. } => reason::FOREIGN_VOLUMES,
            Self::ReplacedVolumes { .. } => reason::VOLUMES_REPLACED,
            Self::FormationFailed { .. } => reason::BOOTSTRAP_FAILED,
            Self::UnknownMember { .. } => reason::UNKNOWN_MEMBER,
            Self::ForeignCluster { .. } => reason::CLUSTER_ID_MISMATCH,
            Self::QuorumWouldBeLost { .. } => reason::QUORUM_AT_RISK,
            Self::LastVoter { .. } => reason::LAST_VOTER,
            Self::NoCertificateGiven { rejection, .. } => rejection.reason(),
            Self::DataLost => reason::DATA_LOST,
            Self::StopNeedsQuorum { .. } => reason::QUORUM_REQUIRED,
            Self::ConsentBeforeLoss | Self::ConsentForOther { .. } => reason::CONSENT_WITHOUT_EFFECT,
            Self::MayReturn { .. }
            | Self::NoSurvivor
            | Self::SurvivorUnusable { .. }
            | Self::SurvivorForm { .. }
            | Self::RecoveryIncomplete { .. } => reason::RECOVERY_REFUSED,
            Self::NoSuccessor { .. } => reason::NO_SUCCESSOR,
            Self::EditHeld => reason::NOT_ROLLED_OUT,
            Self::PreflightFailed { .. } => reason::PREFLIGHT_FAILED,
            Self::NoCopy { .. } => reason::BACKUP_FAILED,
            Self::VersionPath(_) | Self::OldEntries { .. } => reason::VERSION_PATH,
            Self::VolumesCannotShrink { .. } => reason::VOLUMES_CANNOT_SHRINK,
            Self::ClassNeedsMembers { .. } => reason::STORAGE_CLASS_NEEDS_MEMBERS,
            Self::HashesDiffer { .. } | Self::NoMajority { .. } => reason::DATA_MISMATCH,
            Self::CorruptAgain => reason::ALARM_ACTIVE,
            Self::DatabaseFull { .. } => reason::DATABASE_FULL,
            Self::AccessDenied { .. } => reason::ACCESS_DENIED,
        }
    }
}
