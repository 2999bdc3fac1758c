//! The agents in the pods. What they remember and decide is the code of the real agent.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use etcd_operator_core::agent::{Protocol, Reason, Report};
use etcd_operator_core::etcd_config::{peer_address, peer_url};
use etcd_operator_core::member::{MAX_SIZE, MemberProgress};
use etcd_operator_core::observed::{Blocked, ClusterId, MemberId, Ordinal, Process};
use etcd_operator_core::order::BootstrapOrder;
use etcd_operator_core::recovery::{ForcedStart, RecoveryOrder};
use etcd_operator_core::start::{
    self, Answer, Evidence, Identity, Member, MemberList, Order, Peer, Reply, Start, Volume,
};
use jiff::Timestamp;

use crate::etcd::{Server, Tick, api};
use crate::kube::{self, OrderKind};
use crate::observe::uid;
use crate::world::World;

/// What an agent can do wrong, to see whether the simulation finds it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bugs {
    /// It uses an order although it did so before, and although a member of a bootstrapped cluster responds.
    pub follows_old_orders: bool,
    /// It uses an order for a recovery again.
    pub forces_again: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Of the agent's process, until it becomes etcd.
    process: start::Memory,
    /// The orders that were used in this pod.
    pub followed: BTreeSet<u64>,
}

/// What the agent does next.
pub enum Verdict {
    Wait(Process),
    Restart,
    /// Without the other members, by this order.
    Force(u64),
    Found(kube::Order),
    Join(ClusterId, MemberId),
}

pub fn judge(world: &World, ordinal: Ordinal) -> Option<(Verdict, Memory)> {
    let sandbox = world.kube.sandboxes.get(&ordinal)?;
    let (evidence, mut memory) = inspect(world, ordinal, sandbox)?;
    let ever_started = !evidence.used_nonces.is_empty();
    let verdict = match (start::decide_start(&evidence), sandbox.order) {
        (Start::Restart { .. }, _) => Verdict::Restart,
        (Start::Force { .. }, Some(order)) => Verdict::Force(order.uid),
        (Start::Force { .. }, None) => Verdict::Restart,
        (Start::Bootstrap { .. }, Some(order)) => Verdict::Found(order),
        (Start::Bootstrap { .. }, None) => Verdict::Wait(Process::Waiting),
        (Start::Join { members, fetch_until: _ }, _) => {
            let own = members.iter().find(|member| member.is_at(&evidence.peer_address))?;
            Verdict::Join(confirmed_cluster(&evidence)?, MemberId(own.id))
        }
        (Start::Wait(waiting), _) => {
            let report = Report {
                protocol_version: Protocol::CURRENT,
                cluster_uid: evidence.cluster_uid,
                name: evidence.name,
                peer_url: peer_url(sandbox.template.form.transport.peers.scheme(), &name(ordinal)),
                ever_started,
                message: waiting.to_string(),
                waiting: Reason::Known(waiting),
                since: Timestamp::UNIX_EPOCH,
            };
            Verdict::Wait(report.process())
        }
        (Start::Refuse(refusal), _) => {
            let (reason, message) = ("Refused".into(), refusal.to_string());
            Verdict::Wait(Process::CannotStart(Blocked::Container { reason, message }))
        }
    };
    if !matches!(verdict, Verdict::Wait(_)) {
        memory.process = start::Memory::default();
    }
    Some((verdict, memory))
}

fn confirmed_cluster(evidence: &Evidence) -> Option<ClusterId> {
    evidence.lists().find(|list| list.confirmed).map(|list| ClusterId(list.cluster_id))
}

