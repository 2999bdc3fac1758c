//! The numbers of clusters. Each belongs to what keeps the cluster's worker running, and disappears with it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use etcd_operator_core::api::EtcdClusterStatus;
use etcd_operator_core::decide::Goal;
use etcd_operator_core::metrics::{
    EFFECTS, Effect, OBSERVED, PANICS, Sample, Scope, of_observation, of_status, outcome,
};
use etcd_operator_core::observed::Observed;
use etcd_operator_core::plan::Plan;
use etcd_operator_core::round::Outcome;
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{Histograms, Metrics, series};
use crate::caches::Key;

#[derive(Clone, Debug, Default)]
pub struct Clusters(Arc<Mutex<HashMap<Key, Weak<Meter>>>>);

/// The numbers of one cluster.
#[derive(Debug)]
pub struct Meter {
    numbers: Mutex<Numbers>,
    effect_seconds: Histograms,
}

#[derive(Debug, Default)]
struct Numbers {
    observed: Vec<Sample>,
    /// When that was, if nothing has changed since.
    observed_again: Option<Timestamp>,
    status: Vec<Sample>,
    effects: BTreeMap<(Effect, &'static str), u64>,
    panics: u64,
}

impl Metrics {
    /// Its series are served until it is dropped.
    pub fn meter(&self, key: &Key) -> Arc<Meter> {
        let effect_seconds = self.effect_seconds.clone();
        let meter = Arc::new(Meter { numbers: Mutex::default(), effect_seconds });
        let mut meters = lock(&self.clusters.0);
        meters.retain(|_, meter| meter.strong_count() > 0);
        meters.insert(key.clone(), Arc::downgrade(&meter));
        meter
    }
}

impl Meter {
    pub fn observed(&self, goal: &Goal, seen: &Observed, plan: &Plan) {
        let mut numbers = lock(&self.numbers);
        numbers.observed = of_observation(goal, seen, plan);
        numbers.observed_again = None;
    }

    pub fn observed_the_same(&self, now: Timestamp) {
        lock(&self.numbers).observed_again = Some(now);
    }

    pub fn reported(&self, status: Option<&EtcdClusterStatus>) {
        lock(&self.numbers).status = status.map(of_status).unwrap_or_default();
    }

    pub fn requested(&self, effect: Effect, became: &Outcome, took: Duration) {
        *lock(&self.numbers).effects.entry((effect, outcome(became))).or_default() += 1;
        self.effect_seconds.get_or_create(&[("effect", effect.0)]).observe(took.as_secs_f64());
    }

    pub fn panicked(&self) {
        lock(&self.numbers).panics += 1;
    }
}

impl Numbers {
    fn samples(&self) -> Vec<Sample> {
        let never = Sample { metric: &OBSERVED, values: [""; 2], value: 0.0 };
        let mut samples = if self.observed.is_empty() { vec![never] } else { self.observed.clone() };
        if let (Some(now), Some(first)) = (self.observed_again, samples.first_mut()) {
            debug_assert_eq!(first.metric, &OBSERVED);
            first.value = now.as_duration().as_secs_f64();
        }
        samples.extend(&self.status);
        let counted = |metric, values, count: u64| Sample { metric, values, value: count as f64 };
        let effects = self.effects.iter();
        samples.extend(
            effects.map(|(&(effect, outcome), &count)| counted(&EFFECTS, [effect.0, outcome], count)),
        );
        samples.push(counted(&PANICS, [""; 2], self.panics));
        samples
    }
}

impl Collector for Clusters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let meters: BTreeMap<(String, String), Arc<Meter>> = lock(&self.0)
            .iter()
            .filter_map(|(key, meter)| Some(((key.namespace.clone(), key.name.clone()), meter.upgrade()?)))
            .collect();
        let numbers = meters.into_iter();
        let clusters: Vec<_> =
            numbers.map(|((namespace, name), it)| ([namespace, name], lock(&it.numbers).samples())).collect();
        series::encode(&mut encoder, Scope::Cluster, &clusters)
    }
}

/// A worker that panicked while it held the lock left numbers that are whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
