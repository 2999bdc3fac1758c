//! Kubernetes as far as it matters here: objects with UIDs and resource versions, nodes that can be down, and the
//! controllers and kubelets that act on them.

mod controllers;
mod preflight;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use etcd_operator_core::agent::Protocol;
use etcd_operator_core::api::{EtcdClusterStatus, Tls};
use etcd_operator_core::decide::{Goal, OnDelete};
use etcd_operator_core::observed::{ClusterId, MemberId, Ordinal, Process};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::request::Object;
use etcd_operator_core::tls::{Purpose, Scheme, Section};

use crate::agent::Memory;
use crate::etcd::{Data, Tick};
use crate::form::Form;
use crate::gift::Gift;
use crate::observe::uid;
use crate::secrets::{Authorities, Secret, Secrets};
use crate::volumes::{Class, Volumes};
pub use preflight::Preflight;

/// What the API server holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    pub cluster: Option<Cluster>,
    pub order: Option<Order>,
    pub record: Option<Record>,
    /// What the record has about logs.
    pub cleared: BTreeSet<MemberId>,
    /// What it has about TLS.
    pub section: Option<Section>,
    pub set: Option<Set>,
    pub pods: BTreeMap<Ordinal, Pod>,
    pub preflights: BTreeMap<Ordinal, Preflight>,
    pub claims: BTreeMap<Ordinal, Claim>,
    pub secrets: Secrets,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    pub uid: u64,
    pub version: u64,
    pub goal: Goal,
    pub form: Form,
    pub volumes: Volumes,
    pub tls: Tls,
    pub deleting: bool,
    pub finalizer: bool,
    pub formed: Option<(ClusterId, Tick)>,
    pub incarnation: Option<String>,
    /// As operators reported it last.
    pub status: Option<Rc<EtcdClusterStatus>>,
    /// The content of the Secret with the password of etcd's root, if there is one.
    pub root_password: Option<u64>,
    /// The certificate that a user gives for the client port.
    pub gift: Option<Gift>,
    /// The rotation of authorities that was accepted last.
    pub rotation: Option<(String, BTreeSet<String>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Also its nonce.
    pub uid: u64,
    pub version: u64,
    /// The EtcdCluster that owns it, by its UID.
    pub cluster: u64,
    pub armed: bool,
    pub size: u8,
    /// Of the peer URLs in it.
    pub peers: Scheme,
    pub kind: OrderKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKind {
    Bootstrap,
    /// With the pod that continues, and the UID of the one that it ran in.
    Recovery(Option<(Ordinal, u64)>),
}

/// The ConfigMap with the form that all members ran together last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub uid: u64,
    pub version: u64,
    /// The EtcdCluster that owns it, by its UID.
    pub cluster: u64,
    pub form: Form,
    pub adopts: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    pub uid: u64,
    pub version: u64,
    pub generation: u64,
    pub spec: SetSpec,
    /// What its controller has read, and of which generation that is.
    pub read: Option<(SetSpec, u64)>,
    /// It is being deleted, and its pods stay.
    pub orphaning: bool,
}

impl Set {
    pub fn new(uid: u64, spec: SetSpec) -> Self {
        Self { uid, version: 1, generation: 1, spec, read: None, orphaning: false }
    }

    pub fn changed(self, spec: SetSpec) -> Self {
        Self { version: self.version + 1, generation: self.generation + 1, spec, ..self }
    }

    pub fn is_followed(self) -> bool {
        self.read.is_some_and(|(_, generation)| generation == self.generation)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetSpec {
    pub replicas: u8,
    pub template: Template,
    pub volumes: Volumes,
}

/// What the pods of a StatefulSet are created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// The EtcdCluster that owns the StatefulSet, by its UID.
    pub cluster: u64,
    /// The previous EtcdCluster whose volumes the agents accept.
    pub adopts: Option<u64>,
    pub form: Form,
    pub agent: Protocol,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub uid: u64,
    /// The StatefulSet that owns it, by its UID; none for an orphan.
    pub set: Option<u64>,
    pub template: Template,
    pub created: Tick,
    /// Where it is placed.
    pub node: Option<u64>,
    /// Since when Kubernetes has known that the node of the pod, or of its volume, does not respond.
    pub lost: Option<Tick>,
    pub terminating: bool,
    pub published: bool,
    pub ready: bool,
    /// What the kubelet last reported.
    pub reported: Process,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub uid: u64,
    pub version: u64,
    pub terminating: bool,
    pub cluster_uid: u64,
    pub member: Option<MemberId>,
    pub volume: Option<u64>,
    pub class: Class,
    /// In bytes; a claim without a volume has none.
    pub requested: u64,
    pub capacity: u64,
}

/// A local disk: pods that use it run on its node.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    pub node: u64,
    /// The EtcdCluster whose agents wrote to it first, by its UID.
    pub owner: Option<u64>,
    pub data: Option<Data>,
    /// The orders that were followed here.
    pub followed: BTreeSet<u64>,
}

