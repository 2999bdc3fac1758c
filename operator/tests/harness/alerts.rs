//! Alerts fire for real faults and clear when those end, as a real Prometheus evaluates the rules that we ship.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::monitoring::{Prometheus, at_once};

use crate::inside;
use crate::monitoring::prometheus;
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, world};

const MEMBERS: u8 = 3;
const LIMIT: Duration = Duration::from_secs(90);
const ONE_DOWN: [&str; 2] = ["EtcdMemberDown", "EtcdQuorumMarginZero"];
const QUORUM_LOST: [&str; 2] = ["EtcdNoLeader", "EtcdQuorumLost"];

/// The rules that we ship, without the minutes for which a condition has to hold: promtool's cases test those.
fn rules_at_once(directory: PathBuf) -> PathBuf {
    let shipped = std::fs::read_to_string(inside::root().join("config/prometheus/rules.yaml"));
    let file = directory.join("rules-at-once.yaml");
    std::fs::write(&file, at_once(&shipped.expect("they are there"))).expect("they are written");
    file
}

/// Those of the cluster that fire.
async fn firing(prometheus: &Prometheus) -> BTreeSet<String> {
    let query = format!("ALERTS{{alertstate=\"firing\",name=\"{CLUSTER}\"}}");
    let found = prometheus.query(&query).await.unwrap_or_else(|error| panic!("{error:#}"));
    found.iter().map(|it| it.labels["alertname"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn until(prometheus: &Prometheus, what: &str, holds: impl Fn(&BTreeSet<String>) -> bool) {
    let begun = Instant::now();
    loop {
        let firing = firing(prometheus).await;
        if holds(&firing) {
            return println!("{what} after {:.1} s: {firing:?}", begun.elapsed().as_secs_f64());
        }
        assert!(begun.elapsed() < LIMIT, "not {what}: {firing:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Until Prometheus has read all members, and an operator that sees them serve.
async fn until_read(prometheus: &Prometheus) {
    let begun = Instant::now();
    let all = format!(
        "sum(etcd_server_has_leader) == {MEMBERS} and on () sum(etcd_operator_cluster_ready_members) == {MEMBERS}"
    );
    while prometheus.query(&all).await.unwrap_or_else(|error| panic!("{error:#}")).is_empty() {
        assert!(begun.elapsed() < LIMIT, "not read\n{}", prometheus.log());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn set_node_failed(stage: &Stage, ordinal: u8, failed: bool) {
    let pods: Api<Pod> = stage.world.all(&stage.namespace);
    let pod = pods.get(&format!("{CLUSTER}-{ordinal}")).await.expect("it is there");
    stage.world.stand_in.set_node_failed(&pod.uid().unwrap_or_default(), failed);
}

pub fn fire_and_clear() {
    let world = world();
    world.runtime.block_on(async {
        let stage = Stage::start(world).await;
        let directory = world.kubeconfig.parent().expect("it is in a directory").to_owned();
        let prometheus = prometheus(&stage, MEMBERS, &[rules_at_once(directory)]).await;
        stage.create(json!({"size": MEMBERS})).await;
        until_read(&prometheus).await;
        until(&prometheus, "none fires", BTreeSet::is_empty).await;

        let are = |names: &[&str], firing: &BTreeSet<String>| names.iter().all(|it| firing.contains(*it));
        let are_not =
            |names: &[&str], firing: &BTreeSet<String>| !names.iter().any(|it| firing.contains(*it));
        let one_is_down = |it: &BTreeSet<String>| are(&ONE_DOWN, it) && are_not(&QUORUM_LOST, it);
        set_node_failed(&stage, 2, true).await;
        until(&prometheus, "one is down", one_is_down).await;
        set_node_failed(&stage, 1, true).await;
        until(&prometheus, "quorum is lost", |it| are(&QUORUM_LOST, it)).await;
        set_node_failed(&stage, 1, false).await;
        until(&prometheus, "quorum is back", one_is_down).await;
        set_node_failed(&stage, 2, false).await;
        until(&prometheus, "all serve", |it| are_not(&ONE_DOWN, it) && are_not(&QUORUM_LOST, it)).await;
        stage.until("ready", |it| Until::Ready(MEMBERS).holds(it)).await;
        stage.end().await;
    });
}
