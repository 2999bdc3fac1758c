//! One task for all objects of a kind: a round for one of them after the other, when it changes or wanted to be asked again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tracing::Instrument;

use crate::caches::Key;
use crate::supervisor::caught;
use crate::telemetry::{self, chain};

/// After a request that failed.
const RETRY: Duration = Duration::from_secs(5);
/// The others do not notice.
const AFTER_PANIC: Duration = Duration::from_secs(60);
/// Timers that are further away are set again.
const LONGEST: Duration = Duration::from_secs(3600);

pub trait Rounds {
    /// As logs have it: the kind, the namespace and the name.
    fn title(key: &Key) -> String;

    /// Those that there is something to do for when the task begins.
    fn all(&self) -> Vec<Key>;

    /// Returns how long to wait for a change.
    async fn round(&mut self, key: &Key) -> kube::Result<Option<Duration>>;
}

/// Never ends.
pub async fn run<R: Rounds>(mut rounds: R, mut woken: UnboundedReceiver<Key>) {
    let mut timers: BTreeMap<Key, Instant> = BTreeMap::new();
    for key in rounds.all() {
        timers.insert(key, Instant::now());
    }
    loop {
        let next = timers.iter().min_by_key(|(_, at)| **at).map(|(key, at)| (key.clone(), *at));
        let until = next.as_ref().map_or_else(|| Instant::now() + LONGEST, |(_, at)| *at);
        let due = tokio::select! {
            key = woken.recv() => match key {
                Some(key) => key,
                None => return,
            },
            () = tokio::time::sleep_until(until) => match next {
                Some((key, _)) => key,
                None => continue,
            },
        };
        timers.remove(&due);
        let title = R::title(&due);
        let pause = match caught(rounds.round(&due)).instrument(telemetry::round(&title)).await {
            Ok(Ok(pause)) => pause,
            Ok(Err(error)) => {
                after(&title, &error);
                Some(RETRY)
            }
            Err(panic) => {
                tracing::error!(object = title, error = panic, "round panicked, retrying");
                Some(AFTER_PANIC)
            }
        };
        if let Some(pause) = pause {
            timers.insert(due, Instant::now() + pause.min(LONGEST));
        }
    }
}

/// The one place where a request that failed is logged.
fn after(title: &str, error: &kube::Error) {
    // The change that caused it wakes us as well.
    let is_overtaken = matches!(error, kube::Error::Api(status) if [404, 409].contains(&status.code));
    if is_overtaken {
        tracing::debug!(object = title, error = %chain(error), "object changed in the meantime");
    } else {
        tracing::warn!(object = title, error = %chain(error), "request failed, retrying");
    }
}
