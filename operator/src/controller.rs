//! Watches everything that belongs to clusters, and gives each cluster a worker of its own.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use crate::caches::{Caches, Key};
use crate::cluster::{Context, Worker};
use crate::http::Ready;
use crate::later;
use crate::reach::Reach;

/// What is the same for all clusters.
pub struct Settings {
    pub reach: Reach,
    /// The image that holds the agent: the operator's own.
    pub agent_image: String,
    /// The DNS domain of new clusters.
    pub domain: String,
    /// Who we are, for events and for the lease.
    pub identity: String,
}

/// Runs until `stop` comes, and marks us ready when everything has been listed once. Whatever is under way when it is
/// dropped is broken off, which is safe at any moment.
pub async fn run(
    client: kube::Client,
    settings: Settings,
    ready: Ready,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    tokio::select! {
        () = stop => {}
        () = clusters(client.clone(), settings, ready) => {}
        () = later::run(client) => {}
    }
}

async fn clusters(client: kube::Client, settings: Settings, ready: Ready) {
    let (wake, woken) = mpsc::unbounded_channel();
    let (caches, filling) = Caches::fill(&client, &wake);
    let Settings { reach, agent_image, domain, identity } = settings;
    let working = async {
        if caches.filled().await.is_err() {
            return;
        }
        ready.set();
        tracing::info!(objects = caches.clusters.len(), "watching");
        let context = Context { client, caches: caches.clone(), reach, agent_image, domain, identity };
        dispatch(Arc::new(context), woken).await;
    };
    tokio::select! {
        () = filling => {}
        () = working => {}
    }
}

struct Running {
    wake: Arc<Notify>,
    task: AbortHandle,
}

/// Wakes the worker of whatever changed, and starts one for a cluster that has none.
async fn dispatch(context: Arc<Context>, mut woken: mpsc::UnboundedReceiver<Key>) {
    let mut workers = JoinSet::new();
    let mut running: HashMap<Key, Running> = HashMap::new();
    while let Some(key) = woken.recv().await {
        while workers.try_join_next().is_some() {}
        if let Some(worker) = running.get(&key).filter(|worker| !worker.task.is_finished()) {
            worker.wake.notify_one();
            continue;
        }
        running.retain(|_, worker| !worker.task.is_finished());
        let cluster = kube::runtime::reflector::ObjectRef::new(&key.name).within(&key.namespace);
        if context.caches.clusters.get(&cluster).is_some() {
            let wake = Arc::new(Notify::new());
            let worker = Worker::new(key.clone(), Arc::clone(&context), Arc::clone(&wake));
            let task = workers.spawn(worker.run());
            running.insert(key, Running { wake, task });
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
            reach: Reach::Direct,
            agent_image: String::new(),
            domain: String::new(),
            identity: String::new(),
        };
        let running = run(client, settings, ready.clone(), async {});
        let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
        assert!(ended.is_ok() && !ready.get());
    }
}
