//! The Kubernetes objects of one cluster, as a cache has them or as the API server has them now.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{CLUSTER_LABEL, Names};
use etcd_operator_core::observed::Ordinal;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::caches::Caches;

/// On EndpointSlices: the Service they belong to.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// No size is larger, so no pod has an ordinal from here on.
const ORDINALS: u8 = 9;

pub struct Objects {
    pub cluster: Arc<EtcdCluster>,
    pub order: Option<Arc<ConfigMap>>,
    pub set: Option<Arc<StatefulSet>>,
    pub pods: BTreeMap<Ordinal, Arc<Pod>>,
    pub claims: BTreeMap<Ordinal, Arc<PersistentVolumeClaim>>,
    /// What the peer Service lists.
    pub published: Published,
}

/// The pods behind the peer Service.
#[derive(Default)]
pub struct Published {
    /// By UID: a pod that came back under its old name may not be listed yet.
    pub pods: BTreeSet<String>,
    pub addresses: Vec<IpAddr>,
}

impl Objects {
    /// As the caches have them. The cluster itself is given: whoever has written it knows it better than a cache.
    pub fn cached(caches: &Caches, cluster: Arc<EtcdCluster>, names: &Names) -> Self {
        let slices = caches.slices.state_filter(|slice| {
            slice.labels().get(SERVICE_LABEL) == Some(&names.peer_service())
                && slice.namespace().as_deref() == Some(&names.namespace)
        });
        let by_ordinal = Ordinal::below(ORDINALS);
        let pods = by_ordinal.filter_map(|it| Some((it, cached(&caches.pods, names, &names.pod(it))?)));
        let by_ordinal = Ordinal::below(ORDINALS);
        let claims = by_ordinal.filter_map(|it| Some((it, cached(&caches.claims, names, &names.claim(it))?)));
        Self {
            order: cached(&caches.orders, names, &names.order()).filter(|it| belongs_to(&**it, &cluster)),
            set: cached(&caches.sets, names, &names.cluster).filter(|it| belongs_to(&**it, &cluster)),
            pods: pods.collect(),
            claims: claims.collect(),
            published: published(slices.iter().map(|slice| &**slice)),
            cluster,
        }
    }

    /// As they are now; none if the cluster is gone, or is another one of the same name.
    pub async fn live(
        client: &Client,
        uid: Option<&str>,
        names: &Names,
    ) -> Result<Option<Self>, kube::Error> {
        let namespace = &names.namespace;
        let clusters = Api::<EtcdCluster>::namespaced(client.clone(), namespace);
        let orders = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let sets = Api::<StatefulSet>::namespaced(client.clone(), namespace);
        let (order_name, of_peers) = (names.order(), format!("{SERVICE_LABEL}={}", names.peer_service()));
        let of_cluster = format!("{CLUSTER_LABEL}={}", names.cluster);
        let (cluster, order, set, pods, claims, slices) = futures::try_join!(
            clusters.get_opt(&names.cluster),
            orders.get_opt(&order_name),
            sets.get_opt(&names.cluster),
            list::<Pod>(client, namespace, &of_cluster),
            list::<PersistentVolumeClaim>(client, namespace, &of_cluster),
            list::<EndpointSlice>(client, namespace, &of_peers),
        )?;
        let Some(cluster) = cluster.filter(|cluster| cluster.metadata.uid.as_deref() == uid) else {
            return Ok(None);
        };
        let pods =
            pods.into_iter().filter_map(|it| Some((names.ordinal_of_pod(&it.name_any())?, Arc::new(it))));
        let claims =
            claims.into_iter().filter_map(|it| Some((names.ordinal_of_claim(&it.name_any())?, Arc::new(it))));
        Ok(Some(Self {
            order: order.filter(|it| belongs_to(it, &cluster)).map(Arc::new),
            set: set.filter(|it| belongs_to(it, &cluster)).map(Arc::new),
            pods: pods.collect(),
            claims: claims.collect(),
            published: published(slices.iter()),
            cluster: Arc::new(cluster),
        }))
    }
}

fn cached<K>(store: &Store<K>, names: &Names, name: &str) -> Option<Arc<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    store.get(&ObjectRef::new(name).within(&names.namespace))
}

async fn list<K>(client: &Client, namespace: &str, selector: &str) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let objects = Api::<K>::namespaced(client.clone(), namespace);
    Ok(objects.list(&ListParams::default().labels(selector)).await?.items)
}

/// Names come back: what a former cluster of this name left behind is not ours, and neither is what a user made.
pub fn belongs_to<K: Resource>(object: &K, cluster: &EtcdCluster) -> bool {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| cluster.metadata.uid.as_ref() == Some(&owner.uid))
}

fn published<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> Published {
    let mut published = Published::default();
    for endpoint in slices.flat_map(|slice| slice.endpoints.iter()) {
        published
            .addresses
            .extend(endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok()));
        published.pods.extend(endpoint.target_ref.iter().filter_map(|target| target.uid.clone()));
    }
    published
}
