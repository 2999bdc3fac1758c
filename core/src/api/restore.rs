//! EtcdRestore: a cluster from a backup.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EtcdClusterSpec;

/// Which backup becomes which cluster.
#[expect(clippy::duplicated_attributes, reason = "columns may share a type")]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd.etcd.io",
    version = "v1alpha1",
    kind = "EtcdRestore",
    namespaced,
    status = "EtcdRestoreStatus",
    shortname = "etcdrestore",
    category = "etcd-all",
    doc = "The restoration of a backup. This version of the operator accepts it and restores nothing yet.",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Backup", type_ = "string", json_path = ".spec.backupName"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.restoreType"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreSpec {
    /// The EtcdBackup to restore from.
    #[schemars(length(min = 1, max = 253))]
    pub backup_name: String,

    /// The namespace of the EtcdBackup; that of the EtcdRestore if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub backup_namespace: Option<String>,

    /// The EtcdCluster that gets the data.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,

    /// What the new cluster should be like, for `restoreType: New`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_template: Option<EtcdClusterSpec>,

    /// Whether a new cluster is made or the data of an existing one is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_type: Option<RestoreType>,

    /// The data directory of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub data_dir: Option<String>,

    /// Whether the hash at the end of the backup is left unchecked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_hash_check: bool,

    /// The directory of etcd's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub wal_dir: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestoreType {
    New,
    Replace,
}

/// What became of the restoration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreStatus {
    /// The state in one word, for people. Programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RestorePhase>,

    /// Facts for programs, one per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The cluster that has the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_cluster: Option<String>,

    /// The size of the data in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_size: Option<i64>,

    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestorePhase {
    Running,
    Completed,
    Failed,
}
