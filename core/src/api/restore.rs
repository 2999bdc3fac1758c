//! EtcdRestore: a cluster from a backup.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EtcdClusterSpec;

/// The backup to restore and the cluster to restore it to.
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
    doc = "A restore of a backup. Not implemented: this version accepts the object but restores nothing.",
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

    /// The namespace of the EtcdBackup. Default: the namespace of the EtcdRestore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub backup_namespace: Option<String>,

    /// The EtcdCluster to restore to.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,

    /// The spec of the new cluster, with `restoreType: New`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_template: Option<EtcdClusterSpec>,

    /// `New` creates a cluster; `Replace` replaces the data of an existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_type: Option<RestoreType>,

    /// The data directory of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub data_dir: Option<String>,

    /// Do not verify the hash at the end of the backup.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_hash_check: bool,

    /// The directory of etcd's write-ahead log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub wal_dir: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestoreType {
    New,
    Replace,
}

/// The observed state of the restore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreStatus {
    /// A one-word summary for humans. Scripts should use the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RestorePhase>,

    /// The conditions of the restore, one per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// When the restore started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the restore completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The cluster that holds the restored data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_cluster: Option<String>,

    /// The size of the restored data in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_size: Option<i64>,

    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestorePhase {
    Running,
    Completed,
    Failed,
}
