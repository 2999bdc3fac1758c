//! How the operator observes the world: Kubernetes through a cache that may be old, etcd by asking.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::auth::{self, RootPassword};
use etcd_operator_core::decide::Goal;
use etcd_operator_core::observe::{Reply, etcd};
use etcd_operator_core::observed::{
    Claim, Cluster, Comparison, DataHash, Etcd, FormRecord, Formed, LossSign, MemberId, NodeLoss, Observed,
    Order, Ordinal, Pod, Preflight, Process, Recovery, Seen, Set, Unanswered, Versions,
};
use etcd_operator_core::request::Object;
use etcd_operator_core::round::{Memory, compared_members};
use etcd_operator_core::tls::Switch;
use jiff::Timestamp;

use crate::etcd::Tick;
use crate::gift::Gift;
use crate::kube::{self, Objects, OrderKind};
use crate::random::mix;
use crate::secrets;
use crate::world::World;

/// What the names of nodes begin with.
pub const NODE: &str = "node";

/// How well the operator sees etcd.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    pub etcd_unreachable: bool,
    pub answers_lost_per_mille: u64,
}

/// What is seen, or nothing if there is no cluster. The objects were read so many ticks ago, and each pod was asked
/// between then and now. What another cluster of the same name owns is not ours.
pub fn observe(
    world: &mut World,
    objects: &Objects,
    ago: Tick,
    sight: Sight,
    memory: &mut Memory,
) -> Option<Observed> {
    let cluster = objects.cluster.as_ref()?;
    let transport = objects.transport();
    let set = objects.set.filter(|set| set.spec.template.cluster == cluster.uid);
    let version = |object| Some(objects.identity(object)?.1);
    let mut observed = Observed {
        now: time(world.now),
        cluster: Cluster {
            uid: uid("cluster", cluster.uid),
            generation: None,
            deleting: cluster.deleting,
            finalizer: cluster.finalizer,
            restart: None,
            moved_leader: None,
            restore: None,
            replacement: None,
            names_volumes: false,
            incarnation: cluster.incarnation.clone(),
            rotation: cluster.rotation.clone(),
            formed: cluster.formed.map(|(id, since)| Formed { id, since: time(since) }),
        },
        recovery: objects.order.filter(|order| order.cluster == cluster.uid).and_then(see_recovery),
        order: objects
            .order
            .filter(|it| it.cluster == cluster.uid && it.kind == OrderKind::Bootstrap)
            .map(|order| Order { uid: uid("order", order.uid), armed: order.armed, size: order.size }),
        set: set.map(|set| Set {
            uid: uid("set", set.uid),
            replicas: set.spec.replicas,
            rejected: BTreeMap::new(),
            template: Some(set.spec.template.form.digest()),
            transport: Some(set.spec.template.form.transport),
            unmarked: false,
            followed: set.is_followed(),
            agent: set.spec.template.agent,
            terminating: set.orphaning,
            volumes: Some(set.spec.volumes.form()),
            adopts: set.spec.template.adopts.map(|former| uid("cluster", former)),
            other_volumes: None,
        }),
        record: objects.record.filter(|record| record.cluster == cluster.uid).map(|record| FormRecord {
            uid: uid("form", record.uid),
            form: record.form.digest(),
            version: record.form.release.version(),
            proof: Some(record.form.proof()),
            held_generation: None,
            adopts: record.adopts.map(|former| uid("cluster", former)),
            cleared: objects.cleared.clone(),
            plain: record.form.wanted().plain,
            tls: objects.section.clone(),
        }),
        pods: objects.pods.iter().map(|(&ordinal, pod)| (ordinal, see_pod(pod))).collect(),
        preflights: own_preflights(objects, cluster.uid),
        claims: objects.claims.iter().map(|(&ordinal, claim)| (ordinal, see_claim(claim, set))).collect(),
        restored: None,
        elsewhere: BTreeMap::new(),
        secrets: objects.secrets.iter().map(|(&purpose, it)| (purpose, it.seen())).collect(),
        given: cluster.gift.map(Gift::seen),
        transport,
        pod_monitor: None,
        etcd: ask(world, objects, ago, sight),
        auth: None,
        root_password: None,
        taken: BTreeSet::new(),
        nodes: Seen::default(),
        backups: BTreeMap::new(),
        versions: Versions {
            cluster: version(Object::Cluster),
            order: version(Object::Order),
            set: version(Object::Set),
            record: version(Object::Form),
            claims: objects.claims.iter().map(|(&it, claim)| (it, claim.version.to_string())).collect(),
            secrets: objects.secrets.iter().map(|(&it, secret)| (it, secret.version.to_string())).collect(),
        },
    };
    ask_auth(world, objects, cluster, &mut observed, memory);
    for (&ordinal, pod) in &mut observed.pods {
        let answered = observed.etcd.answers.get(&ordinal).is_some_and(|it| it.known().is_some());
        // A pod that was replaced since it was read is asked by its address, and is not there.
        let same = world.kube.objects.pods.get(&ordinal).is_some_and(|it| uid("pod", it.uid) == pod.uid);
        pod.handshakes = world.handshakes(ordinal, answered && same);
        let waits = |it: &Seen<_>| matches!(it, Seen::Unknown(Unanswered::AgentWaiting(_)));
        if observed.etcd.answers.get(&ordinal).is_some_and(waits)
            && let Some(sandbox) = world.kube.sandboxes.get(&ordinal)
        {
            pod.etcd = sandbox.state.clone();
        }
    }
    memory.note_silence(&mut observed);
    compare(world, objects, sight, &observed, memory);
    Some(observed)
}

