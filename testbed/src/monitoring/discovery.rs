//! The pods of the testbed as Prometheus itself would discover them: Debian's has no discovery for Kubernetes, so it reads them from
//! a file.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Map, Value, json};

/// Beside the configuration.
pub const FILE: &str = "targets.json";
const META: &str = "__meta_kubernetes";

/// One for each port of each container, with the labels that `kubernetes_sd_configs` with the role `pod` adds.
pub fn targets(pods: &[Pod]) -> Value {
    pods.iter().flat_map(of_pod).collect()
}

fn of_pod(pod: &Pod) -> Vec<Value> {
    let status = pod.status.as_ref();
    let has_ended =
        status.and_then(|it| it.phase.as_deref()).is_some_and(|it| ["Succeeded", "Failed"].contains(&it));
    let address = status.and_then(|it| it.pod_ip.as_deref()).filter(|_| !has_ended);
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|it: &Container| it.ports.iter().flatten());
    let target = |port: &k8s_openapi::api::core::v1::ContainerPort| {
        let mut labels = labels_of(pod);
        labels.insert(format!("{META}_pod_container_port_name"), json!(port.name));
        Some(json!({"targets": [format!("{}:{}", address?, port.container_port)], "labels": labels}))
    };
    ports.filter_map(target).collect()
}

fn labels_of(pod: &Pod) -> Map<String, Value> {
    let own = pod.metadata.labels.iter().flatten();
    let plain = |text: &str| text.replace(|it: char| !it.is_ascii_alphanumeric(), "_");
    let mut labels: Map<String, Value> =
        own.map(|(key, value)| (format!("{META}_pod_label_{}", plain(key)), json!(value))).collect();
    labels.insert(format!("{META}_namespace"), json!(pod.metadata.namespace));
    labels.insert(format!("{META}_pod_name"), json!(pod.metadata.name));
    labels
}

/// Prometheus reads it again when it is replaced.
pub fn write(directory: &Path, targets: &Value) -> Result<()> {
    let (file, new) = (directory.join(FILE), directory.join("targets.new"));
    std::fs::write(&new, targets.to_string()).context("cannot write the targets")?;
    std::fs::rename(new, file).context("cannot replace the targets")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, address: Value) -> Pod {
        let ports =
            json!([{"name": "client", "containerPort": 2379}, {"name": "metrics", "containerPort": 2381}]);
        let pod = json!({
            "metadata": {"name": "kv-0", "namespace": "ns", "labels": {"etcd.etcd.io/cluster": "kv"}},
            "spec": {"containers": [{"name": "etcd", "ports": ports}, {"name": "netshoot"}]},
            "status": {"phase": phase, "podIP": address},
        });
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn each_port_of_a_pod_is_a_target_with_the_labels_that_relabeling_expects() {
        let found = targets(&[pod("Running", json!("10.244.1.2"))]);
        let names: Vec<&Value> =
            found.as_array().expect("targets").iter().map(|it| &it["targets"][0]).collect();
        assert_eq!(names, ["10.244.1.2:2379", "10.244.1.2:2381"]);
        let expected = json!({
            "__meta_kubernetes_namespace": "ns", "__meta_kubernetes_pod_name": "kv-0",
            "__meta_kubernetes_pod_label_etcd_etcd_io_cluster": "kv",
            "__meta_kubernetes_pod_container_port_name": "metrics",
        });
        assert_eq!(found[1]["labels"], expected);
    }

    #[test]
    fn a_pod_without_an_address_and_one_that_has_ended_are_none() {
        assert_eq!(targets(&[pod("Pending", Value::Null), pod("Succeeded", json!("10.244.1.2"))]), json!([]));
    }
}
