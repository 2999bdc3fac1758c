//! How the operator looks at the world: Kubernetes through a cache that may be old, etcd by asking.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::decide::Goal;
use etcd_operator_core::observe::{Reply, etcd};
use etcd_operator_core::observed::{
    Answer, Claim, Cluster, Etcd, Formed, Member, Members, Observed, Order, Ordinal, Pod, Set,
};
use etcd_operator_core::round::Memory;
use etcd_operator_core::version::Version;
use jiff::Timestamp;

use crate::etcd::{Release, Tick, api};
use crate::kube::Objects;
use crate::world::World;

/// How well the operator sees etcd.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    pub etcd_unreachable: bool,
    pub answers_lost_per_mille: u64,
}

/// What is seen, or nothing if there is no cluster.
pub fn observe(
    world: &mut World,
    objects: &Objects,
    sight: Sight,
    memory: &mut Memory,
) -> Option<(Goal, Observed)> {
    let cluster = objects.cluster.as_ref()?;
    let goal = cluster.goal.clone();
    let mut observed = Observed {
        now: time(world.now),
        cluster: Cluster {
            uid: uid("cluster", cluster.uid),
            deleting: cluster.deleting,
            finalizer: cluster.finalizer,
            formed: cluster.formed.map(|(id, since)| Formed { id, since: time(since) }),
        },
        order: objects.order.map(|order| Order {
            uid: uid("order", order.uid),
            armed: order.armed,
            size: order.size,
        }),
        set: objects.set.map(|set| Set {
            uid: uid("set", set.uid),
            replicas: set.replicas,
            rejected: BTreeMap::new(),
        }),
        pods: objects.pods.iter().map(|(&ordinal, pod)| (ordinal, see_pod(pod))).collect(),
        claims: objects.claims.iter().map(|(&ordinal, claim)| (ordinal, see_claim(claim))).collect(),
        etcd: ask(world, objects, sight),
    };
    memory.note_silence(&mut observed);
    Some((goal, observed))
}

fn see_pod(pod: &crate::kube::Pod) -> Pod {
    Pod {
        uid: uid("pod", pod.uid),
        terminating: pod.terminating,
        published: pod.published,
        etcd: pod.reported.clone(),
    }
}

fn see_claim(claim: &crate::kube::Claim) -> Claim {
    Claim {
        uid: uid("claim", claim.uid),
        terminating: claim.terminating,
        cluster_uid: uid("cluster", claim.cluster_uid),
        bound: claim.volume.is_some(),
        member: claim.member,
    }
}

/// Asks each pod that is known; one that was replaced in the meantime has another address.
fn ask(world: &mut World, objects: &Objects, sight: Sight) -> Etcd {
    let mut replies = BTreeMap::new();
    for (&ordinal, pod) in &objects.pods {
        let same = world.kube.sandboxes.get(&ordinal).is_some_and(|sandbox| sandbox.uid == pod.uid);
        let lost = sight.etcd_unreachable || world.random.chance(sight.answers_lost_per_mille);
        let answer = if same && !lost { answer(world, ordinal) } else { None };
        let reply = answer.map_or_else(
            || Reply::Nobody("no response".into()),
            |answer| Reply::Etcd { members: Some(Ok(members(world, ordinal, &answer))), answer },
        );
        replies.insert(ordinal, reply);
    }
    etcd(&replies)
}

fn answer(world: &World, ordinal: Ordinal) -> Option<Answer> {
    let server = world.servers.get(&ordinal).filter(|_| !world.network.cut.contains(&ordinal))?;
    let linearizable = api::linearizable_revision(&world.servers, &world.network, ordinal).is_some();
    Some(Answer {
        cluster: server.data.cluster,
        member: server.id(),
        leader: server.leader,
        linearizable,
        applied_index: server.applied.index as u64,
        version: Some(match server.release {
            Release::V3_5 => Version::new(3, 5, 0),
            Release::V3_5_30 => Version::new(3, 5, 30),
            Release::V3_6 => Version::new(3, 6, 11),
        }),
        listed: None,
        // Logs that agree give hashes that agree; that they do is watched elsewhere.
        hash: linearizable.then_some(1),
        alarms: BTreeSet::new(),
    })
}

fn members(world: &World, ordinal: Ordinal, answer: &Answer) -> Members {
    let list = world.servers.get(&ordinal).map(|server| &server.applied.members);
    let member = |peer: &crate::etcd::Peer| Member {
        ordinal: Some(peer.ordinal),
        learner: peer.learner,
        start: peer.start,
    };
    Members {
        cluster: answer.cluster,
        leader: answer.leader,
        list: list.into_iter().flatten().map(|(&id, peer)| (id, member(peer))).collect(),
    }
}

pub fn time(tick: Tick) -> Timestamp {
    Timestamp::from_second((tick / 10) as i64).unwrap_or_default()
}

pub fn uid(kind: &str, number: u64) -> String {
    format!("{kind}-{number}")
}
