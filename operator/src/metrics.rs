//! The operator's metrics, as the table in `core` describes them: registers, counts and serves. A series of a cluster lives
//! as long as the worker of that cluster; what the process does is counted once for the process, as its log is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use etcd_operator_core::metrics as table;
use etcd_operator_core::metrics::{Kind, Metric, SECONDS};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use self::backups::{BackupMeter, Backups};
pub use self::calls::{API, Call, ETCD};
pub use self::clusters::{Clusters, Meter};
use self::process::Process;

mod access;
mod backups;
mod calls;
mod certificate;
mod clusters;
mod process;
pub mod reference;
mod series;
pub mod server;

/// The Content-Type of what [`Metrics::text`] returns.
pub const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A family of histograms or counters, by labels.
pub(crate) type Counters = Family<[(&'static str, &'static str); 2], Counter>;
pub(crate) type Histograms = Family<[(&'static str, &'static str); 1], Histogram>;

/// What all of one operator shares.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub clusters: Clusters,
    pub backups: Backups,
    effect_seconds: Histograms,
    leads: Arc<AtomicBool>,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let (clusters, backups) = (Clusters::default(), Backups::default());
        let leads = Arc::new(AtomicBool::new(false));
        let effect_seconds = histograms();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(clusters.clone()));
        registry.register_collector(Box::new(backups.clone()));
        let mut register = |metric: &Metric, family: Histograms| {
            registry.register(metric.name, metric.help, family);
        };
        register(&table::EFFECT_SECONDS, effect_seconds.clone());
        register(&table::API_SECONDS, API.seconds.clone());
        register(&table::ETCD_SECONDS, ETCD.seconds.clone());
        for (metric, family) in [(&table::API_REQUESTS, &API.total), (&table::ETCD_REQUESTS, &ETCD.total)] {
            registry.register(base_name(metric), metric.help, family.clone());
        }
        registry.register_collector(Box::new(Process::new(Arc::clone(&leads))));
        Self { clusters, backups, effect_seconds, leads, registry: Arc::new(registry) }
    }
}

impl Metrics {
    /// What a scrape returns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail, and no collector of ours does.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// For as long as this process leads.
    pub fn leading(&self) -> Leading {
        self.leads.store(true, Ordering::Relaxed);
        Leading(Arc::clone(&self.leads))
    }
}

pub struct Leading(Arc<AtomicBool>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

pub(crate) fn histograms() -> Histograms {
    Histograms::new_with_constructor(|| Histogram::new(SECONDS))
}

/// The encoder adds the end of a counter's name.
pub(crate) fn base_name(metric: &'static Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => metric.name.trim_end_matches("_total"),
        Kind::Gauge | Kind::Histogram => metric.name,
    }
}

#[cfg(test)]
mod tests;
