//! A stand-in for kubelet, scheduler and volume provisioner on a control plane without nodes ([`crate::api_only`]).
//!
//! It is not a kubelet: a pod is one process on this machine, started from the first container, again and again unless the
//! pod asks for one run. The pod of a Job has all its containers, and each has a file system of its own ([`Files`]). There are no
//! limits, no users and no network of the pod's own; the caller gives each pod an address that this machine
//! answers to. What Kubernetes' controllers and an operator see is what a kubelet would report, only sooner: addresses,
//! container states, readiness, restarts, and pods that are gone only when their process is. Each pod has a node of its
//! own, which can fail: its process ends, and nothing is reported of the pod, not even that it is gone.

mod contained;
mod pod;
mod processes;
mod projected;
mod status;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::runtime::reflector::Store;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use contained::Files;
pub use processes::Processes;
pub use status::{exchange, get};

/// Below the directory of the settings.
const VOLUMES: &str = "volumes";

/// None if the image of the pod does not exist.
pub type MakeCommand = dyn Fn(&Pod, &Place) -> Option<Command> + Send + Sync;
/// None if it does not exist.
pub type FindImage = dyn Fn(&str) -> Option<Files> + Send + Sync;

/// How pods are run.
pub struct Settings {
    /// Below which volumes, logs and the pods' own directories are.
    pub directory: PathBuf,
    /// The address of a pod; pods without one are left alone.
    pub address: fn(&Pod) -> Option<IpAddr>,
    /// What runs in a pod. Its output is redirected.
    pub command: Box<MakeCommand>,
    /// For pods of Jobs, whose containers run as they are.
    pub image: Box<FindImage>,
    /// How long after a change of a ConfigMap or a Secret the pods see it.
    pub refresh_delay: Duration,
    pub probe_every: Duration,
}

/// Where things are for the process of a pod.
pub struct Place {
    pub address: IpAddr,
    /// Of this pod alone.
    pub directory: PathBuf,
    /// By the name of the volume.
    pub volumes: BTreeMap<String, PathBuf>,
    pub termination_log: PathBuf,
}

/// Pods run as long as this value lives.
pub struct StandIn {
    node: Arc<Node>,
    _tasks: JoinSet<()>,
}

impl StandIn {
    /// In the runtime of the caller.
    pub fn start(client: Client, settings: Settings) -> Self {
        let mut tasks = JoinSet::new();
        let (claims, watching) = volumes::watch::<PersistentVolumeClaim>(&client);
        tasks.spawn(watching);
        let (config_maps, watching) = volumes::watch::<ConfigMap>(&client);
        tasks.spawn(watching);
        let (secrets, watching) = volumes::watch::<Secret>(&client);
        tasks.spawn(watching);
        tasks.spawn(volumes::provision(client.clone(), settings.directory.join(VOLUMES)));
        let failed = watch::Sender::default();
        let node = Arc::new(Node { client, settings, claims, config_maps, secrets, failed });
        tasks.spawn(Arc::clone(&node).run());
        Self { node, _tasks: tasks }
    }

    /// The node of the pod with this UID fails, as if without power, or returns.
    pub fn set_node_failed(&self, pod: &str, failed: bool) {
        self.node.failed.send_modify(|all| {
            let _ = if failed { all.insert(pod.to_owned()) } else { all.remove(pod) };
        });
    }

    /// The directory that is the volume of a claim.
    pub fn volume(&self, claim: &PersistentVolumeClaim) -> PathBuf {
        self.node.volumes().join(claim.uid().unwrap_or_default())
    }

    /// The volume of a claim loses everything that is on it.
    pub fn empty_volume(&self, claim: &PersistentVolumeClaim) -> std::io::Result<()> {
        let volume = self.volume(claim);
        std::fs::remove_dir_all(&volume)?;
        std::fs::create_dir_all(&volume)
    }
}

struct Node {
    client: Client,
    settings: Settings,
    claims: Store<PersistentVolumeClaim>,
    config_maps: Store<ConfigMap>,
    secrets: Store<Secret>,
    /// UIDs of pods whose nodes have failed.
    failed: watch::Sender<BTreeSet<String>>,
}

/// By their UIDs: each has a task, which ends with the value.
type Pods = BTreeMap<String, (watch::Sender<Pod>, JoinSet<()>)>;

impl Node {
    fn volumes(&self) -> PathBuf {
        self.settings.directory.join(VOLUMES)
    }

    async fn run(self: Arc<Self>) {
        let mut pods = Pods::new();
        let mut listed = BTreeSet::new();
        let mut events = watcher(Api::<Pod>::all(self.client.clone()), Config::default()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(pod)) => {
                    listed.extend(pod.uid());
                    self.update(&mut pods, pod);
                }
                Ok(Event::InitDone) => pods.retain(|uid, _| listed.contains(uid)),
                Ok(Event::Apply(pod)) => self.update(&mut pods, pod),
                Ok(Event::Delete(pod)) => drop(pods.remove(&pod.uid().unwrap_or_default())),
                // The watch goes on by itself.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn update(self: &Arc<Self>, pods: &mut Pods, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        if let Some((known, _)) = pods.get(&uid) {
            known.send_replace(pod);
        } else if let Some(address) = (self.settings.address)(&pod) {
            let (sender, receiver) = watch::channel(pod);
            let mut task = JoinSet::new();
            task.spawn(pod::run(Arc::clone(self), receiver, address));
            pods.insert(uid, (sender, task));
        }
    }
}
