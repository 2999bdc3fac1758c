//! The Kubernetes objects of one cluster, as a cache has them or as the API server has them now.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use etcd_operator_core::api::{EtcdBackup, EtcdCluster};
use etcd_operator_core::foreign::Foreign;
use etcd_operator_core::member::MAX_SIZE;
use etcd_operator_core::names::{CLUSTER_LABEL, Names};
use etcd_operator_core::observe::{Listed, Objects, ours, restored_names};
use etcd_operator_core::observed::{Ordinal, Owner, Taken};
use etcd_operator_core::request::{Object, Role};
use etcd_operator_core::runs::{cluster_namespace, may_refer};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt};

use crate::caches::{Caches, Stores};
use crate::kind::Kind;

/// On EndpointSlices: the Service they belong to.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// As the caches have them, without Secrets. The cluster itself is given: our own last write of it can be newer than the cache.
pub fn cached(caches: &Caches, cluster: Arc<EtcdCluster>, names: &Names) -> Objects {
    let slices = caches.slices.all_that(|slice| {
        slice.labels().get(SERVICE_LABEL) == Some(&names.peer_service())
            && slice.namespace().as_deref() == Some(&names.namespace)
    });
    let by_ordinal = Ordinal::below(MAX_SIZE);
    let pods = by_ordinal.filter_map(|it| Some((it, get(&caches.pods, names, Object::Pod(it))?)));
    let by_ordinal = Ordinal::below(MAX_SIZE);
    let tried = |it| (it, get(&caches.preflights, names, Object::Preflight(it)));
    let preflights = by_ordinal.map(tried);
    let by_ordinal = Ordinal::below(MAX_SIZE);
    let claims = by_ordinal.filter_map(|it| Some((it, get(&caches.claims, names, Object::Claim(it))?)));
    let elsewhere = caches.claims.all_that(|claim| {
        claim.namespace().as_ref() == Some(&names.namespace)
            && claim.labels().get(CLUSTER_LABEL) == Some(&names.cluster)
            && names.volumes_of_claim(&claim.name_any()).is_some_and(|volumes| volumes != names.volumes)
    });
    let restored = restored_names(&cluster, names)
        .and_then(|names| get(&caches.claims, &names, Object::Claim(Ordinal(0))));
    let services = Role::ALL.map(|it| (it, get(&caches.services, names, Object::Service(it))));
    let policy = get(&caches.network_policies, names, Object::NetworkPolicy);
    let mut taken = BTreeSet::new();
    Objects {
        order: ours(Object::Order, get(&caches.orders, names, Object::Order), &cluster, &mut taken),
        record: ours(Object::Form, get(&caches.orders, names, Object::Form), &cluster, &mut taken),
        set: ours(Object::Set, get(&caches.sets, names, Object::Set), &cluster, &mut taken),
        pods: pods.collect(),
        preflights: our_preflights(preflights, &cluster, &mut taken),
        claims: claims.collect(),
        restored,
        elsewhere,
        secrets: BTreeMap::new(),
        given: None,
        root_password: None,
        listed: listed(slices.iter().map(|slice| &**slice)),
        services: our_services(services, &cluster, &mut taken),
        budget: ours(Object::Budget, get(&caches.budgets, names, Object::Budget), &cluster, &mut taken),
        network_policy: ours(Object::NetworkPolicy, policy, &cluster, &mut taken),
        certificate: Foreign::default(),
        pod_monitor: Foreign::default(),
        taken,
        nodes: caches.nodes.read(),
        backups: backups(caches, &cluster),
        cluster,
    }
}

/// Those that refer to the cluster and are allowed to.
fn backups(caches: &Caches, cluster: &EtcdCluster) -> Vec<Arc<EtcdBackup>> {
    caches.backups.all_that(|backup| is_of(backup, cluster))
}

fn is_of(backup: &EtcdBackup, cluster: &EtcdCluster) -> bool {
    backup.spec.cluster_name == cluster.name_any()
        && cluster_namespace(backup) == cluster.namespace().unwrap_or_default()
        && may_refer(backup, cluster)
}

