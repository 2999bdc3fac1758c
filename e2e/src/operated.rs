//! One EtcdCluster that the operator runs, as a test handles it: edited like a user would, and looked at from
//! Kubernetes and from etcd itself.

mod agreement;
mod oracle;
mod quiet;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use etcd_operator_core::api::{EtcdCluster, EtcdClusterStatus, Phase};
use etcd_operator_core::names::{CLUSTER_LABEL, Names};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::tls::Transport;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::access::{Access, ClientSecrets};
use crate::etcd::{Listed, Member};
use crate::progress::Progress;
use crate::{FIELD_MANAGER, serving, wait};
pub use agreement::Promised;
pub use oracle::StatusOracle;
pub use quiet::becomes_quiet;

/// For everything that the operator does with a cluster in one go, on a machine with other load.
pub const LIMIT: Duration = Duration::from_secs(180);
/// Of the testbed, as of nearly every Kubernetes.
const DOMAIN: &str = "cluster.local";

#[derive(Clone)]
pub struct Operated {
    client: Client,
    pub namespace: String,
    pub name: String,
    progress: Progress,
    /// Followed from the first question on.
    secrets: Arc<OnceLock<ClientSecrets>>,
}

impl Operated {
    /// Asks for it, as `kubectl create` does. Nothing is awaited.
    pub async fn create(
        client: &Client,
        namespace: &str,
        name: &str,
        spec: Value,
        progress: Progress,
    ) -> Result<Self> {
        let cluster = Self::existing(client, namespace, name, progress);
        let wanted: EtcdCluster = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))
            .context("not an EtcdCluster")?;
        let created = cluster.api::<EtcdCluster>().create(&PostParams::default(), &wanted).await;
        created.with_context(|| format!("cannot create EtcdCluster {name}"))?;
        Ok(cluster)
    }

    /// One that is there, or will be.
    pub fn existing(client: &Client, namespace: &str, name: &str, progress: Progress) -> Self {
        Self {
            client: client.clone(),
            namespace: namespace.into(),
            name: name.into(),
            progress,
            secrets: Arc::default(),
        }
    }

    pub async fn scale(&self, size: u8) -> Result<()> {
        self.edit(json!({"spec": {"size": size}})).await
    }

    /// A merge patch of the whole object.
    pub async fn edit(&self, change: Value) -> Result<()> {
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let edited = self.api::<EtcdCluster>().patch(&self.name, &parameters, &Patch::Merge(&change)).await;
        edited.map(drop).with_context(|| format!("cannot patch EtcdCluster {} with {change}", self.name))
    }

    pub async fn delete(&self) -> Result<()> {
        let deleted = self.api::<EtcdCluster>().delete(&self.name, &DeleteParams::background()).await;
        deleted.map(drop).with_context(|| format!("cannot delete EtcdCluster {}", self.name))
    }

    /// Waits until the object is gone, and with it everything that it owns but volumes.
    pub async fn wait_until_gone(&self) -> Result<()> {
        let what = format!("EtcdCluster {} is deleted", self.name);
        wait::gone(self.api::<EtcdCluster>(), &self.name, &what, LIMIT).await?;
        let what = format!("the pods of {} are deleted", self.name);
        let selected = kube::runtime::watcher::Config::default().labels(&self.selector());
        wait::objects(self.api::<Pod>(), selected, &what, LIMIT, BTreeMap::is_empty).await?;
        self.progress.step(format!("{} is gone", self.name));
        Ok(())
    }

    /// Waits until the status says of the spec as it is now that nothing is left to do, with so many members.
    pub async fn wait_until_settled(&self, size: u8) -> Result<EtcdCluster> {
        let what = format!("{} is up to date with {size} member(s)", self.name);
        let is_settled = |cluster: &EtcdCluster| is_settled(cluster, size);
        let cluster = self.wait_for(&what, is_settled).await?;
        self.progress.step(what);
        Ok(cluster)
    }

    /// Waits until the object is as asked for.
    pub async fn wait_for(&self, what: &str, holds: impl Fn(&EtcdCluster) -> bool) -> Result<EtcdCluster> {
        let waited = wait::present(self.api(), &self.name, what, LIMIT, holds).await;
        match waited {
            Ok(cluster) => Ok(cluster),
            Err(error) => bail!("{error:#}\nevents, oldest first:\n{}", self.told().await.join("\n")),
        }
    }

    pub async fn object(&self) -> Result<EtcdCluster> {
        self.api::<EtcdCluster>()
            .get(&self.name)
            .await
            .with_context(|| format!("no EtcdCluster {}", self.name))
    }

    pub async fn status(&self) -> Result<EtcdClusterStatus> {
        self.object().await?.status.with_context(|| format!("EtcdCluster {} has no status", self.name))
    }

    /// Pods by name, those that are ending too.
    pub async fn pods(&self) -> Result<BTreeMap<String, Pod>> {
        self.labelled().await
    }

    /// Volume claims by name, those that are going too.
    pub async fn claims(&self) -> Result<BTreeMap<String, PersistentVolumeClaim>> {
        self.labelled().await
    }

    /// All objects of a kind that carry this cluster's label, by name.
    pub async fn labelled<K>(&self) -> Result<BTreeMap<String, K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let listed = self.api::<K>().list(&ListParams::default().labels(&self.selector())).await;
        let listed =
            listed.with_context(|| format!("cannot list the {} of {}", K::plural(&()), self.name))?;
        Ok(listed.into_iter().map(|object| (object.name_any(), object)).collect())
    }

    /// What the claims of so many members are called.
    pub fn claim_names(&self, size: u8) -> BTreeSet<String> {
        Ordinal::below(size).map(|ordinal| self.names().claim(ordinal)).collect()
    }

    pub fn pod_names(&self, size: u8) -> BTreeSet<String> {
        Ordinal::below(size).map(|ordinal| self.names().pod(ordinal)).collect()
    }

    /// Where each pod's etcd would answer, in the order of their names.
    pub async fn members(&self) -> Result<Vec<Member>> {
        self.members_of(&self.pods().await?).await
    }

    async fn members_of(&self, pods: &BTreeMap<String, Pod>) -> Result<Vec<Member>> {
        let secrets = self.secrets();
        secrets.listed().await?;
        Ok(serving::members(Some(pods), secrets))
    }

    /// With what its clients connect.
    pub async fn access(&self) -> Result<Access> {
        self.secrets().listed().await?;
        self.secrets().access(&self.names()).context("it is not known how clients connect")
    }

    pub fn secrets(&self) -> &ClientSecrets {
        self.secrets.get_or_init(|| ClientSecrets::of_cluster(self.client.clone(), &self.names()))
    }

    /// How its ports are to be served: as its spec says when it is created.
    pub async fn transport(&self) -> Result<Transport> {
        Ok(Transport::asked_for(&self.object().await?.spec.security.tls))
    }

    /// What etcd itself says of its members, by the first that serves.
    pub async fn member_list(&self) -> Result<Vec<Listed>> {
        self.ask(async |member| member.list().await).await
    }

    /// Of the newest write that etcd has acknowledged.
    pub async fn revision(&self) -> Result<i64> {
        self.ask(async |member| member.revision().await).await
    }

    /// As etcd itself says it.
    pub async fn cluster_id(&self) -> Result<u64> {
        self.ask(async |member| Ok(member.status().await?.cluster_id)).await
    }

    async fn ask<T>(&self, question: impl AsyncFn(&Member) -> Result<T>) -> Result<T> {
        let mut last = None;
        for member in self.members().await? {
            match question(&member).await {
                Ok(answer) => return Ok(answer),
                Err(error) => last = Some(error),
            }
        }
        let nobody = || anyhow::anyhow!("no pod of {} has an address", self.name);
        Err(last.unwrap_or_else(nobody).context(format!("no member of {} responds", self.name)))
    }

    /// Events about the object, the oldest first.
    pub async fn events(&self) -> Result<Vec<Event>> {
        let about = format!("involvedObject.kind=EtcdCluster,involvedObject.name={}", self.name);
        let listed = self.api::<Event>().list(&ListParams::default().fields(&about)).await;
        let mut events = listed.context("cannot list the events")?.items;
        events.sort_by_key(|event| {
            event.event_time.as_ref().map(|time| time.0).or(event
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0))
        });
        Ok(events)
    }

    /// The events as text, or why there is none.
    async fn told(&self) -> Vec<String> {
        match self.events().await {
            Ok(events) => events.iter().map(line).collect(),
            Err(error) => vec![format!("{error:#}")],
        }
    }

    pub fn names(&self) -> Names {
        Names::new(&self.namespace, &self.name, DOMAIN)
    }

    pub fn selector(&self) -> String {
        format!("{CLUSTER_LABEL}={}", self.name)
    }

    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Whether the status says of the spec as it is now that nothing is left to do, with so many members.
