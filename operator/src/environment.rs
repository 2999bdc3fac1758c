//! Where this process runs, and what follows from that: inside the cluster as a pod, or outside of it.

use std::env;
use std::path::Path;

use etcd_operator_core::desired::OperatorPods;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};

/// The image that a release of this version is published as; a pod knows its own.
const PUBLISHED_IMAGE: &str = "ghcr.io/etcd-k8s-operator/etcd-operator:dev";
/// The namespace of our manifests.
const INSTALLED_IN: &str = "etcd-operator-system";
const RESOLV_CONF: &str = "/etc/resolv.conf";
const USUAL_DOMAIN: &str = "cluster.local";
/// By which Kubernetes recommends to know an application.
const RECOMMENDED_LABELS: [&str; 2] = ["app.kubernetes.io/instance", "app.kubernetes.io/name"];
/// Set by our Deployment.
const POD_NAME: &str = "POD_NAME";
const POD_NAMESPACE: &str = "POD_NAMESPACE";
/// Set by the kubelet in every pod.
const IN_A_POD: &str = "KUBERNETES_SERVICE_HOST";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot read the operator's own pod {namespace}/{pod}: its Role has to allow it to get pods there"
    )]
    OwnPod { namespace: String, pod: String, source: kube::Error },
    #[error("the operator's own pod {pod} has no container: set --agent-image")]
    NoContainer { pod: String },
}

pub fn is_in_a_pod() -> bool {
    env::var_os(IN_A_POD).is_some()
}

/// Where our own objects are.
pub fn namespace() -> String {
    env::var(POD_NAMESPACE).unwrap_or_else(|_| INSTALLED_IN.into())
}

/// What people call this process: its pod, or the machine.
pub fn name() -> String {
    let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    env::var(POD_NAME).or_else(|_| machine()).unwrap_or_else(|_| "etcd-operator".into())
}

/// None outside of Kubernetes.
pub async fn own_pod(client: &Client) -> Result<Option<Pod>, Error> {
    let Ok(pod) = env::var(POD_NAME) else { return Ok(None) };
    let namespace = namespace();
    let found = Api::<Pod>::namespaced(client.clone(), &namespace).get(&pod).await;
    found.map(Some).map_err(|source| Error::OwnPod { namespace, pod, source })
}

/// Both programs are in one image, so new pods get the agent of this version. Pods that exist keep theirs (ADR 27).
pub fn image(own_pod: Option<&Pod>) -> Result<String, Error> {
    let Some(pod) = own_pod else { return Ok(PUBLISHED_IMAGE.into()) };
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let image = container.and_then(|container| container.image.clone());
    image.ok_or_else(|| Error::NoContainer { pod: pod.name_any() })
}

/// What is the same for all replicas of the operator, and after its next rollout.
pub fn operator_pods(own_pod: &Pod) -> OperatorPods {
    let labels = own_pod.labels().iter().filter(|(label, _)| RECOMMENDED_LABELS.contains(&label.as_str()));
    OperatorPods {
        namespace: own_pod.namespace().unwrap_or_default(),
        labels: labels.map(|(label, value)| (label.clone(), value.clone())).collect(),
    }
}

/// The domain that our own names are searched in.
pub fn domain() -> String {
    let conf = std::fs::read_to_string(Path::new(RESOLV_CONF)).unwrap_or_default();
    domain_of(&conf).filter(|_| is_in_a_pod()).unwrap_or(USUAL_DOMAIN).to_owned()
}

fn domain_of(resolv_conf: &str) -> Option<&str> {
    let searches = resolv_conf.lines().filter_map(|line| line.strip_prefix("search"));
    searches.flat_map(str::split_whitespace).find_map(|domain| domain.strip_prefix("svc."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operator_is_known_by_what_all_its_pods_have_in_common() {
        let pod = |labels: serde_json::Value| -> Pod {
            let metadata =
                json!({"name": "etcd-operator-7f", "namespace": "etcd-operator-system", "labels": labels});
            serde_json::from_value(json!({"metadata": metadata})).expect("it is a pod")
        };
        let one = operator_pods(&pod(json!({
            "app.kubernetes.io/name": "etcd-operator", "pod-template-hash": "7f", "topology.kubernetes.io/zone": "a",
        })));
        assert_eq!(one.namespace, "etcd-operator-system");
        let expected = [("app.kubernetes.io/name".to_owned(), "etcd-operator".to_owned())];
        assert_eq!(one.labels, expected.into());
        assert_eq!(operator_pods(&pod(json!({}))).labels, [].into(), "then every pod of its namespace");
    }

    #[test]
    fn the_domain_is_what_services_are_searched_in() {
        let conf = "nameserver 10.96.0.10\nsearch ns.svc.corp.example svc.corp.example corp.example\noptions ndots:5\n";
        assert_eq!(domain_of(conf), Some("corp.example"));
        assert_eq!(domain_of("nameserver 1.1.1.1\nsearch example.org\n"), None);
    }
}
