//! EtcdRestore: a cluster from a backup.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Azure, EtcdClusterSpec, Gcs, Local, RunStatus, S3, StorageType};

/// The copy to restore and the cluster to restore it to.
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
    doc = "A new etcd cluster from a copy of the data of another one, or other data for an existing cluster. It is carried out once.",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Backup", type_ = "string", json_path = ".spec.backupName"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.restoreType"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreSpec {
    /// The EtcdBackup whose store has the copy. Required without `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub backup_name: Option<String>,

    /// The namespace of the EtcdBackup. Default: the namespace of the EtcdRestore. Another one has to be allowed by the
    /// annotation `etcd.etcd.io/allow-from-namespaces` of the EtcdBackup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub backup_namespace: Option<String>,

    /// The store that has the copy, where no EtcdBackup is left. Required without `backupName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RestoreSource>,

    /// The copy to restore. Default: the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub copy_name: Option<String>,

    /// The revision to restore: that of a copy, or any one that the continuous archive has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub to_revision: Option<i64>,

    /// The time to restore, as the continuous archive has received writes. A time while the archive caught up is refused with the
    /// nearest times that it knows exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_time: Option<Time>,

    /// The Secret whose key `identity` has the age identity of an encrypted copy and archive, as age-keygen writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub identity_secret: Option<String>,

    /// The EtcdCluster to restore to, in the namespace of the EtcdRestore. It must not exist, unless its data is to be replaced.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,

    /// The spec of the new cluster. Required with `restoreType: New`; with `Replace` the cluster keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_template: Option<EtcdClusterSpec>,

    /// `New` creates a cluster. `Replace` replaces the data of an existing one, which does not serve from when the new data is ready
    /// until its first member has started with it. Default: `New`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_type: Option<RestoreType>,

    /// Consent to replace the data of a cluster. Required with `restoreType: Replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<Replace>,

    /// Whether revisions of the new cluster begin above those of the copy, and those of the copy count as compacted, so that
    /// clients that watch or cache notice the restore. Default: `Enabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_bump: Option<RevisionBump>,

    /// The data directory of etcd. Refused: the operator chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub data_dir: Option<String>,

    /// Do not verify the hash at the end of the backup. Refused: every copy has a hash, and it is always verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_hash_check: bool,

    /// The directory of etcd's write-ahead log. Refused: the operator chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub wal_dir: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replace {
    /// `status.clusterID` of the cluster whose data is replaced. The restored data has another one, so consent works once.
    #[serde(rename = "clusterID")]
    #[schemars(length(max = 16), regex(pattern = r"^[0-9a-f]{1,16}$"))]
    pub cluster_id: String,

    /// What becomes of the volumes with the previous data. `Retain` keeps them; the status names them. Default: `Retain`.
    #[serde(default)]
    pub old_volumes: OldVolumes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OldVolumes {
    #[default]
    Retain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestoreType {
    New,
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RevisionBump {
    Enabled,
    Disabled,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSource {
    /// The type of storage that has the copy.
    pub storage_type: StorageType,

    /// The ID of the cluster that the copy was taken of, as etcdctl prints it. Default: the only one that has copies in the store.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub cluster_id: Option<String>,

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

    /// When the restore started: it created the cluster then, or accepted the consent to replace its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the restore completed or failed. From then on it has no effect any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The cluster that holds the restored data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_cluster: Option<String>,

    /// The UID of that cluster, which its volumes carry: members start on no other volumes. Where data is replaced, the UID of the
    /// EtcdRestore, which the names of the new volumes begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,

    /// What is replaced. Absent with `restoreType: New`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,

    /// The copy that was restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_name: Option<String>,

    /// The size of the restored data in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_size: Option<i64>,

    /// The revision of the source that was restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_revision: Option<i64>,

    /// How many of its revisions come from the continuous archive. Absent for a whole copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_revisions: Option<i64>,

    /// The revision that the restored cluster begins with. It is higher, so that clients notice the restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_revision: Option<i64>,

    /// The UID of the claim whose volume has the restored data.
    #[serde(default, rename = "restoredVolumeUID", skip_serializing_if = "Option::is_none")]
    pub restored_volume_uid: Option<String>,

    /// The last attempt that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunStatus>,

    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_time: Option<Time>,

    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replaced {
    /// The UID of the EtcdCluster.
    #[serde(rename = "clusterUID")]
    pub cluster_uid: String,

    /// The cluster ID of the data that is replaced.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,

    /// The cluster ID of the restored data.
    #[serde(default, rename = "newClusterID", skip_serializing_if = "Option::is_none")]
    pub new_cluster_id: Option<String>,

    /// The ID of its first member.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,

    /// The version of etcd that the data was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Whether the peer URL in the data is one with TLS.
    #[serde(default, rename = "peerTLS", skip_serializing_if = "std::ops::Not::not")]
    pub peer_tls: bool,

    /// The data is ready, and the EtcdCluster has the order to continue with it. Until then, nothing of the cluster has changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handed_over: bool,

    /// The PersistentVolumeClaims with the previous data. The operator does not delete them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volumes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestorePhase {
    Running,
    Completed,
    Failed,
}
