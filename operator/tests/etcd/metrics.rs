//! The metrics of members that our alerts and dashboards use.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use etcd_operator::agent;
use etcd_operator::alerts::{ALERTS, metrics_in};
use etcd_operator::dashboards::ALL;
use etcd_operator::reach::Reach;
use futures::future::join_all;
use testbed::build::STANDARD_ETCD;

use crate::processes::Processes;

/// The names in a page of metrics: those of its series, and of families without one yet.
fn names(page: &str) -> BTreeSet<&str> {
    let name = |line: &str| line.find(['{', ' ']).unwrap_or(line.len());
    page.lines()
        .filter_map(|line| match line.strip_prefix("# TYPE ") {
            Some(family) => family.split(' ').next(),
            None if line.starts_with('#') => None,
            None => Some(&line[..name(line)]),
        })
        .collect()
}

/// Members measure the time to each other every half minute.
const LIMIT: Duration = Duration::from_secs(120);

async fn serves(version: &str, wanted: &BTreeSet<&str>) {
    let cluster = Processes::formed(version, 3).await;
    let missing = async || {
        let page = agent::metrics(&Reach::Direct, &cluster.pod(0)).await.expect("it has a page of metrics");
        let served = names(&page);
        wanted.iter().filter(|name| !served.contains(**name)).map(ToString::to_string).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    loop {
        let missing = missing().await;
        if missing.is_empty() {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{version} does not serve {missing:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn every_version_serves_the_metrics_that_our_alerts_and_dashboards_use() {
    // Labels of calls begin with grpc_, too.
    let is_of_etcd = |name: &&str| name.starts_with("etcd_") || name.starts_with("grpc_server_");
    let queries: Vec<String> = ALL.iter().flat_map(|it| it.expressions()).collect();
    let of_dashboards = queries.iter().flat_map(|query| metrics_in(query));
    let wanted: BTreeSet<&str> = ALERTS
        .iter()
        .flat_map(|alert| alert.metrics())
        .chain(of_dashboards)
        .filter(is_of_etcd)
        .filter(|name| !name.starts_with("etcd_operator_"))
        .collect();
    assert!(wanted.len() > 15, "{wanted:?}");
    join_all(STANDARD_ETCD.map(|version| serves(version, &wanted))).await;
}
