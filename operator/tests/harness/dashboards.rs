//! A real Prometheus reads the operator and real members while a cluster is created and backed up, and every query of the dashboards
//! returns something.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use etcd_operator::dashboards::ALL;
use etcd_operator_core::api::EtcdBackup;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use testbed::monitoring::Prometheus;
use testbed::store::{Options, S3};

use crate::backups::{OF_THE_STORE, create_secrets, to_s3};
use crate::monitoring::prometheus;
use crate::stage::Stage;
use crate::world::{CLUSTER, address_in, world};

const MEMBERS: u8 = 3;
/// Members measure the time to each other every half minute, and a rate needs two measurements.
const LIMIT: Duration = Duration::from_secs(240);
const WINDOW: &str = "45s";

/// Parts of queries that return nothing here, and why.
const ALLOWED_EMPTY: [(&str, &str); 3] = [
    ("kubelet_volume_stats_available_bytes", "kubelets serve it, and there is none"),
    ("etcd_operator_cluster_refusals", "the operator refuses nothing"),
    ("rejected|failed|no_response", "no request of the operator fails"),
];

/// Whether a query has returned something since Prometheus began.
fn ever(query: &str, namespace: &str) -> String {
    let query =
        query.replace("$__rate_interval", WINDOW).replace("$namespace", namespace).replace("$name", CLUSTER);
    format!("count(last_over_time(({query})[10m:1s]))")
}

pub fn show_a_cluster() {
    let world = world();
    world.runtime.block_on(async {
        let stage = Stage::start(world).await;
        let namespace = &stage.namespace;
        let prometheus = prometheus(&stage, MEMBERS, &[]).await;
        let often = json!({"consistencyCheck": {"intervalSeconds": 10}});
        stage.create(json!({"size": MEMBERS, "maintenance": often})).await;
        // Waits of a cluster in motion are shorter than a scrape.
        stage.edit(&json!({"paused": true})).await.expect("it is accepted");
        until_shown(&prometheus, namespace, ["etcd_operator_cluster_waits".to_owned()].into()).await;
        stage.edit(&json!({"paused": false})).await.expect("it is accepted");
        let address = address_in(namespace, OF_THE_STORE).expect("an address");
        let store =
            S3::start_at(address, Options { tls: true, ..Options::default() }).await.expect("a store");
        create_secrets(&stage, &store).await;
        let mut spec = to_s3(&store);
        spec["schedule"] = "* * * * *".into();
        spec["continuous"] = json!({"flushIntervalSeconds": 1});
        let spec = serde_json::from_value(spec).expect("it is a spec");
        let backups: Api<EtcdBackup> = world.all(namespace);
        let backup = EtcdBackup::new("often", spec);
        backups.create(&PostParams::default(), &backup).await.expect("it is valid");

        let all = ALL.iter().flat_map(|it| it.expressions());
        let is_allowed = |query: &str| ALLOWED_EMPTY.iter().any(|(part, _)| query.contains(part));
        until_shown(&prometheus, namespace, all.filter(|query| !is_allowed(query)).collect()).await;
        backups.delete("often", &Default::default()).await.expect("it is there");
        stage.end().await;
    });
}

/// Until each of these queries has returned something.
async fn until_shown(prometheus: &Prometheus, namespace: &str, mut missing: BTreeSet<String>) {
    let begun = Instant::now();
    while !missing.is_empty() {
        assert!(begun.elapsed() < LIMIT, "no series: {missing:#?}\n{}", prometheus.log());
        tokio::time::sleep(Duration::from_secs(1)).await;
        for query in missing.clone() {
            let found = prometheus.query(&ever(&query, namespace)).await;
            if !found.unwrap_or_else(|error| panic!("{query}: {error:#}")).is_empty() {
                missing.remove(&query);
            }
        }
    }
}
