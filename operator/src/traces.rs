//! Traces on request: each round with what it reads, observes and sends, for a collector that accepts OTLP over HTTP. Without a
//! collector none of these spans exists.
//!
//! The names of spans and of their fields are constants, and so few that no library is worth its size (docs/adr/0066).

mod export;
mod otlp;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

pub use self::export::{Error, Exporter, to};
use self::otlp::{Ended, Fields};
use crate::client::Asked;

/// Of spans that are for traces and not for logs.
pub const TARGET: &str = "etcd_operator::traces::span";
/// The span around everything else of a trace, which logs have, too.
pub const ROUND: &str = "round";
/// What the collector has not accepted yet. More is dropped: a trace is never worth memory.
const LONGEST_QUEUE: usize = 4096;

macro_rules! span {
    ($($all:tt)*) => { tracing::trace_span!(target: TARGET, $($all)*) };
}

/// Around the reads of the objects of a cluster.
pub fn read() -> Span {
    span!("read")
}

/// Around the questions to the members.
pub fn observation() -> Span {
    span!("observe")
}

/// Around one change. How it ends is recorded as its `outcome`.
pub fn effect(effect: &'static str) -> Span {
    span!("effect", effect, outcome = tracing::field::Empty)
}

/// Around a request to the API server.
pub fn api(asked: &Asked) -> Span {
    span!("API request", request = %asked, status = tracing::field::Empty)
}

/// Around a call to the member in this pod.
pub fn etcd(call: &'static str, pod: &str) -> Span {
    span!("etcd call", call, pod, outcome = tracing::field::Empty)
}

/// Whether a span can be part of a trace.
pub fn is_traced(metadata: &Metadata<'_>) -> bool {
    let is_round = metadata.name() == ROUND && metadata.target().starts_with("etcd_operator");
    metadata.is_span() && (metadata.target() == TARGET || is_round)
}

/// Makes traces of the spans of rounds.
pub struct Traces {
    ended: mpsc::Sender<Ended>,
    random: RandomState,
    ids: AtomicU64,
}

/// A span that has not ended.
struct Begun {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    at: Timestamp,
    instant: Instant,
    fields: Fields,
}

impl Traces {
    fn new(ended: mpsc::Sender<Ended>) -> Self {
        Self { ended, random: RandomState::new(), ids: AtomicU64::new(1) }
    }

    /// The keys of the hash are random, so other processes have other IDs. Zero is no ID.
    fn id(&self) -> u64 {
        self.random.hash_one(self.ids.fetch_add(1, Ordering::Relaxed)).max(1)
    }

    fn trace(&self) -> u128 {
        u128::from(self.id()) << 64 | u128::from(self.id())
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Traces {
    /// What no round asked for, such as a watch, belongs to no trace.
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().and_then(|it| it.extensions().get::<Begun>().map(|it| (it.trace, it.id)));
        let (trace, parent) = match parent {
            Some((trace, parent)) => (trace, Some(parent)),
            None if attributes.metadata().name() == ROUND => (self.trace(), None),
            None => return,
        };
        let (at, instant, mut fields) = (Timestamp::now(), Instant::now(), Fields::default());
        attributes.record(&mut fields);
        span.extensions_mut().insert(Begun { trace, id: self.id(), parent, at, instant, fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(begun) = span.extensions_mut().get_mut::<Begun>() {
            values.record(&mut begun.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Begun { trace, id, parent, at, instant, fields }) = span.extensions_mut().remove() else {
            return;
        };
        let begin = at.as_nanosecond();
        let end = begin + i128::try_from(instant.elapsed().as_nanos()).unwrap_or_default();
        let name = span.metadata().name();
        // Full: the collector is slow or away, which the exporter reports.
        let _ = self.ended.try_send(Ended { trace, id, parent, name, begin, end, fields });
    }
}

#[cfg(test)]
mod tests;