pub fn is_settled(cluster: &EtcdCluster, size: u8) -> bool {
    let Some(status) = &cluster.status else { return false };
    let phase = if size == 0 { Phase::Stopped } else { Phase::Running };
    cluster.metadata.deletion_timestamp.is_none()
        && cluster.spec.size == i32::from(size)
        && status.observed_generation == cluster.metadata.generation
        && status.phase == Some(phase)
        && status.ready_replicas == Some(i32::from(size))
}

fn line(event: &Event) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("  {} {}: {}", text(&event.type_), text(&event.reason), text(&event.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(size: i32, generation: i64, phase: &str, ready: i32) -> EtcdCluster {
        serde_json::from_value(json!({
            "metadata": {"name": "kv", "generation": 2},
            "spec": {"size": size},
            "status": {"phase": phase, "readyReplicas": ready, "observedGeneration": generation},
        }))
        .expect("an EtcdCluster")
    }

    #[test]
    fn only_a_status_about_the_newest_spec_can_say_that_it_is_settled() {
        assert!(is_settled(&cluster(3, 2, "Running", 3), 3));
        assert!(is_settled(&cluster(0, 2, "Stopped", 0), 0));
        assert!(!is_settled(&cluster(3, 1, "Running", 3), 3));
        assert!(!is_settled(&cluster(3, 2, "Running", 2), 3));
        assert!(!is_settled(&cluster(3, 2, "Scaling", 3), 3));
        assert!(!is_settled(&cluster(1, 2, "Running", 3), 3));
        assert!(!is_settled(&cluster(0, 2, "Running", 0), 0));
    }
}
