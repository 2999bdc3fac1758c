//! The agents in the pods: they look around, and the decision that the real agent makes says whether etcd may start.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use etcd_operator_core::agent::Report;
use etcd_operator_core::observed::{Blocked, ClusterId, MemberId, Ordinal, Process, Start as Listed};
use etcd_operator_core::order::BootstrapOrder;
use etcd_operator_core::start::{
    self, Answer, Evidence, Identity, Member, MemberList, Order, Peer, Start, Volume,
};
use jiff::Timestamp;

use crate::etcd::{Server, Tick, api};
use crate::kube;
use crate::observe::uid;
use crate::world::World;

/// What an agent may get wrong, to see whether it is found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bugs {
    /// It follows an order although it did so before, and although a formed cluster answers.
    pub follows_old_orders: bool,
}

/// What an agent remembers while its pod lives.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Orders that it saw a cluster form by.
    void: BTreeSet<String>,
    /// Since when it has known that an agent or a forming etcd is there.
    met: BTreeMap<Ordinal, Tick>,
    added_since: Option<Tick>,
    pub followed: BTreeSet<u64>,
}

/// What becomes of a look around.
pub enum Verdict {
    Wait(Process),
    Restart,
    Found(kube::Order),
    Join(ClusterId, MemberId),
}

pub fn judge(world: &World, ordinal: Ordinal) -> Option<(Verdict, Memory)> {
    let sandbox = world.kube.sandboxes.get(&ordinal)?;
    let (evidence, memory) = look(world, ordinal, sandbox)?;
    let ever_started = !evidence.used_nonces.is_empty();
    let verdict = match (start::decide_start(&evidence), sandbox.order) {
        (Start::Restart { .. }, _) => Verdict::Restart,
        (Start::Bootstrap { .. }, Some(order)) => Verdict::Found(order),
        (Start::Bootstrap { .. }, None) => Verdict::Wait(Process::Waiting),
        (Start::Join { members, fetch_until: _ }, _) => {
            let own = members.iter().find(|member| member.peer_urls == [evidence.peer_url.as_str()])?;
            Verdict::Join(confirmed_cluster(&evidence)?, MemberId(own.id))
        }
        (Start::Wait(waiting), _) => {
            let report = Report {
                cluster_uid: evidence.cluster_uid,
                name: evidence.name,
                peer_url: evidence.peer_url,
                ever_started,
                message: waiting.to_string(),
                waiting,
                since: Timestamp::UNIX_EPOCH,
            };
            Verdict::Wait(report.process())
        }
        (Start::Refuse(refusal), _) => {
            let (reason, message) = ("Refused".into(), refusal.to_string());
            Verdict::Wait(Process::CannotStart(Blocked::Container { reason, message }))
        }
    };
    Some((verdict, memory))
}

fn confirmed_cluster(evidence: &Evidence) -> Option<ClusterId> {
    evidence.peers.iter().find_map(|peer| match &peer.answer {
        Answer::Members(list) if list.confirmed => Some(ClusterId(list.cluster_id)),
        Answer::Members(_) | Answer::Waiting | Answer::Refused | Answer::Silent | Answer::Unknown => None,
    })
}

