//! A client that writes all the time, and reads what it was promised.

use std::collections::BTreeMap;

use etcd_operator_core::observed::{ClusterId, Ordinal};

use crate::etcd::{Change, api, consensus};
use crate::problem::Violation;
use crate::world::World;

/// Writes, and remembers what it was promised.
#[derive(Clone, Debug, Default)]
pub struct Client {
    next: u64,
    /// Index, term, cluster and value of what is not answered yet.
    pending: Vec<(usize, u64, ClusterId, u64)>,
    /// The revision of the newest write that was acknowledged.
    pub acked_revision: BTreeMap<ClusterId, u64>,
    pub acked: u64,
}

impl Client {
    /// What was not acknowledged never will be.
    pub fn forget(&mut self, cluster: ClusterId) {
        self.pending.retain(|(_, _, it, _)| *it != cluster);
    }
}

pub fn write(world: &mut World) {
    for _ in 0..3 {
        let ordinals: Vec<Ordinal> = world.servers.keys().copied().collect();
        let Some(&ordinal) = world.random.pick(&ordinals) else { return };
        if let Some(at) = consensus::leader_of(&world.servers, &world.network, ordinal)
            && let Some(leader) = world.servers.get_mut(&at)
        {
            world.client.next += 1;
            let index = leader.append(Change::Write(world.client.next));
            world.client.pending.push((index, leader.data.term, leader.data.cluster, world.client.next));
        }
    }
    let truth = &world.truth;
    let Client { pending, acked_revision, acked, .. } = &mut world.client;
    pending.retain(|&(index, term, cluster, value)| {
        let Some(committed) = truth.clusters.get(&cluster).filter(|committed| committed.log.len() >= index)
        else {
            return true;
        };
        let entry = &committed.log[index - 1];
        if entry.term == term && entry.change == Change::Write(value) {
            *acked += 1;
            let revision = committed.applied.revision;
            let newest = acked_revision.entry(cluster).or_default();
            *newest = (*newest).max(revision);
        }
        false
    });
}

/// A member that serves a linearizable read must know every write that was acknowledged before. Returns those that do.
pub fn read(world: &mut World) -> Vec<Ordinal> {
    let mut serving = Vec::new();
    for ordinal in world.servers.keys().copied().collect::<Vec<_>>() {
        let Some(revision) = api::linearizable_revision(&world.servers, &world.network, ordinal) else {
            continue;
        };
        serving.push(ordinal);
        let Some(sandbox) = world.kube.sandboxes.get(&ordinal) else { continue };
        let cluster = world.servers.get(&ordinal).map(|server| server.data.cluster);
        let formed = world.formed_of(sandbox.template.cluster);
        let newest = formed.and_then(|formed| world.client.acked_revision.get(&formed)).copied().unwrap_or(0);
        if cluster != formed {
            world.violate(Violation::OtherClusterServes(ordinal));
        } else if revision < newest {
            world.violate(Violation::WriteLost { ordinal, revision, acknowledged: newest });
        }
    }
    serving
}
