//! Keeps the worker of one cluster running: a panic in it is reported, and it starts again later. Other clusters do
//! not notice, and the operator goes on holding its Lease, which no worker touches.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::Names;
use etcd_operator_core::status::after_panic;
use futures::FutureExt;
use jiff::Timestamp;
use kube::Api;
use tokio::sync::Notify;

use crate::caches::Key;
use crate::cluster::{Context, Reporter, Worker};
use crate::telemetry::chain;

const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(60);
/// A worker that ran for this long has recovered: its next panic is the first one again.
const RECOVERED_AFTER: Duration = Duration::from_secs(600);

/// Until the cluster is gone. Dropping it drops the worker.
pub async fn run(key: Key, context: Arc<Context>, wake: Arc<Notify>) {
    let (key, context) = (&key, &context);
    // It outlives a worker that panics: that nothing is observed any more has to show.
    let meter = &context.metrics.meter(key);
    let start = || Worker::new(key.clone(), Arc::clone(context), Arc::clone(&wake), Arc::clone(meter)).run();
    let report = |panic| {
        meter.panicked();
        report(context, key, panic)
    };
    supervise(Restarts::default(), start, report).await;
}

async fn supervise<W: Future<Output = ()>, R: Future<Output = ()>>(
    mut restarts: Restarts,
    mut start: impl FnMut() -> W,
    mut report: impl FnMut(String) -> R,
) {
    loop {
        let begun = Instant::now();
        let Err(panic) = caught(async { start().await }).await else { return };
        // What reports a panic might panic as well.
        let _ = caught(async { report(panic).await }).await;
        tokio::time::sleep(restarts.next(begun.elapsed())).await;
    }
}

/// The message of a panic is the error.
///
/// Nothing that others use is left half changed by a panic: a worker shares caches, which only the watches write, a
/// client, and a lock that is taken over when it is poisoned.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

/// How long to wait before each restart: twice as long each time.
struct Restarts {
    first: Duration,
    panics: u32,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { first: FIRST_RESTART, panics: 0 }
    }
}

impl Restarts {
    /// The pause after a worker that ran for this long.
    fn next(&mut self, ran: Duration) -> Duration {
        if ran >= RECOVERED_AFTER {
            self.panics = 0;
        }
        let pause = self.first.saturating_mul(1 << self.panics.min(10)).min(LONGEST_RESTART);
        self.panics = self.panics.saturating_add(1);
        pause
    }
}

/// Into the log, the status and an event.
async fn report(context: &Context, key: &Key, panic: String) {
    let Key { namespace, name } = key;
    let object = format!("EtcdCluster {namespace}/{name}");
    tracing::error!(object, error = panic, "worker panicked, restarting it with backoff");
    if let Err(error) = write_status(context, key, &panic).await {
        tracing::warn!(object, error = %chain(&error), "cannot report the panic");
    }
}

async fn write_status(context: &Context, key: &Key, panic: &str) -> kube::Result<()> {
    let clusters: Api<EtcdCluster> = Api::namespaced(context.client.clone(), &key.namespace);
    let Some(cluster) = clusters.get_opt(&key.name).await? else { return Ok(()) };
    let Some((status, event)) = after_panic(&cluster, panic, Timestamp::now()) else { return Ok(()) };
    let names = Names::of(&cluster, &context.domain);
    Reporter::new(context).unobserved(&cluster, &names, (status, event)).await.map(drop)
}

/// A panic on purpose in every round of one cluster, which shows in the shipped program that other clusters do not
/// notice. An environment variable of the operator's own process asks for it: users of the API cannot set it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlantedPanic(Option<Key>);

impl PlantedPanic {
    /// Its value is `NAMESPACE/NAME`.
    pub const VARIABLE: &str = "ETCD_OPERATOR_PLANT_PANIC";

    pub fn of(cluster: &str) -> Option<Self> {
        let (namespace, name) = cluster.split_once('/')?;
        let key = Key { namespace: namespace.into(), name: name.into() };
        (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then_some(Self(Some(key)))
    }

    pub fn strike(&self, key: &Key) {
        if self.0.as_ref() == Some(key) {
            panic!("planted by {}", Self::VARIABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn at_once() -> Restarts {
        Restarts { first: Duration::ZERO, panics: 0 }
    }

    #[test]
    fn each_restart_waits_longer_but_not_for_ever_longer_and_a_long_run_begins_anew() {
        let mut restarts = Restarts::default();
        let pauses: Vec<u64> = (0..40).map(|_| restarts.next(Duration::ZERO).as_secs()).collect();
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pauses[39], 60);
        assert_eq!(restarts.next(RECOVERED_AFTER), FIRST_RESTART);
    }

    #[tokio::test]
    async fn a_worker_that_panics_is_reported_and_started_again_until_it_ends_by_itself() {
        let (starts, reports) = (Cell::new(0), RefCell::new(Vec::new()));
        let start = || {
            starts.set(starts.get() + 1);
            let start = starts.get();
            assert_ne!(start, 1, "before it is even there");
            async move {
                tokio::task::yield_now().await;
                if start == 2 {
                    panic!("in round {start}");
                }
            }
        };
        let report = |panic| {
            reports.borrow_mut().push(panic);
            async {}
        };
        supervise(at_once(), start, report).await;
        assert_eq!(starts.get(), 3);
        let reports = reports.into_inner();
        assert!(reports[0].contains("before it is even there") && reports[1] == "in round 2", "{reports:?}");
    }

    #[tokio::test]
    async fn a_report_that_panics_does_not_keep_the_worker_from_starting_again() {
        let starts = Cell::new(0);
        let start = || {
            starts.set(starts.get() + 1);
            let start = starts.get();
            async move { assert_eq!(start, 3) }
        };
        supervise(at_once(), start, |_| async { panic!("while reporting") }).await;
        assert_eq!(starts.get(), 3);
    }

    #[tokio::test]
    async fn others_do_not_notice_and_dropping_the_supervisor_drops_the_worker() {
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        let quiet = supervise(
            at_once(),
            || {
                let held = Arc::clone(&held);
                async move {
                    std::future::pending::<()>().await;
                    drop(held);
                }
            },
            |_| async {},
        );
        let panics = Cell::new(0);
        let panicking = supervise(
            at_once(),
            || async { panic!("again") },
            |_| {
                panics.set(panics.get() + 1);
                async {}
            },
        );
        let enough = async {
            while panics.get() < 5 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = quiet => panic!("it noticed"),
            () = panicking => panic!("it ended"),
            () = enough => {}
        }
        drop(held);
        assert_eq!(Arc::strong_count(&dropped), 1);
    }

    #[test]
    fn a_panic_is_planted_in_one_cluster_alone() {
        let key = |name: &str| Key { namespace: "shop".into(), name: name.into() };
        let planted = PlantedPanic::of("shop/kv").expect("it names a cluster");
        planted.strike(&key("other"));
        PlantedPanic::default().strike(&key("kv"));
        assert!(std::panic::catch_unwind(|| planted.strike(&key("kv"))).is_err());
        for wrong in ["kv", "/kv", "shop/", "shop/kv/x", ""] {
            assert_eq!(PlantedPanic::of(wrong), None, "{wrong}");
        }
    }
}
