//! Carries out one action, with the preconditions that the API server and etcd check for the real executor.
//!
//! What the operator itself must do before:
//! - An action that [is decided twice](Action::is_decided_twice) is dropped unless a plan made from uncached reads
//!   (objects from the API server, members by a linearizable read) has it too, unchanged.
//! - Every write then carries what that read returned: the UID, and the resource version where content matters
//!   (StatefulSet, claim, EtcdCluster), so that whatever happened in between makes it fail.
//! - The order is made under its one name, unarmed; arming is a write on the resource version that was read.
//! - Calls to etcd go to a member that has just served a linearizable read, of the cluster that the action names.
//! - After an answer that is missing or ambiguous nothing else of the plan is done.

use etcd_operator_core::decide::{OnDelete, OnStop};
use etcd_operator_core::observed::{ClusterId, MemberId, Ordinal, Start};
use etcd_operator_core::plan::Action;

use crate::etcd::api::{self, Call};
use crate::kube::{Order, Set};
use crate::observe::uid;
use crate::world::{Promise, World};

/// The resource versions that were read right before the action.
#[derive(Clone, Debug)]
pub struct Evidence {
    cluster: Option<(u64, u64)>,
    set: Option<(u64, u64)>,
    claim: Option<u64>,
    /// Whether everything was to stop then.
    stopping: bool,
}

impl Evidence {
    pub fn read(world: &World, action: &Action) -> Self {
        let objects = &world.kube.objects;
        let claim = match action {
            Action::DeleteClaim { ordinal, .. } | Action::LabelClaim { ordinal, .. } => {
                objects.claims.get(ordinal)
            }
            _ => None,
        };
        Self {
            cluster: objects.cluster.as_ref().map(|cluster| (cluster.uid, cluster.version)),
            set: objects.set.map(|set| (set.uid, set.version)),
            claim: claim.map(|claim| claim.version),
            stopping: objects.cluster.as_ref().is_some_and(|cluster| cluster.goal.size == 0),
        }
    }
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Conflict,
    Refused(api::Error),
}

pub fn execute(world: &mut World, action: &Action, evidence: &Evidence) -> Outcome {
    let outcome = match action {
        Action::AddFinalizer | Action::RemoveFinalizer | Action::RecordFormed { .. } => {
            change_cluster(world, action, evidence)
        }
        Action::CreateOrder { .. }
        | Action::ArmOrder { .. }
        | Action::DeleteOrder { .. }
        | Action::SetReplicas { .. }
        | Action::LabelClaim { .. }
        | Action::DeleteClaim { .. }
        | Action::DeletePod { .. }
        | Action::DeleteSet { .. } => change_objects(world, action, evidence),
        Action::AddLearner { cluster, .. }
        | Action::Promote { cluster, .. }
        | Action::MoveLeader { cluster, .. }
        | Action::RemoveMember { cluster, .. } => change_members(world, action, *cluster),
    };
    world.note(|| match &outcome {
        Outcome::Done => format!("  done: {action}"),
        Outcome::Conflict => format!("  conflict: {action}"),
        Outcome::Refused(error) => format!("  refused ({error:?}): {action}"),
    });
    outcome
}

fn done(happened: bool) -> Outcome {
    if happened { Outcome::Done } else { Outcome::Conflict }
}

fn change_cluster(world: &mut World, action: &Action, evidence: &Evidence) -> Outcome {
    let now = world.now;
    let objects = &mut world.kube.objects;
    let Some(cluster) = &mut objects.cluster else { return Outcome::Conflict };
    if evidence.cluster != Some((cluster.uid, cluster.version)) {
        return Outcome::Conflict;
    }
    cluster.version += 1;
    match action {
        Action::AddFinalizer if !cluster.deleting => cluster.finalizer = true,
        Action::RemoveFinalizer if cluster.deleting => objects.cluster = None,
        Action::RecordFormed { cluster: id } if cluster.formed.is_none() => cluster.formed = Some((*id, now)),
        _ => return Outcome::Conflict,
    }
    Outcome::Done
}

fn change_objects(world: &mut World, action: &Action, evidence: &Evidence) -> Outcome {
    match action {
        Action::CreateOrder { size } => create_order(world, *size),
        Action::ArmOrder { uid: order } => {
            let there = world.kube.objects.order.as_mut();
            let there = there.filter(|there| uid("order", there.uid) == *order && !there.armed);
            done(there.map(|there| there.armed = true).is_some())
        }
        Action::DeleteOrder { uid: order } => {
            let objects = &mut world.kube.objects;
            done(objects.order.take_if(|there| uid("order", there.uid) == *order).is_some())
        }
        Action::SetReplicas { replicas } => set_replicas(world, *replicas, evidence),
        Action::LabelClaim { ordinal, uid: claim, member } => {
            let there = world.kube.objects.claims.get_mut(ordinal);
            let there = there.filter(|there| uid("claim", there.uid) == *claim && there.member.is_none());
            done(
                there
                    .map(|there| (there.member, there.version) = (Some(*member), there.version + 1))
                    .is_some(),
            )
        }
        Action::DeleteClaim { ordinal, uid: claim } => delete_claim(world, *ordinal, claim, evidence),
        Action::DeletePod { ordinal, uid: pod } => {
            let there = world.kube.objects.pods.get_mut(ordinal);
            let Some(there) = there.filter(|there| uid("pod", there.uid) == *pod) else {
                return Outcome::Conflict;
            };
            there.terminating = true;
            watch_voters(world, *ordinal, evidence, "its pod is deleted");
            Outcome::Done
        }
        Action::DeleteSet { uid: set } => {
            let objects = &mut world.kube.objects;
            done(objects.set.take_if(|there| uid("set", there.uid) == *set).is_some())
        }
        _ => Outcome::Conflict,
    }
}

