//! What Kubernetes has told us so far: one watch for each kind and namespace, whose changes wake the cluster they belong to.

mod stores;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_core::api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_core::backup::PROGRAM;
use etcd_operator_core::names::{
    CLUSTER_LABEL, FIELD_MANAGER, MANAGED_BY_LABEL, NAME_LABEL, PREFLIGHT_LABEL,
};
use etcd_operator_core::restores;
use etcd_operator_core::runs::cluster_namespace;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::reflector;
use kube::runtime::reflector::store::{Writer, WriterDropped};
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::backups::of_job;
use crate::client::watch_config;
use crate::kind::Kind;
use crate::nodes::Nodes;
use crate::scope::Scope;
use crate::telemetry::chain;
pub use stores::Stores;

/// Which EtcdCluster, EtcdBackup or EtcdRestore.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

/// Copies of what the API server holds, a moment old.
#[derive(Clone)]
pub struct Caches {
    pub clusters: Stores<EtcdCluster>,
    pub orders: Stores<ConfigMap>,
    pub sets: Stores<StatefulSet>,
    pub pods: Stores<Pod>,
    pub preflights: Stores<Pod>,
    pub claims: Stores<PersistentVolumeClaim>,
    pub slices: Stores<EndpointSlice>,
    pub services: Stores<Service>,
    pub budgets: Stores<PodDisruptionBudget>,
    pub network_policies: Stores<NetworkPolicy>,
    pub nodes: Nodes,
    pub backups: Stores<EtcdBackup>,
    pub restores: Stores<EtcdRestore>,
    /// Of backups and restores, and their pods.
    pub jobs: Stores<Job>,
    pub job_pods: Stores<Pod>,
}

/// Receives the key of a cluster, a backup or a restore when something of it changes. Closed while another operator leads.
#[derive(Clone, Default)]
pub struct Wakes(Arc<Mutex<Option<UnboundedSender<Key>>>>);

impl Wakes {
    /// A receiver from before gets nothing any more.
    pub fn listen(&self) -> UnboundedReceiver<Key> {
        let (sender, receiver) = unbounded_channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    fn send(&self, key: Key) {
        let mut listener = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.as_ref().is_some_and(|listener| listener.send(key).is_err()) {
            *listener = None;
        }
    }
}

#[derive(Default)]
pub struct AllWakes {
    pub clusters: Wakes,
    pub backups: Wakes,
    pub restores: Wakes,
}

/// What keeps the caches filled; it never ends.
pub type Filling = BoxFuture<'static, ()>;

impl Caches {
    /// Whatever changes sends the key of its cluster, its backup or its restore.
    pub fn fill(client: &Client, scope: &Scope, wakes: &AllWakes) -> (Self, Filling) {
        let AllWakes { clusters: wake, backups: wake_backups, restores: wake_restores } = wakes;
        let (nodes, filling) = Nodes::fill(client);
        let mut watches = Watches { client, scope, wake, all: vec![filling] };
        let runs =
            || watch_config().labels(&format!("{NAME_LABEL}={PROGRAM},{MANAGED_BY_LABEL}={FIELD_MANAGER}"));
        // The status of a cluster reports its backups.
        let backups =
            watches.open_for(&watch_config(), &[(wake_backups, key_of_backup), (wake, key_of_its_cluster)]);
        let restores = watches.open_for(&watch_config(), &[(wake_restores, key_of_restore)]);
        let jobs = watches.open_for(&runs(), &[(wake_backups, key_by_mark), (wake_restores, key_by_restore)]);
        let job_pods =
            watches.open_for(&runs(), &[(wake_backups, key_by_mark), (wake_restores, key_by_restore)]);
        let clusters = watches.open_for(
            &watch_config(),
            &[(wake, key_of_cluster), (wake_backups, key_of_awaited), (wake_restores, key_by_restore)],
        );
        let ours = || watch_config().labels(CLUSTER_LABEL);
        let preflights = watch_config().labels(PREFLIGHT_LABEL);
        let caches = Self {
            clusters,
            orders: watches.open(&ours(), key_by_label),
            sets: watches.open(&ours(), key_by_label),
            pods: watches.open(&ours(), key_by_label),
            // Selectors cannot ask for one label or another.
            preflights: watches.open(&preflights, key_of_preflight),
            claims: watches.open_for(&ours(), &[(wake, key_by_label), (wake_restores, key_by_restore)]),
            slices: watches.open(&ours(), key_by_label),
            services: watches.open(&ours(), key_by_label),
            budgets: watches.open(&ours(), key_by_label),
            network_policies: watches.open(&ours(), key_by_label),
            nodes,
            backups,
            restores,
            jobs,
            job_pods,
        };
        (caches, futures::future::join_all(watches.all).map(drop).boxed())
    }

