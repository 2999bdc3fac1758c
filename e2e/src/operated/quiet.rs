//! Whether anything still happens to the clusters of a test that are settled.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{CLUSTER_LABEL, condition};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::wait;

/// Longer than the shortest pause of an operator that has something to do.
const QUIET: Duration = Duration::from_secs(2);
/// Other controllers follow in their own time.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until no object of the clusters in a namespace changes any more. Without a settled cluster nothing is awaited.
pub async fn becomes_quiet(client: &Client, namespace: &str) -> Result<()> {
    let clusters = Api::<EtcdCluster>::namespaced(client.clone(), namespace);
    // The definition may be gone, with all clusters.
    let Ok(clusters) = clusters.list(&ListParams::default()).await else { return Ok(()) };
    let is_settled = |cluster: &EtcdCluster| {
        let mut conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        cluster.metadata.deletion_timestamp.is_none()
            && conditions.any(|it| it.type_ == condition::READY && it.status == "True")
    };
    if !clusters.iter().any(is_settled) {
        return Ok(());
    }
    let still = async || {
        let before = versions(client, namespace).await?;
        tokio::time::sleep(QUIET).await;
        let after = versions(client, namespace).await?;
        let changed: Vec<_> = after.iter().filter(|(name, at)| before.get(*name) != Some(at)).collect();
        ensure!(before == after, "changed in {QUIET:?}: {changed:?}");
        Ok(true)
    };
    wait::until("nothing changes in a settled cluster", LIMIT, still).await
}

/// The resource version of each object of the clusters.
async fn versions(client: &Client, namespace: &str) -> Result<BTreeMap<String, Option<String>>> {
    let mut all = BTreeMap::new();
    add::<EtcdCluster>(client, namespace, "", &mut all).await?;
    add::<StatefulSet>(client, namespace, CLUSTER_LABEL, &mut all).await?;
    add::<Pod>(client, namespace, CLUSTER_LABEL, &mut all).await?;
    add::<Service>(client, namespace, CLUSTER_LABEL, &mut all).await?;
    add::<Secret>(client, namespace, CLUSTER_LABEL, &mut all).await?;
    add::<ConfigMap>(client, namespace, CLUSTER_LABEL, &mut all).await?;
    add::<PodDisruptionBudget>(client, namespace, CLUSTER_LABEL, &mut all).await?;
    add::<NetworkPolicy>(client, namespace, CLUSTER_LABEL, &mut all).await?;
    add::<PersistentVolumeClaim>(client, namespace, CLUSTER_LABEL, &mut all).await?;
    Ok(all)
}

async fn add<K>(
    client: &Client,
    namespace: &str,
    label: &str,
    all: &mut BTreeMap<String, Option<String>>,
) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let listed =
        Api::<K>::namespaced(client.clone(), namespace).list(&ListParams::default().labels(label)).await?;
    let name = |object: &K| format!("{} {}", K::kind(&()), object.name_any());
    all.extend(listed.into_iter().map(|object| (name(&object), object.resource_version())));
    Ok(())
}
