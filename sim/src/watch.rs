//! What the operator must never do, checked when it does it.

use etcd_operator_core::observed::{MemberId, Ordinal};
use etcd_operator_core::quorum::quorum;

use crate::etcd::Peer;
use crate::execute::Wanted;
use crate::problem::Violation;
use crate::world::World;

/// No volume is deleted that is another cluster's, whose member is listed, or whose pod would follow an order again.
pub fn volume_may_go(world: &mut World, ordinal: Ordinal, wanted: Wanted) {
    let Some(claim) = world.kube.objects.claims.get(&ordinal) else { return };
    if wanted.cluster != claim.cluster_uid {
        world.violate(Violation::ForeignVolumeDeleted(ordinal));
        return;
    }
    let data = claim.volume.and_then(|volume| world.kube.volumes.get(&volume)?.data.as_ref());
    // A cluster that never formed has nothing to lose.
    let ours = data.filter(|data| world.formed() == Some(data.cluster));
    // One of two operators can add a pod as a learner while the other one still deletes its volume. A learner has nothing that
    // the voters do not have.
    let counts = |peer: &Peer| !(peer.learner && world.has_rivals);
    let listed =
        ours.is_some_and(|data| world.members_of(data.cluster).get(&data.member).is_some_and(counts));
    if listed && !wanted.data_may_go && !wanted.consented {
        world.violate(Violation::MemberVolumeDeleted(ordinal));
    }
    let armed = world.kube.objects.order.is_some_and(|order| order.armed);
    if armed {
        world.violate(Violation::VolumeDeletedDuringBootstrap(ordinal));
    }
}

/// No volume is adopted whose cluster the annotation did not name when it was read.
pub fn volume_is_adoptable(world: &mut World, ordinal: Ordinal, wanted: Wanted) {
    let former = world.kube.objects.claims.get(&ordinal).map(|claim| claim.cluster_uid);
    if former != wanted.adopts {
        world.violate(Violation::VolumeAdoptedUnasked(ordinal));
    }
}

/// No pod is deleted whose etcd is a voter, unless all are to stop.
pub fn voter_is_left_alone(world: &mut World, ordinal: Ordinal, wanted: Wanted) {
    let Some(server) = world.servers.get(&ordinal) else { return };
    let member = server.id();
    let votes = world.members_of(server.data.cluster).get(&member).is_some_and(|peer| !peer.learner);
    if votes && world.formed() == Some(server.data.cluster) && !wanted.stopping && !is_deleting(world) {
        world.violate(Violation::VoterDisrupted { member, ordinal });
    }
}

/// No pod is deleted by force while etcd lists the member whose data its volume has: the node might run it on.
pub fn end_is_fenced(world: &mut World, ordinal: Ordinal) {
    let sandbox = world.kube.sandboxes.get(&ordinal);
    let on_volume = sandbox.and_then(|it| world.kube.volumes.get(&it.volume)?.data.as_ref());
    let member = world.servers.get(&ordinal).map(|server| server.id()).or(on_volume.map(|data| data.member));
    if member.is_some_and(|member| world.members().contains_key(&member)) {
        world.violate(Violation::EndedUnfenced(ordinal));
    }
}

/// After a removal some voter is connected to enough voters to go on.
pub fn quorum_is_left(world: &mut World) {
    let members = world.members();
    let voters = members.values().filter(|peer| !peer.learner).count();
    let runs = |(id, peer): &(&MemberId, &Peer)| {
        let running = world.servers.get(&peer.ordinal).filter(|server| server.exit.is_none());
        !peer.learner && running.is_some_and(|server| server.id() == **id)
    };
    let running: Vec<Ordinal> = members.iter().filter(runs).map(|(_, peer)| peer.ordinal).collect();
    let connected = |one: &Ordinal| running.iter().filter(|it| world.network.connects(*one, **it)).count();
    let connected = running.iter().map(connected).max().unwrap_or(0);
    if connected < quorum(voters) {
        world.violate(Violation::QuorumLost { connected, voters });
    }
}

pub fn is_deleting(world: &World) -> bool {
    world.kube.objects.cluster.as_ref().is_none_or(|cluster| cluster.deleting)
}