fn look(world: &World, ordinal: Ordinal, sandbox: &kube::Sandbox) -> Option<(Evidence, Memory)> {
    let volume = world.kube.volumes.get(&sandbox.volume)?;
    let cluster_uid = uid("cluster", sandbox.template.cluster);
    let mut memory = sandbox.memory.clone();
    let parsed = sandbox.order.map(written);
    let others = world.kube.sandboxes.iter().filter(|(other, _)| **other != ordinal);
    let mut peers = Vec::new();
    for (&other, theirs) in others.filter(|(_, theirs)| world.now >= theirs.published_from) {
        let answer = ask(world, ordinal, other, theirs);
        let there = match &answer {
            Answer::Members(list) => parsed.as_ref().is_some_and(|order| list.is_forming(order)),
            Answer::Waiting => true,
            Answer::Refused | Answer::Silent | Answer::Unknown => false,
        };
        if there {
            memory.met.entry(other).or_insert(world.now);
        } else {
            memory.met.remove(&other);
        }
        let met_for = memory.met.get(&other).map_or(Duration::ZERO, |&since| time(world.now - since));
        let (address, url) = (address(other), there.then(|| url(other)));
        // Agents that find each other one after the other are told apart only by real ones.
        peers.push(Peer { address, url, met_for, ready: true, answer });
    }
    let added = peers.iter().any(|peer| match &peer.answer {
        Answer::Members(list) => list.standing_of(&url(ordinal)) == Some(start::Standing::Added),
        Answer::Waiting | Answer::Refused | Answer::Silent | Answer::Unknown => false,
    });
    memory.added_since = added.then(|| memory.added_since.unwrap_or(world.now));
    let mut used_nonces: BTreeSet<String> =
        volume.followed.iter().chain(&memory.followed).map(|&nonce| uid("nonce", nonce)).collect();
    if world.agent_bugs.follows_old_orders {
        used_nonces.clear();
        peers.retain(|peer| !matches!(peer.answer, Answer::Members(_)));
        let all = Ordinal::below(9).filter(|&other| other != ordinal);
        peers = all
            .map(|other| Peer {
                address: address(other),
                url: Some(url(other)),
                met_for: Duration::MAX,
                ready: true,
                answer: Answer::Waiting,
            })
            .collect();
    }
    let identity = volume.owner.map(|owner| Identity {
        cluster_uid: uid("cluster", owner),
        name: name(ordinal),
        used_nonces: BTreeSet::new(),
    });
    let evidence = Evidence {
        name: name(ordinal),
        peer_url: url(ordinal),
        cluster_uid,
        adopts: sandbox.template.adopts.map(|former| uid("cluster", former)),
        attempt: None,
        volume: Volume { has_log: volume.data.is_some(), has_remains: false, identity },
        used_nonces,
        void_nonces: memory.void.clone(),
        order: parsed.map_or(Order::None, Order::There),
        peers,
        names: Ordinal::below(9).map(|other| (name(other), [address(other)].into())).collect(),
        added_for: memory.added_since.map_or(Duration::ZERO, |since| time(world.now - since)),
        whole_log_until: u64::MAX,
    };
    memory.void.extend(start::voided_order(&evidence).map(str::to_owned));
    Some((evidence, memory))
}

fn ask(world: &World, ordinal: Ordinal, other: Ordinal, theirs: &kube::Sandbox) -> Answer {
    if !world.network.connects(ordinal, other) {
        return Answer::Silent;
    }
    match world.servers.get(&other) {
        Some(server) => Answer::Members(list(world, other, server)),
        None if world.now < theirs.starts || theirs.ends.is_some() => Answer::Refused,
        None => Answer::Waiting,
    }
}

fn list(world: &World, at: Ordinal, server: &Server) -> MemberList {
    let member = |(id, peer): (&MemberId, &crate::etcd::Peer)| Member {
        id: id.0,
        name: if peer.start == Listed::Added { String::new() } else { name(peer.ordinal) },
        peer_urls: vec![url(peer.ordinal)],
        client_urls: if peer.start == Listed::Published { vec!["a client URL".into()] } else { Vec::new() },
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
        cluster_uid: uid("cluster", order.cluster),
        attempt: 1,
        armed: order.armed,
        nonce: uid("nonce", order.uid),
        members: Ordinal::below(order.size).map(|ordinal| (name(ordinal), url(ordinal))).collect(),
    }
}

fn name(ordinal: Ordinal) -> String {
    format!("kv-{ordinal}")
}

fn url(ordinal: Ordinal) -> String {
    format!("http://kv-{ordinal}:2380")
}

fn address(ordinal: Ordinal) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, ordinal.0).into()
}

fn time(ticks: Tick) -> Duration {
    Duration::from_millis(ticks * 100)
}