/// What a node knows of a pod on it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub uid: u64,
    pub template: Template,
    pub node: u64,
    pub volume: u64,
    /// The order as the kubelet last mounted it.
    pub order: Option<Order>,
    /// What the mounted Secrets trust; none before they are mounted.
    pub mounted: Option<Authorities>,
    /// They were outdated when they were first mounted.
    pub mounted_late: bool,
    /// What its etcd read when it started.
    pub trusts: Authorities,
    /// When the container is started, or started again.
    pub starts: Tick,
    pub published_from: Tick,
    pub state: Process,
    /// Whether its etcd serves.
    pub ready: bool,
    /// How often in a row etcd ended by itself.
    pub failures: u32,
    pub memory: Memory,
    /// When a pod that was told to end is gone.
    pub ends: Option<Tick>,
}

impl Sandbox {
    /// Whether its agent or its etcd runs, or could.
    pub fn is_up(&self, now: Tick) -> bool {
        self.mounted.is_some() && now >= self.starts && self.ends.is_none()
    }

    /// Whether others find it. A pod whose volumes are not mounted has no address.
    pub fn is_published(&self, now: Tick) -> bool {
        self.mounted.is_some() && now >= self.published_from
    }
}

#[derive(Clone, Debug, Default)]
pub struct Kube {
    pub objects: Objects,
    pub volumes: BTreeMap<u64, Volume>,
    pub sandboxes: BTreeMap<Ordinal, Sandbox>,
    /// Pods that no node has room for.
    pub unplaceable: BTreeSet<Ordinal>,
    /// Since when nodes are down. Each volume has a node of its own.
    pub nodes_down: BTreeMap<u64, Tick>,
    /// Storage that does not let volumes grow.
    pub growth_fails: bool,
    /// The last authority of each kind that was issued for an EtcdCluster, by its UID: users have copies.
    pub backups: BTreeMap<(u64, Purpose), Secret>,
    /// The keys of authorities whose Secrets a user has deleted.
    pub deleted_authorities: BTreeSet<u64>,
    /// The Secrets before their last change, and when that was.
    pub secrets_before: (Tick, Secrets),
    /// Pods that were created in this tick.
    pub created: Vec<Ordinal>,
    last_uid: u64,
}

impl Kube {
    pub fn uid(&mut self) -> u64 {
        self.last_uid += 1;
        self.last_uid
    }

    /// The pods whose node is down: the kubelet reports nothing and ends nothing there.
    pub fn pods_on_nodes_down(&self) -> BTreeSet<Ordinal> {
        let down = self.sandboxes.iter().filter(|(_, sandbox)| self.nodes_down.contains_key(&sandbox.node));
        down.map(|(&ordinal, _)| ordinal).collect()
    }

    /// The volumes there: no pod that needs one of them starts elsewhere.
    pub fn volumes_on_nodes_down(&self) -> BTreeSet<Ordinal> {
        let node = |claim: &Claim| Some(self.volumes.get(&claim.volume?)?.node);
        let is_down = |claim: &Claim| node(claim).is_some_and(|node| self.nodes_down.contains_key(&node));
        self.objects.claims.iter().filter(|(_, claim)| is_down(claim)).map(|(&ordinal, _)| ordinal).collect()
    }

    pub fn lose_claim(&mut self, ordinal: Ordinal) {
        if let Some(volume) = self.objects.claims.remove(&ordinal).and_then(|claim| claim.volume) {
            self.volumes.remove(&volume);
        }
    }

