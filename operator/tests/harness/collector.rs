//! A collector of traces on loopback, which keeps the spans that it receives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(60);

pub struct Collector {
    pub endpoint: String,
    spans: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    pub async fn start() -> Self {
        Self::at(([127, 0, 0, 1], 0).into()).await
    }

    pub async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let spans = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&spans);
        let keep = async move |headers: HeaderMap, body: String| {
            assert_eq!(headers["content-type"], "application/json");
            let request: Value = serde_json::from_str(&body).expect("it is JSON");
            let resource = &request["resourceSpans"][0];
            assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "etcd-operator");
            let received = resource["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
            kept.lock().expect("nobody panicked").extend(received);
            "{}"
        };
        let router = Router::new().route("/v1/traces", post(keep));
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { endpoint, spans }
    }

    /// Until what was received is enough.
    pub async fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let spans = self.spans.lock().expect("nobody panicked").clone();
            if holds(&spans) {
                return spans;
            }
            assert!(begun.elapsed() < LIMIT, "never: {what}; received: {spans:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What a span has recorded under this name.
pub fn field<'a>(span: &'a Value, name: &str) -> &'a str {
    let attributes = span["attributes"].as_array().expect("a list");
    let found = attributes.iter().find(|it| it["key"] == name);
    let value =
        |it: &'a Value| it["value"]["stringValue"].as_str().or_else(|| it["value"]["intValue"].as_str());
    found.and_then(value).unwrap_or_default()
}
