//! Watches everything that belongs to clusters, and gives each cluster a worker of its own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use etcd_operator_core::desired::OperatorPods;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinSet};

use crate::backups;
use crate::caches::{AllWakes, Caches, Key};
use crate::cluster::Context;
use crate::http::Ready;
use crate::lease::Election;
use crate::metrics::Metrics;
use crate::reach::Reach;
use crate::restores;
use crate::scope::Scope;
use crate::supervisor::{self, PlantedPanic};

/// What is the same for all clusters.
pub struct Settings {
    pub scope: Scope,
    pub reach: Reach,
    /// The image that holds the agent: the operator's own.
    pub agent_image: String,
    /// None outside of Kubernetes.
    pub operator: Option<OperatorPods>,
    /// The DNS domain of new clusters.
    pub domain: String,
    pub metrics: Metrics,
    pub planted_panic: PlantedPanic,
}

/// Runs until `stop` comes. Everything is watched from the beginning, which makes us ready; but only who leads acts.
/// Whatever is under way when leadership is lost is broken off, which is safe at any moment.
pub async fn run(
    client: kube::Client,
    settings: Settings,
    election: Election,
    ready: Ready,
    stop: impl Future<Output = ()> + Clone,
) {
    let wakes = AllWakes::default();
    let Settings { scope, reach, agent_image, operator, domain, metrics, planted_panic } = settings;
    let (caches, filling) = Caches::fill(&client, &scope, &wakes);
    let identity = election.identity().to_owned();
    let context =
        Context { client, caches, reach, agent_image, operator, domain, identity, metrics, planted_panic };
    let context = Arc::new(context);
    let working = async {
        if context.caches.filled().await.is_err() {
            return;
        }
        ready.set();
        tracing::info!(objects = context.caches.clusters.all().len(), "watching clusters");
        let act = || act(&context, &wakes, stop.clone());
        election.lead(act, stop.clone()).await;
    };
    let stopped_before_anything_was_listed = async {
        stop.clone().await;
        if ready.get() {
            std::future::pending().await
        }
    };
    tokio::select! {
        () = filling => {}
        () = working => {}
        () = stopped_before_anything_was_listed => {}
    }
}

/// What only the leader does.
async fn act(context: &Arc<Context>, wakes: &AllWakes, stop: impl Future<Output = ()>) {
    let _leading = context.metrics.leading();
    tokio::select! {
        () = stop => {}
        () = dispatch(context, wakes.clusters.listen()) => {}
        () = backups::run(Arc::clone(context), wakes.backups.listen()) => {}
        () = restores::run(Arc::clone(context), wakes.restores.listen()) => {}
    }
}

struct Running {
    wake: Arc<Notify>,
    task: AbortHandle,
}

/// Wakes the worker of whatever changed, and starts one for a cluster that has none.
async fn dispatch(context: &Arc<Context>, mut woken: UnboundedReceiver<Key>) {
    let mut workers = Workers::default();
    for cluster in context.caches.clusters.all() {
        let namespace = cluster.namespace().unwrap_or_default();
        workers.wake(context, Key { namespace, name: cluster.name_any() });
    }
    while let Some(key) = woken.recv().await {
        workers.wake(context, key);
    }
}

/// They end when they are dropped.
#[derive(Default)]
struct Workers {
    tasks: JoinSet<()>,
    running: HashMap<Key, Running>,
}

impl Workers {
    fn wake(&mut self, context: &Arc<Context>, key: Key) {
        while self.tasks.try_join_next().is_some() {}
        if let Some(worker) = self.running.get(&key).filter(|worker| !worker.task.is_finished()) {
            worker.wake.notify_one();
            return;
        }
        self.running.retain(|_, worker| !worker.task.is_finished());
        let cluster = ObjectRef::new(&key.name).within(&key.namespace);
        if context.caches.clusters.get(&cluster).is_some() {
            let wake = Arc::new(Notify::new());
            let worker = supervisor::run(key.clone(), Arc::clone(context), Arc::clone(&wake));
            let task = self.tasks.spawn(worker);
            self.running.insert(key, Running { wake, task });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_stop_is_heeded_although_nothing_was_ever_listed() {
        let nobody = "http://127.0.0.1:1".parse().expect("an address");
        let client = kube::Client::try_from(kube::Config::new(nobody)).expect("a client");
        let ready = Ready::default();
        let settings = Settings {
            scope: Scope::Everywhere,
            reach: Reach::Direct,
            agent_image: String::new(),
            operator: None,
            domain: String::new(),
            metrics: Metrics::default(),
            planted_panic: PlantedPanic::default(),
        };
        let election = Election::new(client.clone(), "ns", "lease", "us");
        let running = run(client, settings, election, ready.clone(), std::future::ready(()));
        let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
        assert!(ended.is_ok() && !ready.get());
    }
}
