//! Where this process runs, and what follows from that: inside the cluster as a pod, or outside of it.

use std::env;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

/// The image that a release of this version is published as; a pod knows its own.
const PUBLISHED_IMAGE: &str = "ghcr.io/etcd-k8s-operator/etcd-operator:dev";
/// The namespace of our manifests.
const INSTALLED_IN: &str = "etcd-operator-system";
const RESOLV_CONF: &str = "/etc/resolv.conf";
const USUAL_DOMAIN: &str = "cluster.local";
/// Set by our Deployment.
const POD_NAME: &str = "POD_NAME";
const POD_NAMESPACE: &str = "POD_NAMESPACE";
/// Set by the kubelet in every pod.
const IN_A_POD: &str = "KUBERNETES_SERVICE_HOST";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the operator's own pod {namespace}/{pod} to find its image: set --agent-image")]
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

/// Both programs are in one image, so new pods get the agent of this version. Pods that exist keep theirs (ADR 27).
pub async fn image(client: &Client) -> Result<String, Error> {
    let Ok(pod) = env::var(POD_NAME) else { return Ok(PUBLISHED_IMAGE.into()) };
    let namespace = namespace();
    let found = Api::<Pod>::namespaced(client.clone(), &namespace).get(&pod).await;
    let found = found.map_err(|source| Error::OwnPod { namespace, pod: pod.clone(), source })?;
    let containers = found.spec.map(|spec| spec.containers).unwrap_or_default();
    let image = containers.into_iter().next().and_then(|container| container.image);
    image.ok_or(Error::NoContainer { pod })
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
    use super::*;

    #[test]
    fn the_domain_is_what_services_are_searched_in() {
        let conf = "nameserver 10.96.0.10\nsearch ns.svc.corp.example svc.corp.example corp.example\noptions ndots:5\n";
        assert_eq!(domain_of(conf), Some("corp.example"));
        assert_eq!(domain_of("nameserver 1.1.1.1\nsearch example.org\n"), None);
    }
}
