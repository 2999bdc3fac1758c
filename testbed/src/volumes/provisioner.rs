//! The loop that sees which volumes changed and has each of them worked on.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use super::inventory::{Inventory, Touched};
use super::queue::Queue;
use super::worker::{Task, Worker};
use super::{disk, objects};
use crate::layout::Layout;

/// Provides claims with volumes and removes volumes that are no longer wanted, for ever.
pub async fn provision(client: Client, layout: Layout) -> Result<()> {
    std::fs::create_dir_all(layout.volumes()).context("cannot create the directory of volumes")?;
    let mut claims = watcher(Api::all(client.clone()), watcher::Config::default()).default_backoff().boxed();
    let mut volumes = watcher(Api::all(client.clone()), watcher::Config::default()).default_backoff().boxed();
    let mut provisioner = Provisioner::new(client, layout);
    loop {
        tokio::select! {
            Some(event) = claims.next() => match event {
                Ok(event) => {
                    let touched = provisioner.claims.apply(event);
                    provisioner.enqueue(touched);
                }
                Err(error) => eprintln!("cannot watch PVCs, retrying: {error}"),
            },
            Some(event) = volumes.next() => match event {
                Ok(event) => {
                    let touched = provisioner.volumes.apply(event);
                    provisioner.enqueue(touched);
                }
                Err(error) => eprintln!("cannot watch volumes, retrying: {error}"),
            },
            Some((name, result)) = provisioner.running.next() => provisioner.finish(name, result),
            Some(name) = provisioner.pausing.next() => provisioner.queue.push(name),
        }
        provisioner.start();
    }
}

struct Provisioner {
    worker: Arc<Worker>,
    claims: Inventory<PersistentVolumeClaim>,
    volumes: Inventory<PersistentVolume>,
    queue: Queue,
    running: FuturesUnordered<BoxFuture<'static, (String, Result<()>)>>,
    pausing: FuturesUnordered<BoxFuture<'static, String>>,
}

impl Provisioner {
    fn new(client: Client, layout: Layout) -> Self {
        Self {
            worker: Arc::new(Worker::new(client, layout)),
            claims: Inventory::new(objects::volume_name),
            volumes: Inventory::new(ResourceExt::name_any),
            queue: Queue::default(),
            running: FuturesUnordered::new(),
            pausing: FuturesUnordered::new(),
        }
    }

    fn enqueue(&mut self, touched: Touched) {
        match touched {
            Touched::Nothing => {}
            Touched::One(name) => self.queue.push(name),
            Touched::All => {
                let known = self.claims.names().chain(self.volumes.names()).cloned();
                for name in known.chain(disk::names(&self.worker.layout.volumes())) {
                    self.queue.push(name);
                }
            }
        }
    }

    fn start(&mut self) {
        // Until both lists are complete, an object that was not seen may still exist.
        if !(self.claims.is_listed() && self.volumes.is_listed()) {
            return;
        }
        while let Some(name) = self.queue.next() {
            let claim = self.claims.get(&name).cloned();
            let volume = self.volumes.get(&name).cloned();
            let (worker, task) = (Arc::clone(&self.worker), Task { name, claim, volume });
            self.running.push(Box::pin(async move {
                let result = worker.work(&task).await;
                (task.name, result)
            }));
        }
    }

    fn finish(&mut self, name: String, result: Result<()>) {
        let Err(error) = result else { return self.queue.succeeded(&name) };
        let pause = self.queue.failed(&name);
        eprintln!("{name}: retrying in {pause:?}: {error:#}");
        self.pausing.push(Box::pin(async move {
            tokio::time::sleep(pause).await;
            name
        }));
    }
}