/// As they are now; none if the cluster is gone, or is another one of the same name.
///
/// Everything is asked for by its name: after a write, the API server answers a list only when its own cache has
/// caught up, a tenth of a second later, but a name at once. What the peer Service lists is as cached. Nothing goes
/// wrong by it, because it names pods by their UIDs: at worst one that is listed by now is waited for. Services, the
/// budget and the network policy are asked for only if the caches do not have them: then somebody else may have their names.
/// Preflight pods are asked for only if there can be any: they come after the record of a form. EtcdBackups are listed while the
/// version changes, because no member restarts for another one before they have taken a copy; those of other namespaces are as
/// cached. So are claims that no member has.
pub async fn live(
    client: &Client,
    caches: &Caches,
    uid: Option<&str>,
    names: &Names,
) -> Result<Option<Objects>, kube::Error> {
    let (cluster, order, record, set) = futures::try_join!(
        read(client, names, Object::Cluster),
        read(client, names, Object::Order),
        read(client, names, Object::Form),
        read(client, names, Object::Set),
    )?;
    let Some(cluster) = cluster.filter(|it: &Arc<EtcdCluster>| it.metadata.uid.as_deref() == uid) else {
        return Ok(None);
    };
    let mut known = cached(caches, Arc::clone(&cluster), names);
    let ordinals = ordinals_to_ask(&cluster, set.as_deref(), &known);
    let unknown = Role::ALL.into_iter().filter(|it| !known.services.contains_key(it));
    let services =
        unknown.map(async |it| read(client, names, Object::Service(it)).await.map(|found| (it, found)));
    let budget = async {
        match &known.budget {
            None => read(client, names, Object::Budget).await,
            known => Ok(known.clone()),
        }
    };
    // A name matters only to a cluster that would use it.
    let limits_clients = cluster.spec.security.network_policy.is_some();
    let policy = async {
        match &known.network_policy {
            None if limits_clients => read(client, names, Object::NetworkPolicy).await,
            known => Ok(known.clone()),
        }
    };
    let tried = if record.is_some() || !known.preflights.is_empty() { ordinals } else { 0 };
    let backups = async {
        match changes_version(&cluster) {
            true => listed_backups(client, &cluster, known.backups.clone()).await,
            false => Ok(known.backups.clone()),
        }
    };
    let restored = async {
        match restored_names(&cluster, names) {
            Some(names) => read(client, &names, Object::Claim(Ordinal(0))).await,
            None => Ok(None),
        }
    };
    let (pods, preflights, claims, restored, services, budget, policy, backups) = futures::try_join!(
        read_all::<Pod>(client, names, ordinals, Object::Pod),
        read_all::<Pod>(client, names, tried, Object::Preflight),
        read_all::<PersistentVolumeClaim>(client, names, ordinals, Object::Claim),
        restored,
        try_join_all(services),
        budget,
        policy,
        backups,
    )?;
    let mut taken = BTreeSet::new();
    known.services.extend(our_services(services, &cluster, &mut taken));
    Ok(Some(Objects {
        order: ours(Object::Order, order, &cluster, &mut taken),
        record: ours(Object::Form, record, &cluster, &mut taken),
        set: ours(Object::Set, set, &cluster, &mut taken),
        pods: labelled(pods, Object::Pod, names, &mut taken),
        preflights: our_preflights(
            preflights.into_iter().map(|(ordinal, pod)| (ordinal, Some(pod))),
            &cluster,
            &mut taken,
        ),
        claims: labelled(claims, Object::Claim, names, &mut taken),
        restored,
        elsewhere: known.elsewhere,
        secrets: BTreeMap::new(),
        given: None,
        root_password: None,
        listed: known.listed,
        services: known.services,
        budget: ours(Object::Budget, budget, &cluster, &mut taken),
        network_policy: ours(Object::NetworkPolicy, policy, &cluster, &mut taken),
        certificate: Foreign::default(),
        pod_monitor: Foreign::default(),
        taken,
        cluster,
        nodes: known.nodes,
        backups,
    }))
}

/// Whether some member runs another version than the spec asks for, or whether that is not known.
fn changes_version(cluster: &EtcdCluster) -> bool {
    let lowest = cluster.status.as_ref().and_then(|status| status.version.as_ref());
    lowest != Some(&cluster.spec.version)
}

