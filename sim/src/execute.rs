//! Carries out one action, with the preconditions that the API server and etcd check for the real executor: every write
//! carries what was read (the UID, and the resource version where content matters: order, StatefulSet, claim,
//! EtcdCluster), so that whatever happened in between makes it fail. Calls to etcd go to the member that the round chose.

use etcd_operator_core::decide::{OnDelete, OnStop};
use etcd_operator_core::observed::{ClusterId, MemberId, Ordinal};
use etcd_operator_core::plan::Action;
use etcd_operator_core::round::Outcome;
use etcd_operator_core::status::Trouble;

use crate::etcd::Tick;
use crate::etcd::api::{self, Call};
use crate::kube::{Claim, Cluster, Objects, Order, Set, Template};
use crate::observe::uid;
use crate::watch;
use crate::world::World;

/// What was read before the plan was made.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub cluster: Option<(u64, u64)>,
    pub adopts: Option<u64>,
    set: Option<(u64, u64)>,
    claims: Vec<(u64, u64)>,
    /// The pod whose etcd is called.
    pub via: Option<Ordinal>,
    /// Whether everything was to stop then.
    pub stopping: bool,
    /// Whether the user had asked for the end of all data. Who did so cannot count on taking it back while it is
    /// under way.
    pub data_may_go: bool,
}

impl Evidence {
    /// What a request carries is what was read. What the operator may do is what the user wanted at that time: whether a
    /// cache knew it is no excuse.
    pub fn of(read: &Objects, live: &Objects) -> Self {
        let adopts = read.cluster.as_ref().and_then(|cluster| cluster.goal.adopts.as_deref());
        let wants = |what: fn(&Cluster) -> bool| live.cluster.as_ref().is_some_and(what);
        Self {
            cluster: read.cluster.as_ref().map(|cluster| (cluster.uid, cluster.version)),
            adopts: adopts.and_then(|former| former.strip_prefix("cluster-")?.parse().ok()),
            set: read.set.map(|set| (set.uid, set.version)),
            claims: read.claims.values().map(|claim| (claim.uid, claim.version)).collect(),
            via: None,
            stopping: wants(|cluster| cluster.goal.size == 0),
            data_may_go: wants(|Cluster { goal, deleting, .. }| {
                *deleting && goal.on_delete == OnDelete::Delete
                    || goal.size == 0 && goal.on_stop == OnStop::Delete
            }),
        }
    }
}

pub fn execute(world: &mut World, action: &Action, evidence: &Evidence) -> Outcome {
    let outcome = match action {
        Action::AddFinalizer => change_cluster(world, evidence, |cluster, _| {
            cluster.finalizer |= !cluster.deleting;
        }),
        Action::RemoveFinalizer => remove_finalizer(world, evidence),
        Action::RecordFormed { cluster } => change_cluster(world, evidence, |there, now| {
            there.formed.get_or_insert((*cluster, now));
        }),
        Action::CreateOrder { size } => create_order(world, *size, evidence),
        Action::ArmOrder { uid } => arm_order(world, uid),
        Action::DeleteOrder { uid: order } => {
            let there = &mut world.kube.objects.order;
            done(there.take_if(|there| uid("order", there.uid) == *order).is_some())
        }
        Action::SetReplicas { replicas } => set_replicas(world, *replicas, evidence),
        Action::AdoptClaim { ordinal, uid } => adopt_claim(world, *ordinal, uid, evidence),
        Action::LabelClaim { ordinal, uid, member } => label_claim(world, *ordinal, uid, *member),
        Action::DeleteClaim { ordinal, uid } => delete_claim(world, *ordinal, uid, evidence),
        Action::DeletePod { ordinal, uid } => delete_pod(world, *ordinal, uid, evidence),
        Action::DeleteSet { uid: set } => {
            let there = &mut world.kube.objects.set;
            done(there.take_if(|there| uid("set", there.uid) == *set).is_some())
        }
        Action::AddLearner { ordinal, cluster } => {
            call(world, evidence.via, *cluster, |call, via| call.add_learner(via, *ordinal).map(drop))
        }
        Action::Promote { member, cluster, .. } => {
            call(world, evidence.via, *cluster, |call, via| call.promote(via, *member))
        }
        Action::MoveLeader { from, to, cluster } => {
            call(world, evidence.via, *cluster, |call, _| call.move_leader(*from, *to))
        }
        Action::RemoveMember { member, cluster } => {
            let outcome = call(world, evidence.via, *cluster, |call, via| call.remove(via, *member));
            if outcome == Outcome::Done {
                watch::quorum_is_left(world);
            }
            outcome
        }
    };
    world.note(|| match &outcome {
        Outcome::Done => format!("  done: {action}"),
        Outcome::Overtaken => format!("  changed in the meantime: {action}"),
        Outcome::NotDone(trouble) => format!("  not done ({}): {action}", trouble.words()),
    });
    outcome
}

fn done(happened: bool) -> Outcome {
    if happened { Outcome::Done } else { Outcome::Overtaken }
}

fn change_cluster(
    world: &mut World,
    evidence: &Evidence,
    change: impl FnOnce(&mut Cluster, Tick),
) -> Outcome {
    let now = world.now;
    let there = world.kube.objects.cluster.as_mut();
    let there = there.filter(|cluster| evidence.cluster == Some((cluster.uid, cluster.version)));
    done(
        there
            .map(|cluster| {
                cluster.version += 1;
                change(cluster, now);
            })
            .is_some(),
    )
}

fn remove_finalizer(world: &mut World, evidence: &Evidence) -> Outcome {
    let seen =
        |cluster: &mut Cluster| cluster.deleting && evidence.cluster == Some((cluster.uid, cluster.version));
    done(world.kube.objects.cluster.take_if(seen).is_some())
}

