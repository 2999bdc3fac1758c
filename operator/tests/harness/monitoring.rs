//! A real Prometheus that reads the operator and the members of a stage, with the labels that `config/prometheus` sets.

use std::path::PathBuf;

use etcd_operator::metrics::Metrics;
use etcd_operator::metrics::server::{Protection, serve};
use etcd_operator_core::etcd_config::METRICS_PORT;
use serde_json::{Value, json};
use testbed::monitoring::Prometheus;
use tokio::net::TcpListener;

use crate::stage::Stage;
use crate::world::{CLUSTER, address_in};

/// Before the cluster is created, which has this many members.
pub async fn prometheus(stage: &Stage, members: u8, rules: &[PathBuf]) -> Prometheus {
    let operator = served(stage.metrics()).await;
    let scraped = scraped(&operator, &stage.namespace, members);
    Prometheus::start(&scraped, rules).await.expect("prometheus runs")
}

async fn served(metrics: Metrics) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(serve(listener, metrics, Protection::None, std::future::pending()));
    address.to_string()
}

fn scraped(operator: &str, namespace: &str, members: u8) -> Value {
    let member = |ordinal: u8| {
        let address = address_in(namespace, ordinal).expect("an address");
        let labels = json!({"namespace": namespace, "name": CLUSTER, "pod": format!("{CLUSTER}-{ordinal}")});
        json!({"targets": [format!("{address}:{METRICS_PORT}")], "labels": labels})
    };
    let members: Vec<Value> = (0..members).map(member).collect();
    json!([
        {"job_name": "etcd-operator", "honor_labels": true, "static_configs": [{"targets": [operator]}]},
        {"job_name": "etcd-members", "static_configs": members},
    ])
}