fn inspect(world: &World, ordinal: Ordinal, sandbox: &kube::Sandbox) -> Option<(Evidence, Memory)> {
    let volume = world.kube.volumes.get(&sandbox.volume)?;
    let cluster_uid = uid("cluster", sandbox.template.cluster);
    let mut memory = sandbox.memory.clone();
    let parsed = sandbox.order.filter(|it| it.kind == OrderKind::Bootstrap).map(written);
    let others = world.kube.sandboxes.iter().filter(|(other, _)| **other != ordinal);
    let published = others.filter(|(_, theirs)| theirs.is_published(world.now));
    let replies = published.map(|(&other, theirs)| {
        let answer = ask(world, ordinal, other, theirs);
        let peer_address = (answer == Answer::Waiting).then(|| peer_address(&name(other)));
        // Only real agents find each other one after the other.
        Reply { address: address(other), peer_address, ready: true, answer }
    });
    let identity = volume.owner.map(|owner| Identity {
        cluster_uid: uid("cluster", owner),
        name: name(ordinal),
        used_nonces: BTreeSet::new(),
        incarnation: None,
    });
    let followed = volume.followed.iter().chain(&memory.followed);
    let evidence = Evidence {
        name: name(ordinal),
        peer_address: peer_address(&name(ordinal)),
        cluster_uid,
        adopts: sandbox.template.adopts.map(|former| uid("cluster", former)),
        attempt: None,
        volume: Volume { has_log: volume.data.is_some(), has_remains: false, identity },
        used_nonces: followed.map(|&nonce| uid("nonce", nonce)).collect(),
        void_nonces: BTreeSet::new(),
        order: parsed.map_or(Order::None, Order::There),
        recovery: sandbox.order.and_then(recovery),
        peers: Vec::new(),
        names: Ordinal::below(MAX_SIZE).map(|other| (name(other), [address(other)].into())).collect(),
        added_for: Duration::ZERO,
        whole_log_until: u64::MAX,
    };
    let mut evidence = memory.process.add(replies.collect(), evidence, time(world.now));
    if world.agent_bugs.forces_again {
        evidence.used_nonces.clear();
    }
    if world.agent_bugs.follows_old_orders {
        evidence.used_nonces.clear();
        evidence.void_nonces.clear();
        let others = Ordinal::below(MAX_SIZE).filter(|&other| other != ordinal);
        evidence.peers = others
            .map(|other| Peer {
                address: address(other),
                peer_address: Some(peer_address(&name(other))),
                met_for: Some(Duration::MAX),
                ready: true,
                answer: Answer::Waiting,
            })
            .collect();
    }
    Some((evidence, memory))
}

fn ask(world: &World, ordinal: Ordinal, other: Ordinal, theirs: &kube::Sandbox) -> Answer {
    if !world.network.connects(ordinal, other) || !world.can_dial(ordinal, other) {
        return Answer::Silent;
    }
    match world.servers.get(&other) {
        Some(server) => Answer::Members(list(world, other, server)),
        None if !theirs.is_up(world.now) => Answer::Refused,
        None => Answer::Waiting,
    }
}

fn list(world: &World, at: Ordinal, server: &Server) -> MemberList {
    let member = |(id, peer): (&MemberId, &crate::etcd::Peer)| Member {
        id: id.0,
        name: if peer.start == MemberProgress::Added { String::new() } else { name(peer.ordinal) },
        peer_urls: peer.schemes.iter().map(|it| peer_url(it, &name(peer.ordinal))).collect(),
        client_urls: if peer.start == MemberProgress::Published {
            vec!["a client URL".into()]
        } else {
            Vec::new()
        },
        is_learner: peer.learner,
    };
    MemberList {
        cluster_id: server.data.cluster.0,
        members: server.applied.members.iter().map(member).collect(),
        confirmed: api::linearizable_revision(&world.servers, &world.network, at).is_some(),
        applied: None,
    }
}

fn written(order: kube::Order) -> BootstrapOrder {
    BootstrapOrder {
        protocol_version: Protocol::CURRENT,
        cluster_uid: uid("cluster", order.cluster),
        attempt: 1,
        armed: order.armed,
        nonce: uid("nonce", order.uid),
        members: Ordinal::below(order.size)
            .map(|ordinal| (name(ordinal), peer_url(order.peers, &name(ordinal))))
            .collect(),
    }
}

fn recovery(order: kube::Order) -> Option<RecoveryOrder> {
    let OrderKind::Recovery(start) = order.kind else { return None };
    let start =
        start.map(|(survivor, pod)| ForcedStart { survivor: name(survivor), replaces: uid("pod", pod) });
    let (cluster_uid, nonce) = (uid("cluster", order.cluster), uid("nonce", order.uid));
    Some(RecoveryOrder { protocol_version: Protocol::CURRENT, cluster_uid, nonce, start })
}

fn name(ordinal: Ordinal) -> String {
    format!("kv-{ordinal}")
}

fn address(ordinal: Ordinal) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, ordinal.0).into()
}

fn time(ticks: Tick) -> Duration {
    Duration::from_millis(ticks * 100)
}
