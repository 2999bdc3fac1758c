//! Logs: text on a terminal, JSON elsewhere.
//!
//! Levels: info = something changed; debug = why nothing was done; warn = degraded, will be tried again;
//! error = somebody has to look. Messages are constant text and values are fields, one name per meaning:
//! `object` (kind, namespace and name), `objects` (how many) and `object_kind`, `generation`, `address`,
//! `version`, `holder` (of the Lease), `reason` (of a wait), `snapshot` (an observation), `error`, its `kind` and (of a panic)
//! its `location`. A line of a round also has a `span` with the `object` and the number of the `round`, by which all lines of one
//! round are found, those of its requests included.

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};

use etcd_operator_core::decide::Goal;
use etcd_operator_core::observed::Observed;
use etcd_operator_core::snapshot::Snapshot;
use tracing::Span;
use tracing_subscriber::filter::{ParseError, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, fmt as logs, registry};

use crate::traces::{self, Traces, is_traced};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid log filter {filter:?}")]
    Filter { filter: String, source: ParseError },
    #[error("cannot start logging")]
    Start(#[source] TryInitError),
}

/// What is logged unless somebody asks for more. kube's own spans would repeat what our fields say, and its client tells
/// of every single request that fails, which we tell once and with what it was for.
pub const DEFAULT_FILTER: &str = "info,kube_runtime=warn,kube_client=off";

/// Logs to standard error from now on, and makes traces if that is asked for. The filter is in the language of `RUST_LOG`, such
/// as `info,kube=debug`, and is for logs alone.
pub fn start(for_logs: &str, traces: Option<Traces>) -> Result<(), Error> {
    let invalid = |source| Error::Filter { filter: for_logs.to_owned(), source };
    let filter = filter(for_logs).map_err(invalid)?;
    let started = match traces {
        None => registry().with(to_standard_error()).with(filter).try_init(),
        Some(traces) => {
            let traces = traces.with_filter(filter_fn(is_traced));
            registry().with(to_standard_error().with_filter(filter)).with(traces).try_init()
        }
    };
    started.map_err(Error::Start)
}

/// Spans that are for traces would take the place of the round in a line.
pub(crate) fn filter(for_logs: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{for_logs},{}=off", traces::TARGET))
}

fn to_standard_error<S>() -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let logs = logs::layer().with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        logs.boxed()
    } else {
        logs.json().flatten_event(true).with_span_list(false).with_target(false).boxed()
    }
}

/// Around one round of a cluster. Its number is unique in this process.
pub fn round(object: &str) -> Span {
    static ROUNDS: AtomicU64 = AtomicU64::new(1);
    tracing::info_span!("round", object, round = ROUNDS.fetch_add(1, Ordering::Relaxed))
}

/// For `etcd-operator replay`, if the filter asks for it: goal and observation, as JSON in one field.
pub fn log_observation(object: &str, goal: &Goal, observed: &Observed) {
    if tracing::enabled!(target: "etcd_operator::observation", tracing::Level::DEBUG) {
        let snapshot = Snapshot { goal: goal.clone(), observed: observed.clone() };
        let snapshot = serde_json::to_string(&snapshot).unwrap_or_else(|error| error.to_string());
        tracing::debug!(target: "etcd_operator::observation", object, snapshot, "observed");
    }
}

/// Logs each panic with its location. What catches it logs which object it was about.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string);
        tracing::error!(error = panic.payload_as_str().unwrap_or("no message"), location, "panicked");
    }));
}

/// An error with all its causes on one line. A cause that its parent has quoted already is not repeated.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> impl fmt::Display {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let answer = answer(error);
        let words = answer.map_or_else(|| error.to_string(), str::to_owned);
        if text.is_empty() {
            text = words;
        } else if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = if answer.is_some() { None } else { error.source() };
    }
    text
}

/// What the API server answers is a sentence already; kube adds all of its structure.
fn answer<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(answer)) => Some(answer.message.as_str()).filter(|message| !message.is_empty()),
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("middle quotes inner")]
    struct Middle(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;

    fn logged(filter: &str, log: impl FnOnce()) -> String {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Arc::new(writer));
        let subscriber = subscriber.json().flatten_event(true).with_span_list(false).with_target(false);
        tracing::subscriber::with_default(subscriber.finish(), log);
        std::io::read_to_string(reader).expect("text")
    }

    #[test]
    fn all_lines_of_a_round_have_its_number_and_the_next_round_has_another() {
        let lines = logged(DEFAULT_FILTER, || {
            for _ in 0..2 {
                let round = round("EtcdCluster shop/kv");
                round.in_scope(|| tracing::info!("step done"));
                round.in_scope(|| tracing::warn!("step failed, retrying"));
            }
        });
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let rounds: Vec<_> =
            lines.iter().map(|line| line["span"]["round"].as_u64().expect("a number")).collect();
        assert_eq!((rounds[0], rounds[2]), (rounds[1], rounds[3]));
        assert_ne!(rounds[0], rounds[2]);
        assert_eq!(lines[0]["span"]["object"], "EtcdCluster shop/kv");
    }

    #[test]
    fn an_observation_is_logged_on_request_in_one_line_that_replay_reads() {
        let goal = Goal::of_size(3);
        let observed = Observed::nothing_of("uid");
        let snapshot = Snapshot { goal, observed };
        let log = || log_observation("kv", &snapshot.goal, &snapshot.observed);
        assert_eq!(logged(DEFAULT_FILTER, log), "");
        let line = logged("info,etcd_operator::observation=debug", log);
        assert_eq!(line.lines().count(), 1, "{line}");
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let read: Snapshot =
            serde_json::from_str(line["snapshot"].as_str().expect("text")).expect("a snapshot");
        assert_eq!((line["object"].as_str(), read), (Some("kv"), snapshot));
    }

    #[test]
    fn what_the_api_server_says_is_told_as_it_is() {
        let answer =
            kube::core::Status { message: "pods is forbidden".into(), code: 403, ..Default::default() };
        assert_eq!(chain(&kube::Error::Api(answer.boxed())).to_string(), "pods is forbidden");
    }

    #[test]
    fn causes_are_told_once() {
        assert_eq!(chain(&Outer(Middle(Inner))).to_string(), "outer: middle quotes inner");
    }

    #[test]
    fn a_filter_that_makes_no_sense_is_named() {
        let error = start("info,=", None).expect_err("no such filter");
        assert!(error.to_string().contains("info,="), "{error}");
    }
}
