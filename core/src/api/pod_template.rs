//! What users may say about the pods of the members.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, PodSecurityContext, Toleration, TopologySpreadConstraint,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Additional labels of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = label_value()))]
    pub labels: BTreeMap<String, String>,

    /// Additional annotations of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,

    /// The labels that a node must have, as in a Pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = label_value()))]
    pub node_selector: BTreeMap<String, String>,

    /// The taints that the pods tolerate, as in a Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,

    /// Affinity to nodes and other pods, as in a Pod. If set, the operator does not add its default topology
    /// spread constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// How to spread members over zones and nodes, as in a Pod. They replace the operator's default constraints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// The PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,

    /// The Secrets with credentials for image registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// The security context of the pods, as in a Pod. If left out, etcd runs as user, group and `fsGroup` 65532.
    /// If given, the operator sets none of these three: `{}` leaves them to the platform, as OpenShift's
    /// restricted SecurityContextConstraints require. On a platform that assigns no user, set `runAsUser` and
    /// `fsGroup`: etcd's image runs as root, which `runAsNonRoot` forbids. What is not set of
    /// `runAsNonRoot: true`, `seccompProfile: {type: RuntimeDefault}` and
    /// `fsGroupChangePolicy: OnRootMismatch`, the operator adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,
}

fn label_value() -> serde_json::Value {
    serde_json::json!({
        "type": "string",
        "maxLength": 63,
        "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
    })
}
