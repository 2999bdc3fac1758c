//! EtcdCluster: what was seen of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The observed state of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// A one-word summary for humans. Scripts should use the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The conditions of the cluster, one per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The members that etcd lists, and the pods that are not members yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub members: Vec<MemberStatus>,

    /// The number of members that exist, learners included. Absent until the operator has seen them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// The number of voting members that served a linearizable read at the last observation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,

    /// The lowest version of etcd that a responding member runs, in the form of `spec.version`. Absent while no member
    /// responds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The ID of the leader, in hexadecimal as in etcdctl.
    #[serde(default, rename = "leaderID", skip_serializing_if = "Option::is_none")]
    pub leader_id: Option<String>,

    /// The ID of the etcd cluster, in hexadecimal as in etcdctl. The operator sets it after bootstrap, and changes it only when an
    /// EtcdRestore replaces the data.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,

    /// When the operator first observed that bootstrap completed, or when an EtcdRestore replaced the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formed_at: Option<Time>,

    /// Which recovery from a lost quorum the data comes from, or the UID of the EtcdRestore that replaced it. Absent if there was
    /// neither. The cluster ID stays the same in a recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,

    /// What the volumes of the members are called: the beginning of the names of their claims. Absent: `data`. Another one since an
    /// EtcdRestore replaced the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,

    /// The URLs for clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub client_endpoints: Vec<String>,

    /// The DNS domain of the Kubernetes cluster, which the members' host names end with. It never changes after
    /// bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,

    /// A selector for the members' pods: `kubectl get pods -l SELECTOR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// Requests by annotation that the operator has accepted. The same request again has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,

    /// The copy that the operator waits for before it restarts the first member for another version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited_backup: Option<AwaitedBackup>,

    /// When the last backup completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup_time: Option<Time>,

    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,

    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// When the operator last observed the cluster. If nothing changes, the operator updates it every few minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requests {
    /// The last restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartRequest>,

    /// The token of the last move of leadership that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_leader: Option<String>,

    /// The last rotation of the authorities that sign certificates.
    #[serde(default, rename = "rotateCA", skip_serializing_if = "Option::is_none")]
    pub rotate_ca: Option<RotationRequest>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwaitedBackup {
    /// The namespace of the EtcdBackup that takes the copy.
    pub namespace: String,

    /// The name of the EtcdBackup that takes the copy.
    pub name: String,

    /// Identifies the copy. Another edit of the spec asks for another copy.
    pub token: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotationRequest {
    /// The value of the annotation.
    pub token: String,

    /// The key identifiers of the authorities that the operator created for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub authorities: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartRequest {
    /// The value of the annotation, without the pod.
    pub token: String,

    /// The UIDs of the pods that are replaced for it. It is done when none of them exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pods: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    Creating,
    Running,
    Scaling,
    Upgrading,
    Failed,
    Deleting,
    Stopped,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// The name of the member and of its pod. A member has no name in etcd until it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The ID of the member, in hexadecimal as in etcdctl. Absent until etcd lists the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,

    /// The URL for the other members.
    #[serde(default, rename = "peerURL", skip_serializing_if = "Option::is_none")]
    pub peer_url: Option<String>,

    /// The URL for clients.
    #[serde(default, rename = "clientURL", skip_serializing_if = "Option::is_none")]
    pub client_url: Option<String>,

    /// Whether the member votes and served a linearizable read at the last observation.
    #[serde(default)]
    pub ready: bool,

    /// When `ready` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,

    /// The role of the member. Absent while the role is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,

    /// The health that the member reports. `Unknown` if it does not respond.
    #[serde(default)]
    pub health: Health,

    /// The version of etcd that the member runs, without a leading `v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The version of etcd that a rollout gives the member, without a leading `v`. Absent when the member runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,

    /// The version of the agent in the member's pod. A new version of the operator changes it with the next restart of the
    /// member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,

    /// Why the member does not serve, or the alarm that it has raised. Absent when nothing is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// What the member waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    Leader,
    Follower,
    Learner,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Health {
    Healthy,
    Unhealthy,
    #[default]
    Unknown,
}
