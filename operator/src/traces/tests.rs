use std::net::SocketAddr;

use hyper::Request;
use serde_json::Value;
use tokio::net::TcpListener;
use tracing::Instrument;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;

use self::collector::{Collector, field};
use super::*;
use crate::telemetry;

#[path = "../../tests/harness/collector.rs"]
mod collector;

fn trace(traces: Traces) -> DefaultGuard {
    let subscriber = tracing_subscriber::registry().with(traces.with_filter(filter_fn(is_traced)));
    tracing::subscriber::set_default(subscriber)
}

fn asked() -> Asked {
    Asked::by(&Request::get("/api/v1/namespaces/ns/pods/kv-0").body(()).expect("a request"))
}

/// One round that observes and then fails to add a learner.
async fn round() {
    let round = async {
        async { drop(api(&asked())) }.instrument(observation()).await;
        let effect = effect("AddLearner");
        async { drop(etcd("add a learner", "kv-0")) }.instrument(effect.clone()).await;
        effect.record("outcome", "rejected");
    };
    round.instrument(telemetry::round("EtcdCluster shop/kv")).await;
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    spans.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("no span {name}: {spans:#?}"))
}

#[tokio::test]
async fn a_round_reaches_the_collector_as_one_tree_with_its_number() {
    let collector = Collector::start().await;
    let (traces, exporter) = to(&collector.endpoint, "operator-0".into()).expect("an endpoint");
    let exporter = tokio::spawn(exporter.run());
    let guard = trace(traces);
    round().await;
    let spans = collector.until("five spans", |spans| spans.len() >= 5).await;
    drop(guard);
    let [root, observed, request, effect, call] =
        ["round", "observe", "API request", "effect", "etcd call"].map(|name| named(&spans, name));
    assert!(root.get("parentSpanId").is_none() && field(root, "round").parse::<u64>().is_ok(), "{root}");
    assert_eq!(field(root, "object"), "EtcdCluster shop/kv");
    for (child, parent) in [(observed, root), (request, observed), (effect, root), (call, effect)] {
        assert_eq!((&child["parentSpanId"], &child["traceId"]), (&parent["spanId"], &root["traceId"]));
        let time = |span: &Value, which: &str| -> u128 {
            span[which].as_str().and_then(|it| it.parse().ok()).expect("nanoseconds")
        };
        assert!(time(parent, "startTimeUnixNano") <= time(child, "startTimeUnixNano"), "{child}");
        assert!(time(child, "startTimeUnixNano") <= time(child, "endTimeUnixNano"), "{child}");
    }
    let length = |value: &Value| value.as_str().expect("hexadecimal").len();
    assert_eq!((length(&root["traceId"]), length(&root["spanId"])), (32, 16));
    assert_eq!(field(request, "request"), "get pods ns/kv-0");
    assert_eq!((field(call, "call"), field(call, "pod")), ("add a learner", "kv-0"));
    assert_eq!((field(effect, "effect"), &effect["status"]["code"]), ("AddLearner", &2.into()));
    assert!(root.get("status").is_none());
    tokio::time::timeout(std::time::Duration::from_secs(10), exporter)
        .await
        .expect("it ends")
        .expect("no panic");
}

#[tokio::test]
async fn rounds_are_traces_of_their_own_and_what_no_round_asks_for_is_no_trace() {
    let (sender, mut ended) = mpsc::channel(LONGEST_QUEUE);
    let guard = trace(Traces::new(sender));
    drop(api(&asked()));
    round().await;
    round().await;
    drop(guard);
    let mut spans = Vec::new();
    while let Some(span) = ended.recv().await {
        spans.push(span);
    }
    let count = |name| spans.iter().filter(|it| it.name == name).count();
    assert_eq!((spans.len(), count("round"), count("API request")), (10, 2, 2));
    let mut traces: Vec<u128> = spans.iter().map(|it| it.trace).collect();
    traces.dedup();
    assert_eq!(traces.len(), 2);
}

#[tokio::test]
async fn spans_that_nobody_takes_are_dropped() {
    let (sender, mut ended) = mpsc::channel(2);
    let guard = trace(Traces::new(sender));
    round().await;
    drop(guard);
    let (first, second, third) = (ended.recv().await, ended.recv().await, ended.recv().await);
    assert!(first.is_some() && second.is_some() && third.is_none());
}

#[test]
fn without_a_collector_no_span_exists_however_much_is_logged() {
    for filter in [telemetry::DEFAULT_FILTER, "trace"] {
        let filter = telemetry::filter(filter).expect("it is one");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(filter), || {
            let spans = [read(), observation(), effect("x"), api(&asked()), etcd("x", "kv-0")];
            assert!(spans.iter().all(Span::is_disabled));
            assert!(!telemetry::round("EtcdCluster shop/kv").is_disabled());
        });
    }
}

#[tokio::test]
async fn a_collector_that_is_away_is_survived_and_used_when_it_is_there() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address: SocketAddr = free.local_addr().expect("it is bound");
    drop(free);
    let (traces, mut exporter) = to(&format!("http://{address}"), "operator-0".into()).expect("an endpoint");
    let guard = trace(traces);
    round().await;
    assert!(exporter.deliver().await, "the first round is dropped");
    let collector = Collector::at(address).await;
    round().await;
    assert!(exporter.deliver().await);
    let spans = collector.until("the second round", |spans| !spans.is_empty()).await;
    assert_eq!(spans.iter().filter(|it| it["name"] == "round").count(), 1);
    drop(guard);
    assert!(!exporter.deliver().await, "nothing makes spans any more");
}

#[test]
fn an_endpoint_has_a_host_and_no_tls() {
    for invalid in ["", "localhost:4318", "https://collector:4318", "http://", "http://x/?a=b"] {
        let error = to(invalid, String::new()).err().unwrap_or_else(|| panic!("{invalid} is accepted"));
        assert!(error.to_string().contains(invalid), "{error}");
    }
    for valid in ["http://localhost:4318", "http://[::1]:4318/", "http://collector/otlp"] {
        assert!(to(valid, String::new()).is_ok(), "{valid}");
    }
}