/// Those of the cluster's own namespace as they are now.
async fn listed_backups(
    client: &Client,
    cluster: &EtcdCluster,
    known: Vec<Arc<EtcdBackup>>,
) -> Result<Vec<Arc<EtcdBackup>>, kube::Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let list = Api::<EtcdBackup>::namespaced(client.clone(), &namespace).list(&ListParams::default()).await?;
    let own = list.items.into_iter().filter(|backup| is_of(backup, cluster)).map(Arc::new);
    let others = known.into_iter().filter(|backup| backup.namespace().as_ref() != Some(&namespace));
    Ok(own.chain(others).collect())
}

fn our_services(
    found: impl IntoIterator<Item = (Role, Option<Arc<Service>>)>,
    cluster: &EtcdCluster,
    taken: &mut BTreeSet<Taken>,
) -> BTreeMap<Role, Arc<Service>> {
    let ours = |(role, found)| Some((role, ours(Object::Service(role), found, cluster, taken)?));
    found.into_iter().filter_map(ours).collect()
}

fn our_preflights(
    found: impl IntoIterator<Item = (Ordinal, Option<Arc<Pod>>)>,
    cluster: &EtcdCluster,
    taken: &mut BTreeSet<Taken>,
) -> BTreeMap<Ordinal, Arc<Pod>> {
    let ours = |(ordinal, found)| Some((ordinal, ours(Object::Preflight(ordinal), found, cluster, taken)?));
    found.into_iter().filter_map(ours).collect()
}

/// Those that carry the cluster's label, as the caches know them, too.
fn labelled<K: Kind>(
    found: Vec<(Ordinal, Arc<K>)>,
    object: fn(Ordinal) -> Object,
    names: &Names,
    taken: &mut BTreeSet<Taken>,
) -> BTreeMap<Ordinal, Arc<K>> {
    let is_ours = |it: &(Ordinal, Arc<K>)| it.1.labels().get(CLUSTER_LABEL) == Some(&names.cluster);
    let (ours, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_ours);
    let other = |(ordinal, _)| Taken { object: object(ordinal), owner: Owner::Other };
    taken.extend(others.into_iter().map(other));
    ours.into_iter().collect()
}

/// Up to where there may be something: what is wanted, what the StatefulSet makes, and what was ever seen. Only who is
/// about to let go for ever has to look further.
fn ordinals_to_ask(cluster: &EtcdCluster, set: Option<&StatefulSet>, known: &Objects) -> u8 {
    // Nothing tells how many pods a StatefulSet kept that is missing.
    let bootstrapped = cluster.status.as_ref().is_some_and(|status| status.cluster_id.is_some());
    if cluster.metadata.deletion_timestamp.is_some() || set.is_none() && bootstrapped {
        return MAX_SIZE;
    }
    let replicas = set.and_then(|set| set.spec.as_ref()?.replicas).unwrap_or(0);
    let wanted = replicas.max(cluster.spec.size);
    let last_seen = known.pods.keys().chain(known.preflights.keys()).chain(known.claims.keys()).max();
    let seen = last_seen.map_or(0, |last| last.0.saturating_add(1));
    u8::try_from(wanted).unwrap_or(MAX_SIZE).max(seen).min(MAX_SIZE)
}

async fn read_all<K: Kind>(
    client: &Client,
    names: &Names,
    ordinals: u8,
    object: fn(Ordinal) -> Object,
) -> Result<Vec<(Ordinal, Arc<K>)>, kube::Error> {
    let reading = Ordinal::below(ordinals)
        .map(async |it| read(client, names, object(it)).await.map(|found| (it, found)));
    let found = try_join_all(reading).await?;
    Ok(found.into_iter().filter_map(|(ordinal, found)| Some((ordinal, found?))).collect())
}

pub async fn read<K: Kind>(
    client: &Client,
    names: &Names,
    object: Object,
) -> Result<Option<Arc<K>>, kube::Error> {
    let objects = Api::<K>::namespaced(client.clone(), &names.namespace);
    Ok(objects.get_opt(&object.name(names)).await?.map(Arc::new))
}

fn get<K: Kind>(stores: &Stores<K>, names: &Names, object: Object) -> Option<Arc<K>> {
    stores.get(&ObjectRef::new(&object.name(names)).within(&names.namespace))
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