    /// Completes when everything has been listed once, as far as we have the right to.
    pub async fn filled(&self) -> Result<(), WriterDropped> {
        self.clusters.filled().await?;
        self.orders.filled().await?;
        self.sets.filled().await?;
        self.pods.filled().await?;
        self.preflights.filled().await?;
        self.claims.filled().await?;
        self.slices.filled().await?;
        self.services.filled().await?;
        self.budgets.filled().await?;
        self.network_policies.filled().await?;
        self.backups.filled().await?;
        self.restores.filled().await?;
        self.jobs.filled().await?;
        self.job_pods.filled().await?;
        self.nodes.answered().await;
        Ok(())
    }
}

fn key_of_cluster(cluster: &EtcdCluster) -> Option<Key> {
    Some(Key { namespace: cluster.namespace()?, name: cluster.name_any() })
}

/// The EtcdBackup that the cluster waits for.
fn key_of_awaited(cluster: &EtcdCluster) -> Option<Key> {
    let awaited = cluster.status.as_ref()?.awaited_backup.clone()?;
    Some(Key { namespace: awaited.namespace, name: awaited.name })
}

fn key_of_its_cluster(backup: &EtcdBackup) -> Option<Key> {
    Some(Key { namespace: cluster_namespace(backup), name: backup.spec.cluster_name.clone() })
}

fn key_of_backup(backup: &EtcdBackup) -> Option<Key> {
    Some(Key { namespace: backup.namespace()?, name: backup.name_any() })
}

/// Of the EtcdBackup that a Job is for, which can be in another namespace.
fn key_by_mark<K: ResourceExt>(object: &K) -> Option<Key> {
    of_job(object)
}

fn key_of_restore(restore: &EtcdRestore) -> Option<Key> {
    Some(Key { namespace: restore.namespace()?, name: restore.name_any() })
}

/// Of the EtcdRestore that created it.
fn key_by_restore<K: ResourceExt>(object: &K) -> Option<Key> {
    let restores::Mark { name, .. } = restores::Mark::on(object)?;
    Some(Key { namespace: object.namespace()?, name })
}

fn key_by_label<K: Resource>(object: &K) -> Option<Key> {
    let name = object.labels().get(CLUSTER_LABEL)?.clone();
    Some(Key { namespace: object.namespace()?, name })
}

fn key_of_preflight(pod: &Pod) -> Option<Key> {
    let name = pod.labels().get(PREFLIGHT_LABEL)?.clone();
    Some(Key { namespace: pod.namespace()?, name })
}

/// Until a broken watch is opened again, the first time and at most. While it is broken nothing wakes us, so an API
/// server that comes back must not be left waiting for us.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(4);
/// How long a watch has to hold before it counts as mended.
pub const MENDED_AFTER: Duration = Duration::from_secs(10);

/// Twice as long each time.
#[derive(Default)]
pub struct Reopen {
    failures: u32,
}

impl Iterator for Reopen {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = FIRST_RETRY.saturating_mul(1 << self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        Some(pause.min(LONGEST_RETRY))
    }
}

impl Backoff for Reopen {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Why a watch broke, unless it was away for so long that it only has to begin with a list again.
pub fn trouble_with(error: &watcher::Error) -> Option<String> {
    let lists_again = matches!(error, watcher::Error::WatchError(status) if status.code == 410);
    (!lists_again).then(|| chain(error).to_string())
}

/// What an object belongs to.
type KeyOf<K> = fn(&K) -> Option<Key>;

/// Those that are opened, and what they have in common.
struct Watches<'a> {
    client: &'a Client,
    scope: &'a Scope,
    wake: &'a Wakes,
    all: Vec<Filling>,
}

impl Watches<'_> {
    fn open<K: Kind>(&mut self, config: &watcher::Config, key: KeyOf<K>) -> Stores<K> {
        let wake = self.wake;
        self.open_for(config, &[(wake, key)])
    }

    /// With others to wake than the clusters.
    fn open_for<K: Kind>(&mut self, config: &watcher::Config, wakes: &[(&Wakes, KeyOf<K>)]) -> Stores<K> {
        let mut open = |api| {
            let (store, writer) = reflector::store();
            let wakes = wakes.iter().map(|&(wake, key)| (wake.clone(), key)).collect();
            self.all.push(watch(api, config.clone(), writer, wakes));
            store
        };
        let apis = self.scope.dynamic_apis(self.client, &ApiResource::erase::<K>(&()));
        Stores::new(apis.into_iter().map(&mut open).collect())
    }
}

