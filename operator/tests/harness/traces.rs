//! A collector receives the rounds of a real cluster, with what each of them read, asked and sent.

use std::collections::BTreeSet;

use etcd_operator::{telemetry, traces};
use serde_json::{Value, json};

use crate::collector::{Collector, field};
use crate::stage::Stage;
use crate::world::{CLUSTER, world};

const ALL: [&str; 6] = ["round", "read", "observe", "effect", "API request", "etcd call"];

/// The spans of the rounds of this object.
fn of<'a>(object: &str, spans: &'a [Value]) -> Vec<&'a Value> {
    let rounds = spans.iter().filter(|it| it["name"] == "round" && field(it, "object") == object);
    let traces: BTreeSet<&str> = rounds.filter_map(|it| it["traceId"].as_str()).collect();
    spans.iter().filter(|it| it["traceId"].as_str().is_some_and(|it| traces.contains(it))).collect()
}

/// As paths of names from the round to each span.
fn paths(spans: &[&Value]) -> BTreeSet<String> {
    let by_id = |id: &Value| spans.iter().find(|it| it["spanId"] == *id).copied();
    let path = |span: &&Value| {
        let above = std::iter::successors(Some(*span), |it| by_id(it.get("parentSpanId")?));
        let mut names: Vec<&str> = above.filter_map(|it| it["name"].as_str()).collect();
        names.reverse();
        names.join(" > ")
    };
    spans.iter().map(path).collect()
}

/// Tracing cannot be switched off again, so this is the last of all tests.
pub fn show_rounds() {
    let world = world();
    world.runtime.block_on(async {
        let collector = Collector::start().await;
        let (traces, exporter) = traces::to(&collector.endpoint, "harness".into()).expect("an endpoint");
        telemetry::start("off", Some(traces)).expect("HARNESS_LOG is not set");
        tokio::spawn(exporter.run());
        let stage = Stage::start(world).await;
        stage.create(json!({"size": 1})).await;
        let object = format!("EtcdCluster {}/{CLUSTER}", stage.namespace);
        let expected = [
            "round",
            "round > read > API request",
            "round > observe > etcd call",
            "round > effect > API request",
        ];
        let is_complete = |spans: &[Value]| {
            let paths = paths(&of(&object, spans));
            expected.iter().all(|it| paths.contains(*it))
        };
        let spans = collector.until("rounds with all that they do", is_complete).await;
        let ours = of(&object, &spans);
        assert!(ours.iter().all(|it| it["name"].as_str().is_some_and(|it| ALL.contains(&it))), "{ours:#?}");
        let has = |name: &str, key: &str, value: &str| {
            ours.iter().any(|it| it["name"] == name && field(it, key) == value)
        };
        assert!(has("effect", "effect", "SetReplicas") && has("effect", "outcome", "done"));
        assert!(has("etcd call", "call", "serve a linearizable read") && has("etcd call", "outcome", "ok"));
        let created = format!("create statefulsets {}", stage.namespace);
        assert!(has("API request", "request", &created) && has("API request", "status", "201"));
        let is_watch = |it: &Value| field(it, "request").starts_with("watch ");
        assert!(!spans.iter().any(is_watch), "a watch belongs to no round");
        stage.end().await;
    });
}
