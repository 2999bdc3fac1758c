//! A real Prometheus reads the operator's metrics, and our alerts follow from them.

use std::path::Path;
use std::time::{Duration, Instant};

use etcd_operator::metrics::Metrics;
use etcd_operator::metrics::server::{Protection, serve};
use serde_json::json;
use testbed::monitoring::Prometheus;
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(60);

async fn until(prometheus: &Prometheus, query: &str, expected: &[&str]) {
    let begun = Instant::now();
    loop {
        let found = prometheus.query(query).await.unwrap_or_else(|error| panic!("{error:#}"));
        let values: Vec<&str> = found.iter().map(|series| series.value.as_str()).collect();
        if values == expected {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{query} is {values:?}, not {expected:?}\n{}", prometheus.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn prometheus_reads_the_metrics_and_an_alert_appears_and_clears() {
    let metrics = Metrics::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(serve(listener, metrics.clone(), Protection::None, std::future::pending()));
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/prometheus/rules.yaml");
    let scraped = json!([{
        "job_name": "etcd-operator", "honor_labels": true,
        "static_configs": [{"targets": [address.to_string()]}],
    }]);
    let prometheus = Prometheus::start(&scraped, &[rules]).await.expect("prometheus runs");

    until(&prometheus, "up{job=\"etcd-operator\"}", &["1"]).await;
    until(&prometheus, "etcd_operator_leader", &["0"]).await;
    until(&prometheus, "etcd_operator_build_info{version=\"0.1.0\"}", &["1"]).await;
    let absent = "ALERTS{alertname=\"EtcdOperatorAbsent\",severity=\"critical\"}";
    until(&prometheus, absent, &["1"]).await;
    let leading = metrics.leading();
    until(&prometheus, "etcd_operator_leader", &["1"]).await;
    until(&prometheus, absent, &[]).await;
    drop(leading);
    until(&prometheus, absent, &["1"]).await;
}
