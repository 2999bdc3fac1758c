//! EtcdCluster: what users ask for.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EtcdClusterStatus, Options, PodTemplate, Quantity, Storage};

/// What an etcd cluster should be like.
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
    doc = "A cluster of etcd members that is created, scaled and repaired as one thing.",
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
    /// How many members the cluster should have. 0 stops it; `storage.onStop` says what happens to its data.
    /// Odd numbers are best: an even one tolerates no more failures than the odd one below it.
    #[serde(default = "default_size")]
    #[schemars(range(min = 0, max = 9))]
    pub size: i32,

    /// The version of etcd, with or without the leading `v`: 3.5.3 or later.
    #[serde(default = "default_version")]
    #[schemars(regex(pattern = r"^v?3\.\d+\.\d+$"), length(max = 12))]
    pub version: String,

    /// Where the image of etcd comes from, without the tag; the tag is the version.
    #[serde(default = "default_repository")]
    #[schemars(length(min = 1, max = 255))]
    pub repository: String,

    /// While true, the operator only watches: it reports, but changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,

    /// The volume of each member.
    #[serde(default)]
    pub storage: Storage,

    /// How connections are protected. Not in effect in this version: all connections are plain text.
    #[serde(default)]
    pub security: Security,

    /// What each member's etcd container asks for and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Settings of etcd itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,

    /// What the pods of the members carry besides etcd, and where they may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,

    /// Whether a PodDisruptionBudget keeps node drains from breaking the quorum. With a single member it
    /// blocks every drain of its node: `Disabled` lets the drain through, and the cluster is away meanwhile.
    #[serde(default)]
    pub pod_disruption_budget: DisruptionBudget,

    /// Ways in from outside the Kubernetes cluster. There are none unless asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_access: Option<ExternalAccess>,

    /// A container with network tools beside etcd in every pod, for `kubectl exec`. There is none unless
    /// asked for.
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
            external_access: None,
            debug_sidecar: None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Security {
    /// Encryption and identities, for clients and between members.
    #[serde(default)]
    pub tls: Tls,
}

/// Each switch is on unless it is said otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Whether connections are encrypted at all.
    #[serde(default = "yes")]
    pub enabled: bool,

    /// Whether connections of clients are encrypted.
    #[serde(default = "yes", rename = "clientTLSEnabled")]
    pub client_tls_enabled: bool,

    /// Whether connections between members are encrypted.
    #[serde(default = "yes", rename = "peerTLSEnabled")]
    pub peer_tls_enabled: bool,

    /// The Secret with a certificate and key of your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub certificate_secret: Option<String>,

    /// The Secret with a certificate authority of your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub ca_secret: Option<String>,

    /// Whether the operator makes and renews certificates by itself.
    #[serde(default = "yes", rename = "autoTLS")]
    pub auto_tls: bool,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            enabled: true,
            client_tls_enabled: true,
            peer_tls_enabled: true,
            certificate_secret: None,
            ca_secret: None,
            auto_tls: true,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the scheduler sets aside for each member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<String, Quantity>,

    /// What a member cannot exceed.
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
    /// A Service `NAME-nodeport` that opens a port for clients on every node. `{}` lets Kubernetes pick the
    /// port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<NodePort>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePort {
    /// A fixed port; one is allocated if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30000, max = 32767))]
    pub port: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DebugSidecar {
    /// The image of the container, which is called `netshoot`.
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
