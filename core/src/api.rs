//! The API: what users write and what they read back. Doc comments on fields are the help of `kubectl
//! explain`.

pub use auth::{Auth, MAX_SECRET_NAME_LENGTH};
pub use backup::{
    ArchiveStatus, Azure, BackupPhase, Continuous, CopyStatus, EtcdBackup, EtcdBackupSpec, EtcdBackupStatus,
    Gcs, Local, RetentionPolicy, RunStatus, S3, StorageType, Verification,
};
pub use certificates::{
    CERT_MANAGER, Certificates, IssuerRef, KeyAlgorithm, MAX_ADDRESS_LENGTH, MAX_KIND_LENGTH,
    MAX_NAME_LENGTH, MAX_NAMES, MAX_VALIDITY_SECONDS, MIN_VALIDITY_SECONDS,
};
pub use cluster::{
    DebugSidecar, DisruptionBudget, EtcdCluster, EtcdClusterSpec, ExternalAccess, NodePort, PlainClients,
    Resources, Rollout, RolloutStrategy, Security, Tls,
};
pub use cluster_status::{
    AwaitedBackup, EtcdClusterStatus, Health, MemberStatus, Phase, Requests, RestartRequest, Role,
};
pub use definition::{KUBERNETES_TYPES, definitions};
pub use maintenance::{
    ConsistencyCheck, Defragmentation, MAX_CHECK_SECONDS, MAX_FRAGMENTATION_PERCENT, MAX_MINUTES,
    MAX_SCHEDULE_LENGTH, MAX_TIME_ZONE_LENGTH, MAX_WINDOWS, MIN_CHECK_SECONDS, MIN_FRAGMENTATION_PERCENT,
    Maintenance, MaintenanceWindow,
};
pub use monitoring::{Monitoring, PodMonitor};
pub use network_policy::NetworkPolicy;
pub use options::{AutoCompactionMode, Options};
pub use pod_template::PodTemplate;
pub use quantity::Quantity;
pub use recovery::{AUTO, AcceptDataLoss, Recovery};
pub use repair::{MAX_NODE_LOSS_GRACE_SECONDS, MIN_NODE_LOSS_GRACE_SECONDS, Repair};
pub use restore::{
    EtcdRestore, EtcdRestoreSpec, EtcdRestoreStatus, OldVolumes, Replace, Replaced, RestorePhase,
    RestoreSource, RestoreType, RevisionBump,
};
pub use storage::{DeletePolicy, StopPolicy, Storage, TemplateMetadata, VolumeClaimTemplate};
pub use verdicts::{FieldVerdict, VERDICTS, Verdict};

mod auth;
mod backup;
mod certificates;
mod cluster;
mod cluster_status;
mod definition;
mod maintenance;
mod monitoring;
mod network_policy;
mod options;
mod pod_template;
mod quantity;
mod recovery;
mod repair;
mod restore;
mod storage;
mod verdicts;

/// An ID as etcd's own tools print it, and as it stands in every status.
pub fn etcd_id(id: u64) -> String {
    format!("{id:x}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_are_printed_as_etcdctl_prints_them() {
        assert_eq!(super::etcd_id(0x0857_2d14_048e_00cb), "8572d14048e00cb");
    }
}
