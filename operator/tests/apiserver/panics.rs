//! A worker that panics in every round: its cluster reports that, and another cluster is reconciled as usual.

use std::time::Duration;

use etcd_operator::supervisor::PlantedPanic;
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use serde_json::json;

use crate::installed;
use crate::operated::Workplace;

fn find(cluster: &EtcdCluster, type_: &str) -> Option<Condition> {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    conditions.into_iter().find(|it| it.type_ == type_)
}

fn has_panicked(cluster: &EtcdCluster) -> bool {
    find(cluster, condition::READY).is_some_and(|it| it.reason == reason::WORKER_PANICKED)
}

pub async fn a_worker_that_panics_is_reported_and_others_do_not_notice() {
    let planted = PlantedPanic::of("default/kv").expect("it names a cluster");
    let operated = Workplace::alone(installed().await, planted).await;
    operated.create("kv", json!({"size": 1})).await;
    let cluster: EtcdCluster = operated.until("kv", "the panic is reported", has_panicked).await;
    let ready = find(&cluster, condition::READY).expect("it was just seen");
    assert_eq!(ready.status, "Unknown");
    assert!(ready.message.contains(PlantedPanic::VARIABLE), "{ready:?}");
    assert!(find(&cluster, condition::RECONCILING).is_some_and(|it| it.status == "True"), "{cluster:?}");
    // It is published beside the work.
    let event = loop {
        let events = operated.all::<Event>().list(&ListParams::default()).await.expect("a list");
        let reported = |event: &Event| event.reason.as_deref() == Some(reason::WORKER_PANICKED);
        match events.into_iter().find(reported) {
            Some(event) => break event,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(event.type_.as_deref(), Some("Warning"));

    operated.create("other", json!({"size": 3})).await;
    operated.until_armed("other", 3).await;
    let operated = Workplace::alone(operated.stop().await, PlantedPanic::default()).await;
    operated.until_armed("kv", 1).await;
    operated.until("kv", "a good round", |it: &EtcdCluster| !has_panicked(it)).await;
    operated.stop().await;
}
