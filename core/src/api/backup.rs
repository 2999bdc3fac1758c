//! EtcdBackup: copies of a cluster's data, once or by a schedule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which cluster is backed up, when, and where to.
#[expect(clippy::duplicated_attributes, reason = "columns may share a type")]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd.etcd.io",
    version = "v1alpha1",
    kind = "EtcdBackup",
    namespaced,
    status = "EtcdBackupStatus",
    shortname = "etcdbackup",
    category = "etcd-all",
    doc = "Copies of an etcd cluster's data. This version of the operator accepts them and makes none yet.",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Storage", type_ = "string", json_path = ".spec.storageType"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.backupSize"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupSpec {
    /// The EtcdCluster to back up.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,

    /// The namespace of the EtcdCluster; that of the EtcdBackup if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub cluster_namespace: Option<String>,

    /// The kind of place that backups are stored in.
    pub storage_type: StorageType,

    /// When backups are made, as a cron expression such as `0 2 * * *`; once, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub schedule: Option<String>,

    /// The bucket, for `storageType: S3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3>,

    /// How many backups are kept, and for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<RetentionPolicy>,

    /// Whether backups are compressed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compression: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageType {
    S3,
    #[serde(rename = "GCS")]
    Gcs,
    Local,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3 {
    /// The name of the bucket.
    #[schemars(length(min = 1, max = 255))]
    pub bucket: String,

    /// The region of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub region: Option<String>,

    /// The address of the service, for others than that of AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub endpoint: Option<String>,

    /// The name of the Secret with the access key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub access_key_secret: Option<String>,

    /// The name of the Secret with the secret key; it may be the same Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret_key_secret: Option<String>,

    /// What the names of backups in the bucket begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicy {
    /// How many backups are kept at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_backups: Option<i32>,

    /// How old a backup may become, such as `30d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub max_age: Option<String>,
}

/// What became of the backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStatus {
    /// The state in one word, for people. Programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<BackupPhase>,

    /// Facts for programs, one per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The size of the backup in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_size: Option<i64>,

    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// Where it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_path: Option<String>,

    /// The version of etcd that the data comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,

    /// The revision of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_revision: Option<i64>,

    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupPhase {
    Running,
    Completed,
    Failed,
}
