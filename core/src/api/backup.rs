//! EtcdBackup: copies of a cluster's data, once or by a schedule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cluster to back up, the schedule and the storage.
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
    doc = "Copies of the data of an etcd cluster in a store, once or by a schedule.",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Storage", type_ = "string", json_path = ".spec.storageType"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.backupSize"),
    printcolumn(name = "Last", type_ = "date", json_path = ".status.lastSuccessTime"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextRunTime"),
    printcolumn(name = "Archived", type_ = "date", json_path = ".status.archive.recoveryPoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupSpec {
    /// The EtcdCluster to back up.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,

    /// The namespace of the EtcdCluster, in which the Jobs run and Secrets are read. Default: the namespace of the
    /// EtcdBackup. Another one has to be allowed by the annotation `etcd.etcd.io/allow-from-namespaces` of the EtcdCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub cluster_namespace: Option<String>,

    /// The type of storage for backups.
    pub storage_type: StorageType,

    /// The schedule as a cron expression, such as `0 2 * * *`. Default: one backup, immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub schedule: Option<String>,

    /// The IANA time zone of the schedule, such as `Europe/Berlin`. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,

    /// Store every revision between copies, too. Where the archive needs a new copy to continue, the operator takes one, also
    /// without a schedule. Default: copies only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continuous: Option<Continuous>,

    /// Start no runs, and end the continuous archive. A run that has started continues. Times that pass meanwhile are made up for
    /// by one run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// The S3 bucket. Required with `storageType: S3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3>,

    /// The bucket of Google Cloud Storage. Required with `storageType: GCS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<Gcs>,

    /// The container of Azure Blob Storage. Required with `storageType: Azure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<Azure>,

    /// The volume. Required with `storageType: Local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Local>,

    /// The number and the age of backups to keep. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<RetentionPolicy>,

    /// Compress backups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compression: bool,

    /// Encrypt backups with public keys. Default: no encryption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,

    /// How a backup is verified before it counts. `ReadBack` reads the stored bytes and compares them. `Checksum` (S3 only)
    /// relies on the checksums of the store, for credentials that can only write. Default: `ReadBack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Continuous {
    /// How long a revision waits until it is stored, at most. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub flush_interval_seconds: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verification {
    ReadBack,
    Checksum,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// Public keys of age (`age1...`). Each of their identities can decrypt.
    #[schemars(extend(
        "minItems" = 1, "maxItems" = 16,
        "items" = {"type": "string", "maxLength": 62, "pattern": "^age1[a-z0-9]{58}$"}
    ))]
    pub recipients: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageType {
    S3,
    #[serde(rename = "GCS")]
    Gcs,
    Azure,
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

    /// The URL of an S3-compatible service. Default: AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub endpoint: Option<String>,

    /// Address the bucket in the path of URLs, not in the host name. Default: true with an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_path_style: Option<bool>,

    /// The Secret whose key `ca.crt` has the authorities that have issued the certificate of the endpoint. Default: public
    /// authorities only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,

    /// The Secret whose key `AWS_ACCESS_KEY_ID` has the access key. Default: the identity of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub access_key_secret: Option<String>,

    /// The Secret whose key `AWS_SECRET_ACCESS_KEY` has the secret key. It can be the same Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret_key_secret: Option<String>,

    /// The prefix of object names in the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gcs {
    /// The name of the bucket.
    #[schemars(length(min = 1, max = 255))]
    pub bucket: String,

    /// The prefix of object names in the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,

    /// The Secret whose key `GOOGLE_SERVICE_ACCOUNT_KEY` has the key of a service account, as JSON. Default: the identity of the
    /// pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub credentials_secret: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Azure {
    /// The storage account.
    #[schemars(length(min = 1, max = 255))]
    pub account: String,

    /// The container in the storage account.
    #[schemars(length(min = 1, max = 255))]
    pub container: String,

    /// The prefix of blob names in the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,

    /// The Secret whose key `AZURE_STORAGE_ACCOUNT_KEY` has the key of the account. Default: the identity of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub credentials_secret: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Local {
    /// The PersistentVolumeClaim, in the namespace of the cluster.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,

    /// A directory of the volume. Default: its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicy {
    /// The maximum number of backups to keep. 0 means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_backups: Option<i32>,

    /// The maximum age of a backup in hours, days or weeks: `36h`, `30d`, `8w`. The newest backup is kept whatever its age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub max_age: Option<String>,
}

/// The observed state of the backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdBackupStatus {
    /// A one-word summary of the last run for humans. Scripts should use the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<BackupPhase>,

    /// The conditions of the backup, one per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The size of the last copy in bytes, as it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_size: Option<i64>,

    /// When the last run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the last run ended. Absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// Where the last copy is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_path: Option<String>,

    /// The version of the etcd member that the last copy was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,

    /// The etcd revision that the last copy has at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_revision: Option<i64>,

    /// The newest copies that are stored, newest first, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub copies: Vec<CopyStatus>,

    /// When the last copy completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Time>,

    /// The last time of the schedule for which a run was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,

    /// The next time of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run_time: Option<Time>,

    /// How many attempts have failed since the last copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<i32>,

    /// The last attempt that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunStatus>,

    /// The last attempt that has ended of a copy that the cluster waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_requested_run: Option<RunStatus>,

    /// The continuous archive. Absent without `spec.continuous`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveStatus>,

    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveStatus {
    /// Everything up to this revision was stored when the archiver reported last. At most 30 seconds old while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_revision: Option<i64>,

    /// At this time the store had everything that the cluster had: what was written later could be lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_point: Option<Time>,

    /// The first revision of the chain of segments. Absent before its first segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_first: Option<i64>,

    /// The revision of the copy that a restore of the newest revision begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_revision: Option<i64>,

    /// How often the archive has asked for a copy.
    #[serde(default)]
    pub copies_requested: i64,

    /// Whether the last of them has not been taken yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy_needed: bool,

    /// The last attempt to take it that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_copy_run: Option<RunStatus>,

    /// How many archivers have ended.
    #[serde(default)]
    pub ended: i64,

    /// How many of them failed one after the other, each within 10 minutes of its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<i32>,

    /// The last archiver that has ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunStatus>,

    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_time: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupPhase {
    Running,
    Completed,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyStatus {
    /// The name of the copy in the store.
    pub name: String,

    /// When the copy completed.
    pub time: Time,

    /// The etcd revision that the copy has at least.
    pub revision: i64,

    /// The size in bytes, as it is stored.
    pub size: i64,

    /// Where the data is stored.
    pub location: String,

    /// How the copy was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verification>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// The name of the Job.
    pub job: String,

    /// The `metadata.generation` that the Job was created for.
    pub generation: i64,

    /// The time of the schedule that the run was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_time: Option<Time>,

    /// The `status.awaitedBackup.token` of the cluster that the run was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,

    /// Which copy that the continuous archive asked for the run was to take: the `copiesRequested` of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_copy: Option<i64>,

    /// How often the run was repeated.
    pub retries: i32,

    /// Why the attempt failed, in one word. Absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,

    /// The cause of the failure and the way out, in the words of the store or of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
