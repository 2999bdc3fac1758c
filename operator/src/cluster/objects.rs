//! The Kubernetes objects of one cluster, as a cache has them or as the API server has them now.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::member::MAX_SIZE;
use etcd_operator_core::names::{CLUSTER_LABEL, Names};
use etcd_operator_core::observe::{Listed, Objects};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::round::Versions;
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};

use crate::caches::Caches;
use crate::kind::Kind;

/// On EndpointSlices: the Service they belong to.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// As the caches have them. The cluster itself is given: our own last write of it can be newer than the cache.
pub fn cached(caches: &Caches, cluster: Arc<EtcdCluster>, names: &Names) -> Objects {
    let slices = caches.slices.state_filter(|slice| {
        slice.labels().get(SERVICE_LABEL) == Some(&names.peer_service())
            && slice.namespace().as_deref() == Some(&names.namespace)
    });
    let by_ordinal = Ordinal::below(MAX_SIZE);
    let pods = by_ordinal.filter_map(|it| Some((it, get(&caches.pods, names, &names.pod(it))?)));
    let by_ordinal = Ordinal::below(MAX_SIZE);
    let claims = by_ordinal.filter_map(|it| Some((it, get(&caches.claims, names, &names.claim(it))?)));
    Objects {
        order: get(&caches.orders, names, &names.order()).filter(|it| belongs_to(&**it, &cluster)),
        set: get(&caches.sets, names, &names.cluster).filter(|it| belongs_to(&**it, &cluster)),
        pods: pods.collect(),
        claims: claims.collect(),
        listed: listed(slices.iter().map(|slice| &**slice)),
        cluster,
    }
}

/// As they are now; none if the cluster is gone, or is another one of the same name.
///
/// Everything is asked for by its name: after a write, the API server answers a list only when its own cache has
/// caught up, a tenth of a second later, but a name at once. What the peer Service lists is as cached. Nothing goes
/// wrong by it, because it names pods by their UIDs: at worst one that is listed by now is waited for.
pub async fn live(
    client: &Client,
    caches: &Caches,
    uid: Option<&str>,
    names: &Names,
) -> Result<Option<Objects>, kube::Error> {
    let namespace = &names.namespace;
    let clusters = Api::<EtcdCluster>::namespaced(client.clone(), namespace);
    let orders = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let sets = Api::<StatefulSet>::namespaced(client.clone(), namespace);
    let order_name = names.order();
    let (cluster, order, set) = futures::try_join!(
        clusters.get_opt(&names.cluster),
        orders.get_opt(&order_name),
        sets.get_opt(&names.cluster),
    )?;
    let Some(cluster) = cluster.filter(|cluster| cluster.metadata.uid.as_deref() == uid) else {
        return Ok(None);
    };
    let cluster = Arc::new(cluster);
    let known = cached(caches, Arc::clone(&cluster), names);
    let ordinals = ordinals_to_ask(&cluster, set.as_ref(), &known);
    let (pods, claims) = futures::try_join!(
        named::<Pod>(client, names, ordinals, |it| names.pod(it)),
        named::<PersistentVolumeClaim>(client, names, ordinals, |it| names.claim(it)),
    )?;
    Ok(Some(Objects {
        order: order.filter(|it| belongs_to(it, &cluster)).map(Arc::new),
        set: set.filter(|it| belongs_to(it, &cluster)).map(Arc::new),
        pods,
        claims,
        listed: known.listed,
        cluster,
    }))
}

/// Up to where there may be something: what is wanted, what the StatefulSet makes, and what was ever seen. Only who is
/// about to let go for ever has to look further.
fn ordinals_to_ask(cluster: &EtcdCluster, set: Option<&StatefulSet>, known: &Objects) -> u8 {
    if cluster.metadata.deletion_timestamp.is_some() {
        return MAX_SIZE;
    }
    let replicas = set.and_then(|set| set.spec.as_ref()?.replicas).unwrap_or(0);
    let wanted = replicas.max(cluster.spec.size);
    let last_seen = known.pods.keys().chain(known.claims.keys()).max();
    let seen = last_seen.map_or(0, |last| last.0.saturating_add(1));
    u8::try_from(wanted).unwrap_or(MAX_SIZE).max(seen).min(MAX_SIZE)
}

/// The objects of the first so many ordinals that carry the cluster's label, as the caches know them, too.
async fn named<K: Kind>(
    client: &Client,
    names: &Names,
    ordinals: u8,
    name: impl Fn(Ordinal) -> String,
) -> Result<BTreeMap<Ordinal, Arc<K>>, kube::Error> {
    let objects = Api::<K>::namespaced(client.clone(), &names.namespace);
    let asking = Ordinal::below(ordinals).map(|ordinal| {
        let (objects, name) = (objects.clone(), name(ordinal));
        async move { objects.get_opt(&name).await.map(|found| (ordinal, found)) }
    });
    let found = try_join_all(asking).await?.into_iter();
    let ours = |object: &K| object.labels().get(CLUSTER_LABEL) == Some(&names.cluster);
    Ok(found.filter_map(|(ordinal, found)| Some((ordinal, Arc::new(found.filter(ours)?)))).collect())
}

fn get<K: Kind>(store: &Store<K>, names: &Names, name: &str) -> Option<Arc<K>> {
    store.get(&ObjectRef::new(name).within(&names.namespace))
}

/// Versions of what a snapshot does not hold.
pub fn versions(objects: &Objects, caches: &Caches, names: &Names) -> Versions {
    let service = |name: &str| get(&caches.services, names, name)?.resource_version();
    // A budget's status changes by itself.
    let generation =
        |budget: Arc<PodDisruptionBudget>| format!("{:?} {:?}", budget.uid(), budget.metadata.generation);
    vec![
        objects.cluster.resource_version(),
        objects.set.as_ref().and_then(|set| set.metadata.generation).map(|it| it.to_string()),
        service(&names.peer_service()),
        service(&names.client_service()),
        service(&names.node_port_service()),
        get(&caches.budgets, names, &names.cluster).map(generation),
    ]
}

/// Names come back: what a former cluster of this name left behind is not ours, and neither is what a user made.
pub fn belongs_to<K: Resource>(object: &K, cluster: &EtcdCluster) -> bool {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| cluster.metadata.uid.as_ref() == Some(&owner.uid))
}

/// Whether it belonged to another cluster of the same name, which is gone: so it goes, too.
pub fn is_of_former<K: Resource>(object: &K, cluster: &EtcdCluster) -> bool {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| {
        owner.kind == EtcdCluster::kind(&())
            && Some(&owner.name) == cluster.metadata.name.as_ref()
            && Some(&owner.uid) != cluster.metadata.uid.as_ref()
    })
}

fn listed<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> Listed {
    let mut listed = Listed::new();
    for endpoint in slices.flat_map(|slice| slice.endpoints.iter()) {
        let addresses = endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
        if let Some(uid) = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()) {
            listed.entry(uid).or_default().extend(addresses);
        }
    }
    listed
}