    /// A user creates the EtcdCluster, perhaps again under its name.
    pub fn create_cluster(&mut self, goal: Goal, form: Form, tls: Tls) -> u64 {
        let uid = self.uid();
        let cluster = Cluster {
            uid,
            version: 1,
            goal,
            form,
            volumes: Volumes::FIRST,
            tls,
            deleting: false,
            finalizer: false,
            formed: None,
            incarnation: None,
            status: None,
            root_password: None,
            gift: None,
            rotation: None,
        };
        self.objects.cluster = Some(cluster);
        uid
    }

    pub fn delete_cluster(&mut self, on_delete: OnDelete) {
        if let Some(cluster) = &mut self.objects.cluster {
            cluster.goal.on_delete = on_delete;
            cluster.deleting = true;
            cluster.version += 1;
            if !cluster.finalizer {
                self.objects.cluster = None;
            }
        }
    }

    /// Whether the disruption budget lets this pod go, while there are so many voters.
    pub fn allows_eviction(&self, ordinal: Ordinal, voters: usize) -> bool {
        let Some(goal) = self.objects.cluster.as_ref().map(|cluster| &cluster.goal) else { return true };
        let is_healthy = |pod: &&Pod| pod.ready && !pod.terminating;
        let healthy = self.objects.pods.values().filter(is_healthy).count();
        let itself = usize::from(self.objects.pods.get(&ordinal).as_ref().is_some_and(is_healthy));
        let needed = quorum(voters.max(usize::from(goal.size)));
        !goal.disruption_budget || healthy - itself >= needed
    }

    /// The claims that belong to another EtcdCluster than the present one.
    pub fn foreign_claims(&self) -> Vec<Ordinal> {
        let Some(cluster) = &self.objects.cluster else { return Vec::new() };
        let foreign = self.objects.claims.iter().filter(|(_, claim)| claim.cluster_uid != cluster.uid);
        foreign.map(|(&ordinal, _)| ordinal).collect()
    }
}

impl Objects {
    /// UID and resource version of an object, as operators see them.
    pub fn identity(&self, object: Object) -> Option<(String, String)> {
        let (kind, number, version) = match object {
            Object::Cluster => self.cluster.as_ref().map(|it| ("cluster", it.uid, it.version)),
            Object::Order => self.order.map(|it| ("order", it.uid, it.version)),
            Object::Form => self.record.map(|it| ("form", it.uid, it.version)),
            Object::Set => self.set.map(|it| ("set", it.uid, it.version)),
            Object::Pod(ordinal) => self.pods.get(&ordinal).map(|it| ("pod", it.uid, 0)),
            Object::Preflight(ordinal) => self.preflights.get(&ordinal).map(|it| ("preflight", it.uid, 0)),
            Object::Claim(ordinal) => self.claims.get(&ordinal).map(|it| ("claim", it.uid, it.version)),
            Object::Secret(purpose) => self.secrets.get(&purpose).map(|it| ("secret", it.uid, it.version)),
            // Nothing depends on them here.
            Object::Service(_)
            | Object::Budget
            | Object::NetworkPolicy
            | Object::Certificate
            | Object::PodMonitor => None,
        }?;
        Some((uid(kind, number), version.to_string()))
    }

    /// How many objects were created, changed or deleted since then; statuses and resource versions aside.
    pub fn changes_since(&self, before: &Self) -> u64 {
        let unversioned =
            |cluster: &Option<Cluster>| cluster.clone().map(|it| Cluster { version: 0, status: None, ..it });
        let changed = [
            unversioned(&self.cluster) != unversioned(&before.cluster),
            self.order != before.order,
            self.set.map(|set| (set.uid, set.spec)) != before.set.map(|set| (set.uid, set.spec)),
            self.record != before.record,
        ];
        let ordinals = || Ordinal::below(u8::MAX);
        let pods = ordinals().filter(|it| self.pods.get(it) != before.pods.get(it)).count();
        let claims = ordinals().filter(|it| self.claims.get(it) != before.claims.get(it)).count();
        let tried = ordinals().filter(|it| self.preflights.get(it) != before.preflights.get(it)).count();
        let issued = Purpose::ALL.iter().filter(|it| self.secrets.get(it) != before.secrets.get(it)).count();
        changed.into_iter().map(u64::from).sum::<u64>() + (pods + claims + tried + issued) as u64
    }
}
