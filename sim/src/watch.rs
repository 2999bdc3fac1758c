//! What the operator may never do, looked at when it does it.

use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::{MemberId, Ordinal};
use etcd_operator_core::quorum::quorum;

use crate::execute::Evidence;
use crate::world::{Promise, World};

/// No volume goes while its member is listed, and none while there is an order that its pod would follow.
pub fn volume_may_go(world: &mut World, ordinal: Ordinal, evidence: &Evidence) {
    let volume = world.kube.objects.claims.get(&ordinal).and_then(|claim| claim.volume);
    let data = volume.and_then(|volume| world.kube.volumes.get(&volume)?.data.as_ref());
    let members = world.members();
    let listed = data.and_then(|data| members.get(&data.member));
    let matters = listed.is_some_and(|peer| !peer.learner || peer.start != MemberProgress::Added);
    if matters && !evidence.data_may_go {
        world.violate(Promise::Service, || {
            format!("volume {ordinal} was deleted while etcd lists its member")
        });
    }
    let armed = world.kube.objects.order.is_some_and(|order| order.armed);
    if armed && world.formed().is_some() && !is_deleting(world) {
        world.violate(Promise::Service, || {
            format!("volume {ordinal} was deleted while a bootstrap order exists")
        });
    }
}

/// No pod is taken away whose etcd is a voter, unless all are to stop.
pub fn voter_is_left_alone(world: &mut World, ordinal: Ordinal, evidence: &Evidence, what: &str) {
    let members = world.members();
    let here = world.servers.get(&ordinal).map(|server| server.id());
    let voter = here.filter(|id| members.get(id).is_some_and(|peer| !peer.learner));
    if let Some(voter) = voter.filter(|_| !evidence.stopping && !is_deleting(world)) {
        world.violate(Promise::Service, || {
            format!("the operator disrupts voter {voter} (pod {ordinal}): {what}")
        });
    }
}

/// After a removal enough voters run to go on.
pub fn quorum_is_left(world: &mut World) {
    let members = world.members();
    let runs = |id: &MemberId, ordinal: &Ordinal| {
        world.servers.get(ordinal).is_some_and(|server| server.id() == *id && server.exit.is_none())
            && !world.network.cut.contains(ordinal)
    };
    let voters: Vec<_> = members.iter().filter(|(_, peer)| !peer.learner).collect();
    let running = voters.iter().filter(|(id, peer)| runs(id, &peer.ordinal)).count();
    if running < quorum(voters.len()) {
        let voters = voters.len();
        world.violate(Promise::Service, || {
            format!("a member was removed while {running} of {voters} voters run")
        });
    }
}

fn is_deleting(world: &World) -> bool {
    world.kube.objects.cluster.as_ref().is_none_or(|cluster| cluster.deleting)
}
