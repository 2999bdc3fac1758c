//! EtcdCluster: what users ask for.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::member::MAX_SIZE;

use super::{
    Auth, Certificates, EtcdClusterStatus, IssuerRef, Maintenance, Monitoring, NetworkPolicy, Options,
    PodTemplate, Quantity, Recovery, Repair, Storage,
};

/// The desired state of the cluster.
#[expect(clippy::duplicated_attributes, reason = "columns may share a type")]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd.etcd.io",
    version = "v1alpha1",
    kind = "EtcdCluster",
    namespaced,
    status = "EtcdClusterStatus",
    shortname = "etcd",
    category = "etcd",
    category = "etcd-all",
    doc = "An etcd cluster. The operator creates, scales, stops and deletes its members.",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Leader",
        type_ = "string",
        priority = 1,
        json_path = ".status.members[?(@.role==\"Leader\")].name"
    ),
    printcolumn(name = "Endpoint", type_ = "string", priority = 1, json_path = ".status.clientEndpoints[0]"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// The number of members. 0 stops the cluster; `storage.onStop` decides what happens to the volumes. Use odd
    /// numbers: 4 members tolerate no more failures than 3.
    #[serde(default = "default_size")]
    #[schemars(range(min = 0, max = MAX_SIZE))]
    pub size: i32,

    /// The version of etcd, 3.5.3 or later, with or without a leading `v`.
    #[serde(default = "default_version")]
    #[schemars(regex(pattern = r"^v?3\.\d+\.\d+$"), length(max = 12))]
    pub version: String,

    /// The repository of the etcd image, without a tag. The tag is `version`.
    #[serde(default = "default_repository")]
    #[schemars(length(min = 1, max = 255))]
    pub repository: String,

    /// While true, the operator makes no changes. It still updates the status.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,

    /// The volumes of the members.
    #[serde(default)]
    pub storage: Storage,

    /// Encryption of connections, authentication of clients, and which pods can connect.
    #[serde(default)]
    pub security: Security,

    /// Resource requests and limits of the etcd container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Settings of etcd itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,

    /// Labels, annotations and scheduling of the members' pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,

    /// `Enabled` creates a PodDisruptionBudget, so that node drains cannot break quorum. With one member it blocks
    /// every drain of its node; `Disabled` allows the drain, and the cluster is unavailable until the pod runs again.
    #[serde(default)]
    pub pod_disruption_budget: DisruptionBudget,

    /// How an edit that needs restarts reaches the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,

    /// When the operator may do what clients notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,

    /// When the operator replaces a member whose node is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,

    /// Consent to recover from a lost quorum, with loss of data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,

    /// How Prometheus finds the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<Monitoring>,

    /// Access from outside the Kubernetes cluster. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_access: Option<ExternalAccess>,

    /// A container with network tools in every pod, for `kubectl exec`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug_sidecar: Option<DebugSidecar>,
}