/// A watch that fails is tried again, and says why once. All kinds have the same watch, because one for each would take a
/// tenth of the program.
fn watch<K: Kind>(
    api: Api<DynamicObject>,
    config: watcher::Config,
    writer: Writer<K>,
    wakes: Vec<(Wakes, KeyOf<K>)>,
) -> Filling {
    let mut trouble = None;
    let objects = watcher(api, config)
        .backoff(ResetTimerBackoff::new(Reopen::default(), MENDED_AFTER))
        .filter_map(|event| futures::future::ready(readable(event)))
        .reflect(writer);
    let watching = objects.for_each(move |event| {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                for (wake, key) in &wakes {
                    key(&object).into_iter().for_each(|key| wake.send(key));
                }
            }
            Ok(Event::Init) => {}
            Ok(Event::InitDone) => trouble = None,
            Err(error) => {
                if let Some(error) = trouble_with(&error).filter(|it| trouble.as_ref() != Some(it)) {
                    let kind = K::kind(&());
                    tracing::warn!(object_kind = %kind, error, "cannot watch, retrying: check the CRDs and the operator's RBAC");
                    trouble = Some(error);
                }
            }
        }
        futures::future::ready(())
    });
    watching.boxed()
}

/// One object that cannot be read must not hide all the others. It is passed over, as if it had not come.
fn readable<K: Kind>(
    event: Result<Event<DynamicObject>, watcher::Error>,
) -> Option<Result<Event<K>, watcher::Error>> {
    let read = |mut object: DynamicObject| {
        // They take more memory than all the rest.
        object.managed_fields_mut().clear();
        // By way of text, from which every kind is read anyway.
        let read = serde_json::to_string(&object).and_then(|text| serde_json::from_str(&text));
        let ignored = |error: &serde_json::Error| {
            let namespace = object.namespace().unwrap_or_default();
            let object = format!("{} {namespace}/{}", K::kind(&()), object.name_any());
            tracing::error!(object, %error, "ignoring an invalid object: correct it or delete it");
        };
        read.inspect_err(ignored).ok()
    };
    Some(match event {
        Ok(Event::Apply(object)) => Ok(Event::Apply(read(object)?)),
        Ok(Event::InitApply(object)) => Ok(Event::InitApply(read(object)?)),
        Ok(Event::Delete(object)) => Ok(Event::Delete(read(object)?)),
        Ok(Event::Init) => Ok(Event::Init),
        Ok(Event::InitDone) => Ok(Event::InitDone),
        Err(error) => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn applied(spec: Value) -> Option<Result<Event<EtcdCluster>, watcher::Error>> {
        let object = json!({
            "apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdCluster",
            "metadata": {"name": "kv", "namespace": "ns"}, "spec": spec,
        });
        readable(Ok(Event::Apply(serde_json::from_value(object).expect("it is an object"))))
    }

    #[test]
    fn an_object_that_cannot_be_read_is_passed_over_and_no_failure_of_the_watch() {
        assert!(matches!(applied(json!({"size": 1})), Some(Ok(Event::Apply(_)))));
        assert!(applied(json!({"size": "one"})).is_none());
    }

    #[test]
    fn a_preflight_pod_wakes_its_cluster() {
        let metadata =
            json!({"name": "kv-preflight-0", "namespace": "ns", "labels": {PREFLIGHT_LABEL: "kv"}});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata})).expect("it is a pod");
        let key = Key { namespace: "ns".into(), name: "kv".into() };
        assert_eq!((key_of_preflight(&pod), key_by_label(&pod)), (Some(key), None));
    }

    #[test]
    fn who_listens_is_told_and_who_stopped_is_not() {
        let wakes = Wakes::default();
        let key = || Key { namespace: "ns".into(), name: "kv".into() };
        wakes.send(key());
        let mut first = wakes.listen();
        wakes.send(key());
        assert_eq!(first.try_recv().ok(), Some(key()));
        let mut second = wakes.listen();
        wakes.send(key());
        assert!(first.try_recv().is_err());
        assert_eq!(second.try_recv().ok(), Some(key()));
    }

    #[test]
    fn a_broken_watch_is_opened_again_later_and_later_but_never_much_later() {
        let mut reopen = Reopen::default();
        let pauses: Vec<u128> = reopen.by_ref().take(7).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 4000, 4000]);
        reopen.reset();
        assert_eq!(reopen.next(), Some(FIRST_RETRY));
    }

    #[test]
    fn a_watch_that_has_to_list_again_is_no_trouble() {
        let answer = |code, message: &str| {
            let status =
                kube::core::Status { code, message: message.into(), ..kube::core::Status::default() };
            watcher::Error::WatchError(status.boxed())
        };
        assert_eq!(trouble_with(&answer(410, "too old resource version")), None);
        assert!(
            trouble_with(&answer(500, "etcdserver: no leader")).is_some_and(|it| it.contains("no leader"))
        );
    }
}
