//! Which etcd cluster belongs to which EtcdCluster: one that is deleted and created again under its name is another one,
//! unless it adopts the volumes of the previous one.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::api::Tls;
use etcd_operator_core::decide::{Goal, OnDelete};
use etcd_operator_core::observed::{ClusterId, Ordinal};

use crate::etcd;
use crate::form::Form;
use crate::kube::{Cluster, Order};
use crate::problem::Violation;
use crate::world::World;

#[derive(Debug, Default)]
pub struct Lineage {
    /// Who followed which order, ever.
    founders: BTreeSet<(u64, Ordinal)>,
    /// The EtcdCluster for which an etcd cluster was bootstrapped, by its UID.
    founded: BTreeMap<ClusterId, u64>,
    /// Which EtcdCluster's volumes an EtcdCluster has adopted, by their UIDs.
    adopted: BTreeMap<u64, u64>,
    /// The EtcdCluster that exists or existed last, by its UID.
    latest: u64,
    /// The EtcdCluster whose deletion a user asked for last.
    pub deleted: Option<Cluster>,
    /// A request to create a StatefulSet arrived when its EtcdCluster was gone. Kubernetes collects it, but not the volumes
    /// that it may have created before.
    pub set_created_late: bool,
}

impl World {
    pub fn create_cluster(&mut self, goal: Goal, form: Form, tls: Tls) {
        self.note(|| format!("a user creates the cluster: {goal:?}, {tls:?}"));
        self.lineage.latest = self.kube.create_cluster(goal, form, tls);
    }

    pub fn delete_cluster(&mut self, on_delete: OnDelete) {
        self.note(|| format!("a user deletes the cluster: {on_delete:?}"));
        let objects = &self.kube.objects;
        if let Some(cluster) = &objects.cluster {
            let goal = Goal { on_delete, ..cluster.goal.clone() };
            // Whoever adopts volumes has to ask for what their members are listed with.
            let peers = objects.transport().unwrap_or_else(|| objects.target()).peers;
            let tls = Tls { peer_tls_enabled: peers.scheme().is_tls(), ..cluster.tls.clone() };
            self.lineage.deleted = Some(Cluster { goal, tls, ..cluster.clone() });
        }
        self.kube.delete_cluster(on_delete);
    }

    /// An EtcdCluster has adopted a volume: it goes on as the etcd cluster that is there.
    pub fn adopted(&mut self, successor: u64, former: u64) {
        // Only a bug gives a volume back to an older one, and two that go on as each other are none.
        if former < successor {
            self.lineage.adopted.insert(successor, former);
        }
    }

    /// A user had all adopted volumes deleted before anything ran on them: nothing is left to go on as.
    pub fn adopted_in_vain(&mut self, successor: u64) {
        let claims = self.kube.objects.claims.values();
        let cluster = self.kube.objects.cluster.as_ref();
        let unused = cluster.is_some_and(|cluster| cluster.uid == successor && cluster.formed.is_none());
        if unused && claims.filter(|claim| claim.cluster_uid == successor).all(|claim| claim.terminating) {
            self.lineage.adopted.remove(&successor);
        }
    }

    /// Whether the EtcdCluster that exists goes on as a previous one.
    pub fn has_adopted(&self) -> bool {
        self.lineage.adopted.contains_key(&self.lineage.latest)
    }

    /// A pod follows an order: once, and never in a cluster that has formed otherwise.
    pub fn founding(&mut self, order: Order, ordinal: Ordinal, cluster: u64) {
        let order = order.uid;
        let again = !self.lineage.founders.insert((order, ordinal));
        let formed = self.formed_of(cluster);
        self.lineage.founded.insert(etcd::cluster_id(order), cluster);
        self.note(|| format!("etcd {ordinal} bootstraps with order {order}"));
        if again {
            self.violate(Violation::OrderUsedTwice(ordinal));
        }
        if formed.is_some_and(|formed| formed != etcd::cluster_id(order)) {
            self.violate(Violation::SecondCluster(ordinal));
        }
    }

    /// The etcd cluster of the EtcdCluster that exists or existed last, if something was agreed upon in it.
    pub fn formed(&self) -> Option<ClusterId> {
        self.formed_of(self.lineage.latest)
    }

    /// That of an EtcdCluster, or of the one whose volumes it has adopted.
    pub fn formed_of(&self, cluster: u64) -> Option<ClusterId> {
        let has_formed = |id: &ClusterId| {
            let committed = self.truth.clusters.get(id);
            committed.is_some_and(|committed| committed.log.iter().any(|entry| entry.term > 1))
        };
        let mut own = self.lineage.founded.iter().filter(|(_, owner)| **owner == cluster).map(|(&id, _)| id);
        own.find(has_formed).or_else(|| self.formed_of(*self.lineage.adopted.get(&cluster)?))
    }
}
