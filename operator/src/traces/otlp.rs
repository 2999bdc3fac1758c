//! Spans as OTLP over HTTP has them in JSON: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>.

use std::fmt;

use serde_json::{Value, json};
use tracing::field::{Field, Visit};

/// An internal operation.
const INTERNAL: u8 = 1;
/// What outcomes are no failure.
const SUCCESSES: [&str; 3] = ["ok", "done", "not_found"];
const FAILED: u8 = 2;

/// A span that has ended. Times are in nanoseconds since 1970.
#[derive(Debug)]
pub struct Ended {
    pub trace: u128,
    pub id: u64,
    pub parent: Option<u64>,
    pub name: &'static str,
    pub begin: i128,
    pub end: i128,
    pub fields: Fields,
}

/// In the order in which they were recorded.
#[derive(Debug, Default)]
pub struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn push(&mut self, field: &Field, value: Value) {
        self.0.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, json!({"stringValue": format!("{value:?}")}));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, json!({"stringValue": value}));
    }

    /// Numbers of 64 bits are texts in this encoding.
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, json!({"intValue": value.to_string()}));
    }
}

impl Ended {
    fn rendered(&self) -> Value {
        let Self { trace, id, parent, name, begin, end, fields } = self;
        let attributes: Vec<Value> = fields.0.iter().map(|(key, value)| attribute(key, value)).collect();
        let mut span = json!({
            "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "name": name, "kind": INTERNAL,
            "startTimeUnixNano": begin.to_string(), "endTimeUnixNano": end.to_string(), "attributes": attributes,
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        let outcome = fields.0.iter().find(|(key, _)| *key == "outcome");
        let outcome = outcome.and_then(|(_, value)| value["stringValue"].as_str());
        if outcome.is_some_and(|it| !SUCCESSES.contains(&it)) {
            span["status"] = json!({"code": FAILED, "message": outcome});
        }
        span
    }
}

fn attribute(key: &str, value: &Value) -> Value {
    json!({"key": key, "value": value})
}

/// The content of one request to `/v1/traces`.
pub fn request(instance: &str, spans: &[Ended]) -> Value {
    let text = |key: &str, value: &str| attribute(key, &json!({"stringValue": value}));
    let resource = json!([
        text("service.name", "etcd-operator"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", instance),
    ]);
    let spans: Vec<Value> = spans.iter().map(Ended::rendered).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "etcd-operator"}, "spans": spans}],
    }]})
}
