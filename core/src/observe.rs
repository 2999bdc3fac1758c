//! From what was read to the snapshot that decisions are made from: what the state of an object means is decided here, for
//! the operator and for nobody else.

mod container;
mod etcd;
mod rejections;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolumeClaim, Pod};
use kube::ResourceExt;

use crate::api::EtcdCluster;
use crate::decide::{Goal, OnStop};
use crate::names::{CLUSTER_UID_LABEL, FINALIZER, MEMBER_ID_LABEL, Names};
use crate::observed::{self, Claim, Cluster, ClusterId, Formed, MemberId, Observed, Order, Ordinal, Set};
use crate::order::{self, BootstrapOrder};
use crate::round::Memory;
pub use container::image;
pub use etcd::{Reply, etcd};

/// The Kubernetes objects of one cluster.
#[derive(Clone, Debug)]
pub struct Objects {
    pub cluster: Arc<EtcdCluster>,
    pub order: Option<Arc<ConfigMap>>,
    pub set: Option<Arc<StatefulSet>>,
    pub pods: Pods,
    pub claims: BTreeMap<Ordinal, Arc<PersistentVolumeClaim>>,
    pub listed: Listed,
}

pub type Pods = BTreeMap<Ordinal, Arc<Pod>>;

/// The addresses that the peer Service lists, by the UID of the pod: one that returned under its name may not be listed yet.
pub type Listed = BTreeMap<String, Vec<IpAddr>>;

/// What the pods of a cluster are asked, beside their status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// How many members each lists, also without a quorum: only while the cluster is not known to have bootstrapped.
    pub listed: bool,
    /// A hash of all data: only while a stop is wanted.
    pub hash: bool,
}

impl Objects {
    pub fn replicas(&self) -> u8 {
        self.set.as_deref().map_or(0, replicas)
    }

    pub fn questions(&self, goal: &Goal) -> Questions {
        let Cluster { deleting, formed, .. } = cluster(&self.cluster);
        let hash = goal.size == 0 && goal.on_stop == OnStop::Retain && !deleting;
        Questions { listed: formed.is_none(), hash }
    }

    /// Pods that the StatefulSet should have created.
    pub fn missing_pods(&self) -> Vec<Ordinal> {
        Ordinal::below(self.replicas()).filter(|ordinal| !self.pods.contains_key(ordinal)).collect()
    }
}

/// The snapshot. `now` is the time at which the last pod responded: silence counts from there.
pub fn observe(
    objects: &Objects,
    names: &Names,
    replies: &BTreeMap<Ordinal, Reply>,
    events: &[Event],
    memory: &mut Memory,
    now: Timestamp,
) -> Observed {
    let rejected = rejections::of(events, names, &objects.missing_pods());
    let set = objects.set.as_deref();
    let mut seen = Observed {
        now,
        cluster: cluster(&objects.cluster),
        order: objects.order.as_deref().map(bootstrap_order),
        set: set.map(|set| Set { uid: uid(set), replicas: replicas(set), rejected }),
        pods: BTreeMap::new(),
        claims: objects.claims.iter().map(|(&ordinal, it)| (ordinal, claim(it))).collect(),
        etcd: etcd(replies),
    };
    memory.note_replies(&objects.pods, replies);
    memory.note_listed(objects.listed.keys(), now);
    seen.pods =
        objects.pods.iter().map(|(&it, pod)| (it, see_pod(it, pod, replies, &seen, memory))).collect();
    memory.note_silence(&mut seen);
    seen
}

fn see_pod(
    ordinal: Ordinal,
    pod: &Pod,
    replies: &BTreeMap<Ordinal, Reply>,
    seen: &Observed,
    memory: &Memory,
) -> observed::Pod {
    let uid = uid(pod);
    // A pod that responded before, or that etcd lists by now, may run although the kubelet has not reported it yet.
    let is_member = seen.etcd.members.known().is_some_and(|members| members.at(ordinal).is_some());
    let ran = container::Ran { responded: memory.has_responded(&uid), is_member };
    observed::Pod {
        terminating: pod.metadata.deletion_timestamp.is_some(),
        published: memory.is_found_by_name(&uid, seen.now),
        etcd: container::process(pod, replies.get(&ordinal), ran, seen.now),
        uid,
    }
}

fn cluster(cluster: &EtcdCluster) -> Cluster {
    let status = cluster.status.as_ref();
    let id = status.and_then(|status| hexadecimal(status.cluster_id.as_deref()?)).map(ClusterId);
    let since = status.and_then(|status| status.formed_at.as_ref()).map(|time| time.0);
    Cluster {
        uid: uid(cluster),
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        finalizer: cluster.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
        // Without a time it bootstrapped long ago.
        formed: id.map(|id| Formed { id, since: since.unwrap_or(Timestamp::UNIX_EPOCH) }),
    }
}

/// An order that cannot be read is not armed: the agents conclude the same.
fn bootstrap_order(object: &ConfigMap) -> Order {
    let text = object.data.as_ref().and_then(|data| data.get(order::KEY));
    let order = text.and_then(|text| BootstrapOrder::parse(text).ok());
    Order {
        uid: uid(object),
        armed: order.as_ref().is_some_and(|order| order.armed),
        size: order.map_or(0, |order| u8::try_from(order.members.len()).unwrap_or(u8::MAX)),
    }
}

fn replicas(set: &StatefulSet) -> u8 {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    u8::try_from(replicas).unwrap_or(u8::MAX)
}

fn claim(claim: &PersistentVolumeClaim) -> Claim {
    let label = |name: &str| claim.labels().get(name).cloned();
    Claim {
        uid: uid(claim),
        terminating: claim.metadata.deletion_timestamp.is_some(),
        cluster_uid: label(CLUSTER_UID_LABEL).unwrap_or_default(),
        bound: claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some()),
        member: label(MEMBER_ID_LABEL).and_then(|id| hexadecimal(&id)).map(MemberId),
    }
}

fn uid(object: &impl ResourceExt) -> String {
    object.uid().unwrap_or_default()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