/// Beside the rounds: what it returns is known in the next one.
fn compare(world: &World, objects: &Objects, sight: Sight, observed: &Observed, memory: &mut Memory) {
    let Some(cluster) = objects.cluster.as_ref().filter(|it| it.goal.size > 0 && !it.deleting) else {
        return;
    };
    let uid = &observed.cluster.uid;
    let interval = cluster.goal.consistency_interval_seconds;
    let is_due = interval.is_some_and(|it| memory.consistency.is_due(it, uid, observed.now));
    let settles = memory.consistency.is_in_doubt() || observed.replicas() == cluster.goal.size;
    let Some(members) = compared_members(observed).filter(|_| is_due && settles) else { return };
    let asked = |(ordinal, id): &(Ordinal, MemberId)| {
        let server = world.servers.get(ordinal).filter(|it| it.id() == *id && world.reaches(*ordinal));
        (*id, server.filter(|_| !sight.etcd_unreachable))
    };
    let asked: BTreeMap<MemberId, _> = members.iter().map(asked).collect();
    let revision = asked.values().flatten().map(|it| it.applied.revision).min().unwrap_or(0);
    let hash = |rotten: bool| DataHash { hash: mix(revision ^ u64::from(rotten) << 32) as u32, compacted: 0 };
    let returned = asked.iter().map(|(&id, server)| (id, server.map(|it| hash(it.data.rotten)))).collect();
    let comparison = Comparison::of(observed.now, revision as i64, &returned);
    memory.consistency.compared(observed.now, comparison);
}

/// What is wanted, as far as that was read.
pub fn goal(world: &World, objects: &Objects, seen: &Observed) -> Option<Goal> {
    let cluster = objects.cluster.as_ref()?;
    let switch = Switch::of(&cluster.tls, cluster.goal.asked.apply_tls, seen);
    Some(Goal {
        form: Some(cluster.form.with(switch.form).wanted()),
        volumes: Some(cluster.volumes.form()),
        certificates: secrets::profiles(objects.transports(), world.lifetime, cluster.gift),
        lowest_agent: world.agent,
        switch: Some(switch),
        ..cluster.goal.clone()
    })
}

fn see_pod(pod: &kube::Pod) -> Pod {
    Pod {
        uid: uid("pod", pod.uid),
        terminating: pod.terminating,
        published: pod.published,
        etcd: pod.reported.clone(),
        form: Some(pod.template.form.digest()),
        node: pod.node.map(|node| uid(NODE, node)),
        loss: pod.lost.map(|since| NodeLoss {
            node: pod.node.map_or_else(|| NODE.into(), |node| uid(NODE, node)),
            since: time(since),
            sign: LossSign::NodeNotReady,
        }),
        was_ready: pod.ready,
        agent: pod.template.agent,
        orphaned: pod.set.is_none(),
        version: Some(pod.template.form.release.version()),
        transport: Some(pod.template.form.transport),
        created: Some(time(pod.created)),
        handshakes: BTreeMap::new(),
    }
}

