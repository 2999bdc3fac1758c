//! EtcdCluster: what was seen of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was last seen of the cluster. What did not answer is not claimed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// The state in one word, for people. Programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Facts for programs, one per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// Every member that etcd lists, and every pod that waits to become one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub members: Vec<MemberStatus>,

    /// Members that exist, learners included. Absent while that was never known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Voting members that just served a linearizable read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,

    /// The lowest version of etcd that a responding member runs, in the form of `spec.version`. Absent while no member
    /// responds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The member that leads, in the hexadecimal form of etcdctl.
    #[serde(default, rename = "leaderID", skip_serializing_if = "Option::is_none")]
    pub leader_id: Option<String>,

    /// The identity of the etcd cluster, in the hexadecimal form of etcdctl. It is set at birth and never
    /// changes.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,

    /// When the cluster was first seen to have formed. It is set at birth and never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formed_at: Option<Time>,

    /// Where clients connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub client_endpoints: Vec<String>,

    /// The DNS domain of Kubernetes that the members' names end in. It is set at birth and never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,

    /// The labels of the members' pods, as `kubectl get pods -l` takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// When the last backup was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup_time: Option<Time>,

    /// When this status last said something new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,

    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// When the cluster was last looked at. It is renewed every few minutes while nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Time>,
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
    /// The name of the member and of its pod. A member that has just been added has none in etcd yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The member's ID in the hexadecimal form of etcdctl; absent while etcd does not list it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,

    /// Where the other members reach it.
    #[serde(default, rename = "peerURL", skip_serializing_if = "Option::is_none")]
    pub peer_url: Option<String>,

    /// Where clients reach it.
    #[serde(default, rename = "clientURL", skip_serializing_if = "Option::is_none")]
    pub client_url: Option<String>,

    /// Whether it is a voting member that just served a linearizable read.
    #[serde(default)]
    pub ready: bool,

    /// When `ready` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,

    /// Its part in the cluster; absent while it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,

    /// What it said of itself. One that did not answer is `Unknown`.
    #[serde(default)]
    pub health: Health,

    /// The version of etcd that it runs, without the leading `v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Why it does not serve, or which alarm it has raised; absent when nothing is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// What has to happen before it can serve.
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
