//! Which pods can connect to which port of the members.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::Desired;
use super::contained::contained;
use crate::etcd_config::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use crate::names::BACKUP_LABEL;

/// On every namespace, by Kubernetes itself.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// What Prometheus Operator and the Helm charts of Prometheus set on its pods.
const PROMETHEUS: (&str, &str) = ("app.kubernetes.io/name", "prometheus");

/// What the operator's own pods have in common. An operator that runs outside of Kubernetes has none: it connects through
/// the API server and the kubelet, which no policy stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorPods {
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
}

impl Desired<'_> {
    /// Only what comes in is restricted. Members use every port of each other: `etcdctl endpoint status --cluster` in a pod
    /// asks the client port of all of them.
    pub fn network_policy(&self) -> Option<NetworkPolicy> {
        let clients = self.intent.network_policy.as_ref()?;
        let members = selected(self.names.selector());
        let backups = selected(BTreeMap::from([(BACKUP_LABEL.into(), self.names.cluster.clone())]));
        let everything = [CLIENT_PORT, PEER_PORT, METRICS_PORT];
        let mut ingress = vec![allow(vec![pods_here(members.clone())], &everything)];
        ingress.extend(self.operator.map(|it| allow(vec![operator(it)], &everything)));
        ingress.push(allow(vec![pods_here(clients.clone()), pods_here(backups)], &[CLIENT_PORT]));
        ingress.push(allow(vec![prometheus()], &[METRICS_PORT]));
        let spec = NetworkPolicySpec {
            pod_selector: Some(members),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(ingress),
            egress: None,
        };
        Some(NetworkPolicy { metadata: self.metadata(self.names.cluster.clone()), spec: Some(spec) })
    }
}

/// Whether it says what it should and nothing else: the API server fills nothing in, a rule that somebody added lets others
/// in, and so does an empty selector where there was none. What goes out is not restricted while the types are ours.
pub fn restricts_as_wanted(wanted: &NetworkPolicy, there: &NetworkPolicy) -> bool {
    let ingress = |it: &NetworkPolicy| it.spec.clone().map(|spec| NetworkPolicySpec { egress: None, ..spec });
    contained(&json!(wanted.metadata), &json!(there.metadata)) && ingress(wanted) == ingress(there)
}

fn allow(from: Vec<NetworkPolicyPeer>, ports: &[u16]) -> NetworkPolicyIngressRule {
    let port = |&number: &u16| NetworkPolicyPort {
        protocol: Some("TCP".into()),
        port: Some(IntOrString::Int(i32::from(number))),
        end_port: None,
    };
    NetworkPolicyIngressRule { from: Some(from), ports: Some(ports.iter().map(port).collect()) }
}

/// In the namespace of the policy.
fn pods_here(selector: LabelSelector) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(selector), ..NetworkPolicyPeer::default() }
}

fn operator(pods: &OperatorPods) -> NetworkPolicyPeer {
    let namespace = BTreeMap::from([(NAMESPACE_LABEL.into(), pods.namespace.clone())]);
    NetworkPolicyPeer {
        namespace_selector: Some(selected(namespace)),
        pod_selector: Some(selected(pods.labels.clone())),
        ip_block: None,
    }
}

/// In every namespace: where it runs is not known here.
fn prometheus() -> NetworkPolicyPeer {
    let (label, value) = PROMETHEUS;
    NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector::default()),
        pod_selector: Some(selected(BTreeMap::from([(label.into(), value.into())]))),
        ip_block: None,
    }
}

fn selected(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels).filter(|it| !it.is_empty()), match_expressions: None }
}

#[cfg(test)]
mod tests;