/// What an empty spec means.
impl Default for EtcdClusterSpec {
    fn default() -> Self {
        Self {
            size: default_size(),
            version: default_version(),
            repository: default_repository(),
            paused: false,
            storage: Storage::default(),
            security: Security::default(),
            resources: None,
            options: None,
            pod_template: None,
            pod_disruption_budget: DisruptionBudget::default(),
            rollout: None,
            maintenance: None,
            repair: None,
            recovery: None,
            monitoring: None,
            external_access: None,
            debug_sidecar: None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// `Automatic` restarts one member after the other. `Supervised` restarts one, and the others only after you have
    /// approved it with the annotation `etcd.etcd.io/approve-rollout`; the status has its value.
    #[serde(default)]
    pub strategy: RolloutStrategy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutStrategy {
    #[default]
    Automatic,
    Supervised,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Security {
    /// TLS for clients and between members.
    #[serde(default)]
    pub tls: Tls,

    /// etcd's own authentication. Default: none, so every client with a certificate is allowed everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,

    /// Creates a NetworkPolicy that limits which pods can connect to the members; `{}` limits it to pods that are labelled as
    /// clients. Members, operator, backups and Prometheus can always connect. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
}

/// Every option defaults to true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Enable TLS.
    #[serde(default = "yes")]
    pub enabled: bool,

    /// Enable TLS for clients.
    #[serde(default = "yes", rename = "clientTLSEnabled")]
    pub client_tls_enabled: bool,

    /// Enable TLS between members.
    #[serde(default = "yes", rename = "peerTLSEnabled")]
    pub peer_tls_enabled: bool,

    /// Whether clients can connect in plain text and without a certificate as well, while TLS for clients is enabled.
    /// Without it a new cluster refuses that, and a cluster that gets TLS while it runs allows it until you set `Refuse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_clients: Option<PlainClients>,

    /// The Secret with your own certificate for the client port: `tls.crt`, `tls.key`, and `ca.crt` unless `caSecret` has it.
    /// The operator checks it and copies it. Members always connect to each other with certificates of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub certificate_secret: Option<String>,

    /// The Secret with the authorities of your own certificate: `ca.crt`. Its key is not needed. Clients with certificates of
    /// these authorities are accepted. Default: `ca.crt` beside the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,

    /// The issuer of cert-manager that issues the certificate of the client port. The operator requests it, checks it and
    /// copies it. Its authorities are in `ca.crt` of the Secret that cert-manager writes, unless `caSecret` has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerRef>,

    /// The operator issues and renews every certificate that no other source gives, whatever the value is.
    #[serde(default = "yes", rename = "autoTLS")]
    pub auto_tls: bool,

    /// The certificates that the operator issues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            enabled: true,
            client_tls_enabled: true,
            peer_tls_enabled: true,
            plain_clients: None,
            certificate_secret: None,
            ca_secret: None,
            issuer_ref: None,
            auto_tls: true,
            certificates: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlainClients {
    Refuse,
    Allow,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// The resources that Kubernetes reserves for each member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<String, Quantity>,

    /// The maximum resources of each member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub limits: BTreeMap<String, Quantity>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DisruptionBudget {
    #[default]
    Enabled,
    Disabled,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalAccess {
    /// Creates a Service `NAME-nodeport`, which opens a client port on every node. With `{}` Kubernetes
    /// allocates the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<NodePort>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePort {
    /// The port. Default: Kubernetes allocates one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30000, max = 32767))]
    pub port: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DebugSidecar {
    /// The image of the container. The name of the container is `netshoot`.
    #[serde(default = "default_debug_image")]
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
}

fn default_size() -> i32 {
    3
}

fn default_version() -> String {
    "v3.5.21".into()
}

fn default_repository() -> String {
    "quay.io/coreos/etcd".into()
}

fn default_debug_image() -> String {
    "nicolaka/netshoot:latest".into()
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> EtcdClusterSpec {
        serde_json::from_value(value).expect("a valid spec")
    }

    #[test]
    fn an_empty_spec_means_three_members_of_the_default_version() {
        let empty = spec(json!({}));
        assert_eq!(empty, EtcdClusterSpec::default());
        assert_eq!((empty.size, empty.version.as_str()), (3, "v3.5.21"));
        assert_eq!(empty.repository, "quay.io/coreos/etcd");
        assert_eq!(empty.storage.size, Quantity::Text("10Gi".into()));
    }

    #[test]
    fn tls_is_on_unless_it_is_said_otherwise() {
        assert_eq!(spec(json!({})).security.tls, Tls::default());
        let switched_off = spec(json!({"security": {"tls": {"enabled": false}}})).security.tls;
        assert_eq!(switched_off, Tls { enabled: false, ..Tls::default() });
        assert!(switched_off.client_tls_enabled && switched_off.peer_tls_enabled && switched_off.auto_tls);
    }

    #[test]
    fn what_is_off_by_default_is_switched_on_by_an_empty_section() {
        let off = spec(json!({}));
        assert_eq!((off.external_access, off.debug_sidecar), (None, None));
        let on = spec(json!({"externalAccess": {"nodePort": {}}, "debugSidecar": {}}));
        assert_eq!(on.external_access, Some(ExternalAccess { node_port: Some(NodePort { port: None }) }));
        assert_eq!(on.debug_sidecar.map(|it| it.image), Some("nicolaka/netshoot:latest".into()));
    }

    #[test]
    fn amounts_may_be_numbers_or_text_and_stay_as_they_were_written() {
        let written = json!({"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": "500m"}});
        let resources = spec(json!({"resources": written})).resources;
        assert_eq!(serde_json::to_value(resources).expect("plain data"), written);
    }
}