fn create_order(world: &mut World, size: u8) -> Outcome {
    let order = Order { uid: world.kube.uid(), armed: false, size };
    // The request may still be under way when everybody has given it up.
    if world.random.chance(50) {
        let when = world.now + world.random.between(1, 100);
        world.late_orders.push((when, order));
        return Outcome::Done;
    }
    done(
        world.kube.objects.cluster.is_some() && world.kube.objects.order.is_none() && {
            world.kube.objects.order = Some(order);
            true
        },
    )
}

fn set_replicas(world: &mut World, replicas: u8, evidence: &Evidence) -> Outcome {
    let there = world.kube.objects.set.map(|set| (set.uid, set.version));
    let before = world.kube.objects.set.map_or(0, |set| set.replicas);
    if world.kube.objects.cluster.is_none() || there != evidence.set {
        return Outcome::Conflict;
    }
    for ordinal in (replicas..before).map(Ordinal) {
        watch_voters(world, ordinal, evidence, "its pod is scaled away");
    }
    let fresh = world.kube.uid();
    let (uid, version) = there.unwrap_or((fresh, 0));
    world.kube.objects.set = Some(Set { uid, version: version + 1, replicas });
    Outcome::Done
}

fn delete_claim(world: &mut World, ordinal: Ordinal, claim: &str, evidence: &Evidence) -> Outcome {
    let Some(there) = world.kube.objects.claims.get(&ordinal) else { return Outcome::Conflict };
    if uid("claim", there.uid) != claim || evidence.claim != Some(there.version) {
        return Outcome::Conflict;
    }
    let held = there
        .volume
        .and_then(|volume| world.kube.volumes.get(&volume)?.data.as_ref().map(|data| data.member));
    let members = world.members();
    let listed = held.and_then(|held| members.get(&held));
    let matters = listed.is_some_and(|peer| !peer.learner || peer.start != Start::Added);
    if matters && !data_may_go(world) && !(evidence.stopping && deletes_on_stop(world)) {
        world.violate(Promise::Service, || format!("volume {ordinal} is deleted while its member is listed"));
    }
    if world.kube.objects.order.is_some() && world.formed().is_some() && !is_deleting(world) {
        world.violate(Promise::Service, || format!("volume {ordinal} is deleted while there is an order"));
    }
    if let Some(there) = world.kube.objects.claims.get_mut(&ordinal) {
        there.terminating = true;
        there.version += 1;
    }
    Outcome::Done
}

/// Whether somebody asked for the end of all data.
fn data_may_go(world: &World) -> bool {
    let cluster = world.kube.objects.cluster.as_ref();
    cluster.is_some_and(|cluster| cluster.deleting && cluster.goal.on_delete == OnDelete::Delete)
}

/// Who asked for that cannot count on taking it back while it is under way.
fn deletes_on_stop(world: &World) -> bool {
    world.kube.objects.cluster.as_ref().is_some_and(|cluster| cluster.goal.on_stop == OnStop::Delete)
}

fn is_deleting(world: &World) -> bool {
    world.kube.objects.cluster.as_ref().is_none_or(|cluster| cluster.deleting)
}

/// The operator takes no pod away whose etcd is a member that has started, unless all are to stop.
fn watch_voters(world: &mut World, ordinal: Ordinal, evidence: &Evidence, what: &str) {
    let members = world.members();
    let here = world.servers.get(&ordinal).map(|server| server.id());
    let voter = here.filter(|id| members.get(id).is_some_and(|peer| !peer.learner));
    if let Some(voter) = voter.filter(|_| !evidence.stopping && !is_deleting(world)) {
        world.violate(Promise::Service, || format!("voter {voter} (pod {ordinal}) is disturbed: {what}"));
    }
}

fn change_members(world: &mut World, action: &Action, cluster: ClusterId) -> Outcome {
    let ordinals: Vec<Ordinal> = world.servers.keys().copied().collect();
    let via = ordinals.into_iter().find(|&ordinal| {
        world.servers.get(&ordinal).is_some_and(|server| server.data.cluster == cluster)
            && api::linearizable_revision(&world.servers, &world.network, ordinal).is_some()
    });
    let Some(via) = via else { return Outcome::Refused(api::Error::NoLeader) };
    let World { servers, network, truth, now, strict, .. } = world;
    let mut call = Call { servers, network, truth, now: *now, strict: *strict };
    let result = match action {
        Action::AddLearner { ordinal, .. } => call.add_learner(via, *ordinal).map(|_| ()),
        Action::Promote { member, .. } => call.promote(via, *member),
        Action::MoveLeader { from, to, .. } => call.move_leader(*from, *to),
        Action::RemoveMember { member, .. } => call.remove(via, *member),
        _ => Err(api::Error::NotFound),
    };
    if let (Action::RemoveMember { .. }, Ok(())) = (action, &result) {
        watch_quorum(world);
    }
    result.map_or_else(Outcome::Refused, |()| Outcome::Done)
}

/// After a removal enough voters run to go on.
fn watch_quorum(world: &mut World) {
    let members = world.members();
    let runs = |id: &MemberId, ordinal: &Ordinal| {
        world.servers.get(ordinal).is_some_and(|server| server.id() == *id && server.exit.is_none())
            && !world.network.cut.contains(ordinal)
    };
    let voters: Vec<_> = members.iter().filter(|(_, peer)| !peer.learner).collect();
    let running = voters.iter().filter(|(id, peer)| runs(id, &peer.ordinal)).count();
    if running < etcd_operator_core::quorum::quorum(voters.len()) {
        world.violate(Promise::Service, || {
            format!("a member was removed, and {running} of {} voters run", voters.len())
        });
    }
}