fn create_order(world: &mut World, size: u8, evidence: &Evidence) -> Outcome {
    let Some((cluster, _)) = evidence.cluster else { return Outcome::Overtaken };
    let order = Order { uid: world.kube.uid(), cluster, armed: false, size };
    if world.random.chance(world.hazards.order_created_late) {
        let when = world.now + world.random.between(1, 100);
        world.late_orders.push((when, order));
        return Outcome::Done;
    }
    let objects = &mut world.kube.objects;
    if objects.order.is_some() {
        return Outcome::Overtaken;
    }
    objects.order = Some(order);
    Outcome::Done
}

fn arm_order(world: &mut World, order: &str) -> Outcome {
    let there = world.kube.objects.order.as_mut();
    let there = there.filter(|there| uid("order", there.uid) == *order && !there.armed);
    done(there.map(|there| there.armed = true).is_some())
}

fn set_replicas(world: &mut World, replicas: u8, evidence: &Evidence) -> Outcome {
    let there = world.kube.objects.set.map(|set| (set.uid, set.version));
    let before = world.kube.objects.set.map_or(0, |set| set.replicas);
    let Some((cluster, _)) = evidence.cluster.filter(|_| there == evidence.set) else {
        return Outcome::Overtaken;
    };
    for ordinal in (replicas..before).map(Ordinal) {
        watch::voter_is_left_alone(world, ordinal, evidence);
    }
    let owner = world.kube.objects.cluster.as_ref().map(|cluster| cluster.uid);
    world.lineage.set_created_late |= there.is_none() && owner != Some(cluster);
    let fresh = world.kube.uid();
    let (uid, version) = there.unwrap_or((fresh, 0));
    let template = Template { cluster, adopts: evidence.adopts };
    world.kube.objects.set = Some(Set { uid, version: version + 1, replicas, template });
    Outcome::Done
}

fn adopt_claim(world: &mut World, ordinal: Ordinal, claim: &str, evidence: &Evidence) -> Outcome {
    let seen = |it: &Claim| uid("claim", it.uid) == claim && evidence.claims.contains(&(it.uid, it.version));
    let there = world.kube.objects.claims.get(&ordinal).filter(|it| seen(it));
    let Some(((owner, _), former)) = evidence.cluster.zip(there.map(|it| it.cluster_uid)) else {
        return Outcome::Overtaken;
    };
    watch::volume_is_adoptable(world, ordinal, evidence);
    if let Some(there) = world.kube.objects.claims.get_mut(&ordinal) {
        there.cluster_uid = owner;
        there.version += 1;
        // A volume that a user has deleted carries nothing on.
        if !there.terminating {
            world.adopted(owner, former);
        }
    }
    Outcome::Done
}

fn label_claim(world: &mut World, ordinal: Ordinal, claim: &str, member: MemberId) -> Outcome {
    let there = world.kube.objects.claims.get_mut(&ordinal);
    let Some(there) = there.filter(|there| uid("claim", there.uid) == claim && there.member.is_none()) else {
        return Outcome::Overtaken;
    };
    there.member = Some(member);
    there.version += 1;
    Outcome::Done
}

fn delete_claim(world: &mut World, ordinal: Ordinal, claim: &str, evidence: &Evidence) -> Outcome {
    let there = world.kube.objects.claims.get_mut(&ordinal);
    let seen = |uid: u64, version: u64| evidence.claims.contains(&(uid, version));
    let Some(there) =
        there.filter(|there| uid("claim", there.uid) == claim && seen(there.uid, there.version))
    else {
        return Outcome::Overtaken;
    };
    there.terminating = true;
    there.version += 1;
    watch::volume_may_go(world, ordinal, evidence);
    Outcome::Done
}

fn delete_pod(world: &mut World, ordinal: Ordinal, pod: &str, evidence: &Evidence) -> Outcome {
    let there = world.kube.objects.pods.get_mut(&ordinal);
    let Some(there) = there.filter(|there| uid("pod", there.uid) == pod) else { return Outcome::Overtaken };
    there.terminating = true;
    watch::voter_is_left_alone(world, ordinal, evidence);
    Outcome::Done
}

/// Calls etcd through this pod, if it runs a member of the right cluster that serves.
fn call(
    world: &mut World,
    via: Option<Ordinal>,
    cluster: ClusterId,
    request: impl FnOnce(&mut Call<'_>, Ordinal) -> Result<(), api::Error>,
) -> Outcome {
    let serves = |via: &Ordinal| {
        world.servers.get(via).is_some_and(|server| server.data.cluster == cluster)
            && world.reaches(*via)
            && api::linearizable_revision(&world.servers, &world.network, *via).is_some()
    };
    let Some(via) = via.filter(serves) else { return refused(&api::Error::Unavailable) };
    let World { servers, network, truth, now, strict, .. } = world;
    let mut call = Call { servers, network, truth, now: *now, strict: *strict };
    request(&mut call, via).map_or_else(|error| refused(&error), |()| Outcome::Done)
}

/// As `etcd/error.rs` of the operator reads it.
fn refused(error: &api::Error) -> Outcome {
    let text = format!("{error:?}");
    Outcome::NotDone(match error {
        api::Error::UnhealthyCluster
        | api::Error::NotEnoughStartedMembers
        | api::Error::TooManyLearners
        | api::Error::LearnerNotReady => Trouble::EtcdNotYet(text),
        api::Error::Unavailable
        | api::Error::NotSupportedForLearner
        | api::Error::NoLeader
        | api::Error::NotLeader
        | api::Error::BadLeaderTransferee
        | api::Error::NotFound
        | api::Error::MemberExists
        | api::Error::PeerUrlExists
        | api::Error::NotLearner
        | api::Error::Timeout => Trouble::Failed(text),
    })
}
