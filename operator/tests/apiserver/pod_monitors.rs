//! A cluster with a PodMonitor, of which there is only the definition: no Prometheus operator reads it.

use etcd_operator::supervisor::PlantedPanic;
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::desired::pod_monitor_resource;
use etcd_operator_core::names::{condition, reason};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::json;

use crate::foreign::{all, define, until};
use crate::installed;
use crate::operated::Workplace;

const CLUSTER: &str = "kv";

fn warning(cluster: &EtcdCluster) -> Option<(&str, &str)> {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let mut warnings = conditions.filter(|it| it.type_ == condition::SPEC_WARNING);
    warnings.next().map(|it| (it.reason.as_str(), it.message.as_str()))
}

/// Whether the annotations of new pods make Prometheus scrape them.
fn is_annotated(set: &StatefulSet) -> bool {
    let template = set.spec.as_ref().and_then(|it| it.template.metadata.as_ref());
    let annotations = template.and_then(|it| it.annotations.as_ref());
    annotations.is_some_and(|it| it.contains_key("prometheus.io/scrape"))
}

/// With exactly the rights of `config/rights`.
pub async fn a_pod_monitor_is_awaited_created_put_right_and_deleted_and_holds_nothing_up() {
    let there = Workplace::alone(installed().await, PlantedPanic::default()).await;
    there.create(CLUSTER, json!({"size": 1, "monitoring": {"podMonitor": "Enabled"}})).await;
    let is_missing = |it: &EtcdCluster| {
        warning(it).is_some_and(|(why, words)| {
            why == reason::PROMETHEUS_OPERATOR_MISSING && words.contains("install the Prometheus operator")
        })
    };
    there.until(CLUSTER, "it is reported that the API is missing", is_missing).await;
    there.until_armed(CLUSTER, 1).await;
    there.until(CLUSTER, "pods are not scraped twice", |it: &StatefulSet| !is_annotated(it)).await;

    define(&there.on.admin, &pod_monitor_resource()).await;
    let monitors = all(&there, &pod_monitor_resource());
    until(&monitors, CLUSTER, "the operator creates it", |it| it.is_some()).await;
    there.until(CLUSTER, "nothing is missing", |it: &EtcdCluster| warning(it).is_none()).await;
    let monitor = monitors.get(CLUSTER).await.expect("it is there");
    let owner = &monitor.metadata.owner_references.as_ref().expect("owners")[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("EtcdCluster", CLUSTER));

    // Somebody edits it.
    let edit = Patch::Merge(json!({"spec": {"selector": {"matchLabels": {"team": "shop"}}}}));
    monitors.patch(CLUSTER, &PatchParams::default(), &edit).await.expect("it is accepted");
    let spec = |it: &DynamicObject| it.data["spec"].clone();
    let wanted = spec(&monitor);
    until(&monitors, CLUSTER, "it is put right", |it| it.is_some_and(|it| spec(it) == wanted)).await;

    there.edit(CLUSTER, json!({"spec": {"monitoring": null}})).await;
    until(&monitors, CLUSTER, "it is deleted with its field", |it| it.is_none()).await;
    there.until(CLUSTER, "pods are annotated instead", is_annotated).await;

    // One of a user is left alone.
    let own =
        DynamicObject::new(CLUSTER, &pod_monitor_resource()).data(json!({"spec": {"jobLabel": "mine"}}));
    monitors.create(&PostParams::default(), &own).await.expect("it is accepted");
    there.edit(CLUSTER, json!({"spec": {"monitoring": {"podMonitor": "Enabled"}}})).await;
    let is_named = |it: &EtcdCluster| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions);
        let mut failed = conditions.filter(|it| it.type_ == condition::WRITE_FAILED);
        failed.any(|it| it.message.contains("PodMonitor kv"))
    };
    there.until(CLUSTER, "its name is taken", is_named).await;
    assert_eq!(spec(&monitors.get(CLUSTER).await.expect("it is there")), json!({"jobLabel": "mine"}));
    monitors.delete(CLUSTER, &DeleteParams::default()).await.expect("it is there");
    until(&monitors, CLUSTER, "ours follows", |it| it.is_some_and(|it| spec(it) == wanted)).await;
    drop(there.stop().await);
}
