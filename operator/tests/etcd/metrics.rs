//! The metrics of members that our alerts use.

use std::collections::BTreeSet;

use etcd_operator::agent;
use etcd_operator::alerts::ALERTS;
use etcd_operator::reach::Reach;
use testbed::build::STANDARD_ETCD;

use crate::processes::{Processes, until};

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

#[tokio::test]
async fn every_version_serves_the_metrics_that_our_alerts_use() {
    for version in STANDARD_ETCD {
        // Members measure the time to each other only if there are others.
        let cluster = Processes::formed(version, 3).await;
        let wanted: BTreeSet<&str> = ALERTS
            .iter()
            .flat_map(|alert| alert.metrics())
            .filter(|name| name.starts_with("etcd_") || name.starts_with("grpc_"))
            .filter(|name| !name.starts_with("etcd_operator_"))
            .collect();
        assert!(wanted.len() > 8, "{wanted:?}");
        let missing = async |cluster: &Processes| -> Option<Vec<String>> {
            let page = agent::metrics(&Reach::Direct, &cluster.pod(0)).await.ok()?;
            let served = names(&page);
            Some(
                wanted
                    .iter()
                    .filter(|name| !served.contains(**name))
                    .map(|name| (*name).to_owned())
                    .collect(),
            )
        };
        until(&format!("all metrics of {version}"), async || {
            let missing = missing(&cluster).await?;
            missing.is_empty().then_some(()).or_else(|| {
                eprintln!("{version} does not serve yet: {missing:?}");
                None
            })
        })
        .await;
    }
}