fn own_preflights(objects: &Objects, cluster: u64) -> BTreeMap<Ordinal, Preflight> {
    let own = objects.preflights.iter().filter(|(_, pod)| pod.cluster == cluster);
    own.map(|(&ordinal, pod)| {
        let seen = Preflight {
            uid: uid("preflight", pod.uid),
            terminating: false,
            created: time(pod.created),
            node: Some(uid(NODE, pod.node)),
            proof: Some(pod.form.proof()),
            state: pod.state.clone(),
        };
        (ordinal, seen)
    })
    .collect()
}

fn see_claim(claim: &kube::Claim, set: Option<kube::Set>) -> Claim {
    Claim {
        uid: uid("claim", claim.uid),
        terminating: claim.terminating,
        cluster_uid: uid("cluster", claim.cluster_uid),
        bound: claim.volume.is_some(),
        member: claim.member,
        requested_bytes: Some(claim.requested),
        capacity_bytes: claim.volume.map(|_| claim.capacity),
        class: claim.class.name(),
        resize: None,
        // UIDs count.
        precedes_set: set.is_some_and(|set| claim.uid < set.uid),
        replaced_by: None,
    }
}

/// Asks each pod that is known; one that was replaced in the meantime has another address.
fn ask(world: &mut World, objects: &Objects, ago: Tick, sight: Sight) -> Etcd {
    let mut replies = BTreeMap::new();
    for (&ordinal, pod) in &objects.pods {
        let asked = world.random.below(ago + 1);
        let lost = sight.etcd_unreachable || world.random.chance(sight.answers_lost_per_mille);
        let reply = world.reply(ordinal, asked).filter(|reply| reply.pod == pod.uid && !lost);
        let agent = || if lost { None } else { ask_agent(world, ordinal, pod.uid) };
        let reply = reply.map_or_else(
            || agent().unwrap_or_else(|| Reply::Nobody("no response".into())),
            |reply| Reply::Etcd { answer: reply.answer, members: Some(Ok(reply.members)) },
        );
        replies.insert(ordinal, reply);
    }
    etcd(&replies)
}

/// An agent that waits responds in place of etcd.
fn ask_agent(world: &World, ordinal: Ordinal, pod: u64) -> Option<Reply> {
    let sandbox = world.kube.sandboxes.get(&ordinal)?;
    let responds = world.recoveries.agents_respond && sandbox.uid == pod && sandbox.is_up(world.now);
    let waits = matches!(sandbox.state, Process::Waiting | Process::DataLost | Process::Forming);
    let (process, why) = (sandbox.state.clone(), Unanswered::AgentWaiting("something".into()));
    (responds && waits && world.reaches(ordinal)).then_some(Reply::Agent { process, why })
}

fn see_recovery(order: kube::Order) -> Option<Recovery> {
    let OrderKind::Recovery(start) = order.kind else { return None };
    Some(Recovery { uid: uid("order", order.uid), start: start.map(|(it, pod)| (it, uid("pod", pod))) })
}

/// Of a member that serves.
fn ask_auth(
    world: &World,
    objects: &Objects,
    cluster: &kube::Cluster,
    observed: &mut Observed,
    memory: &mut Memory,
) {
    let goal = &cluster.goal;
    let password = goal.auth.root_password_secret().and(cluster.root_password);
    let version = password.map(|it| it.to_string());
    let loses_identity = auth::loses_identity(observed.transport, Some(objects.target()));
    let questions = memory.auth.questions(&goal.auth, loses_identity, version.as_deref(), observed.now);
    let asked = questions.filter(|_| observed.cluster.formed.is_some() && !observed.cluster.deleting);
    let members = observed.etcd.members.known();
    let answer = members.zip(asked).map(|(members, questions)| {
        world.auth.get(&members.cluster).cloned().unwrap_or_default().answer(questions, password)
    });
    let wanted = goal.auth.root_password_secret();
    let given = wanted.map(|_| password.map_or(RootPassword::NoSecret, |_| RootPassword::Given));
    memory.note_auth(observed, answer, (given, version));
}

pub fn time(tick: Tick) -> Timestamp {
    Timestamp::from_second((tick / 10) as i64).unwrap_or_default()
}

pub fn uid(kind: &str, number: u64) -> String {
    format!("{kind}-{number}")
}
