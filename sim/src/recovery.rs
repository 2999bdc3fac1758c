//! Majorities that are lost for good, users who consent to go on without them, and an etcd that is started without its peers.

use std::collections::BTreeSet;

use etcd_operator_core::observed::{ClusterId, Ordinal};
use etcd_operator_core::recovery::{Consent, Survivor};

use crate::etcd::{Change, Data, Entry, Server};
use crate::problem::Violation;
use crate::world::World;

/// What users allowed, and what came of it.
#[derive(Debug, Default)]
pub struct Recoveries {
    /// Agents respond to operators, which nothing but a recovery needs to know.
    pub agents_respond: bool,
    consents: usize,
    /// Orders by which an etcd was started alone, with the pod.
    forced: BTreeSet<(u64, Ordinal)>,
}

impl Data {
    /// As `--force-new-cluster` does it: what is not known to be committed is dropped, and so are the other members.
    pub fn without_others(mut self) -> Self {
        self.log.truncate(self.commit);
        let applied = Server::start(self.clone(), crate::etcd::Release::V3_5, 0).applied;
        self.term += 1;
        let term = self.term;
        let others = applied.members.into_keys().filter(|id| *id != self.member);
        self.log.extend(others.map(|id| Entry { term, change: Change::Remove(id) }));
        self.commit = self.log.len();
        self.vote = None;
        self
    }
}

impl World {
    /// The volume, its claim and its pod are deleted by a user, or with their node.
    pub fn lose_for_good(&mut self, ordinal: Ordinal) {
        self.note(|| format!("pod {ordinal} and its volume are lost for good"));
        self.data_at_risk = true;
        self.stop(ordinal);
        self.kube.lose_claim(ordinal);
        self.kube.sandboxes.remove(&ordinal);
        self.kube.objects.pods.remove(&ordinal);
    }

    pub fn consent(&mut self, survivor: Option<Survivor>) {
        let formed = self.formed();
        let Some((cluster, id)) = self.kube.objects.cluster.as_mut().zip(formed) else { return };
        self.recoveries.consents += usize::from(survivor.is_some());
        cluster.goal.recovery = survivor.map(|survivor| Consent { cluster: id, survivor });
        cluster.version += 1;
        self.note(|| "a user gives or takes back consent to the loss of data".into());
    }

    /// An etcd starts without its peers: once for each order and consent, and beside nobody who could be a quorum without it.
    pub fn continues_alone(&mut self, order: u64, ordinal: Ordinal, data: &Data) {
        self.note(|| format!("etcd {ordinal} continues without its peers by order {order}"));
        let again = !self.recoveries.forced.insert((order, ordinal));
        if again || self.recoveries.forced.len() > self.recoveries.consents {
            self.violate(Violation::ForcedUnasked(ordinal));
        }
        let others = self.kube.volumes.values().filter_map(|volume| volume.data.as_ref());
        let beside =
            others.filter(|other| other.cluster == data.cluster && other.member != data.member).count();
        if beside > 0 {
            self.violate(Violation::ForcedUnfenced { ordinal, beside });
        }
        self.forget_what_was_lost(data);
        self.data_at_risk = false;
    }

    /// From now on, the truth is what the survivor knew to be committed.
    fn forget_what_was_lost(&mut self, data: &Data) {
        let cluster: ClusterId = data.cluster;
        self.truth.go_back_to(data);
        let kept = self.truth.clusters.get(&cluster).map_or(0, |committed| committed.applied.revision);
        self.client.acked_revision.entry(cluster).and_modify(|acked| *acked = (*acked).min(kept));
        self.client.forget(cluster);
    }
}
