//! Elections, replication, commits. A message arrives at once or not at all.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::{ClusterId, MemberId, Ordinal};
use etcd_operator_core::quorum::quorum;

use super::election;
use super::{Applied, Change, Data, Entry, Exit, Release, Role, Server, Tick};
use crate::random::Random;

pub type Servers = BTreeMap<Ordinal, Server>;

/// How many entries one message takes.
const CHUNK: usize = 60;
/// A second without a leader, and up to one more.
pub const ELECTION: Tick = 10;

#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Pods that reach nothing and that nothing reaches.
    pub cut: BTreeSet<Ordinal>,
    /// One-way cuts: what the first sends does not arrive at the second.
    pub severed: BTreeSet<(Ordinal, Ordinal)>,
    /// Pods whose previous address DNS still returns.
    pub moved: BTreeSet<Ordinal>,
    pub loss_per_mille: u64,
}

impl Network {
    /// Whether a message arrives.
    pub fn delivers(&self, from: Ordinal, to: Ordinal) -> bool {
        let is_found = !(self.moved.contains(&from) && self.moved.contains(&to));
        is_found
            && !self.cut.contains(&from)
            && !self.cut.contains(&to)
            && !self.severed.contains(&(from, to))
    }

    /// Whether one can connect to the other, which carries messages in both directions.
    pub fn reaches(&self, one: Ordinal, other: Ordinal) -> bool {
        self.connects(one, other) && !self.moved.contains(&other)
    }

    /// Whether a request is answered.
    pub fn connects(&self, one: Ordinal, other: Ordinal) -> bool {
        self.delivers(one, other) && self.delivers(other, one)
    }
}

/// What was ever committed, cluster by cluster: the yardstick of safety.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub clusters: BTreeMap<ClusterId, Committed>,
    /// The first thing that was committed twice, differently.
    pub diverged: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Committed {
    pub log: Vec<Entry>,
    pub applied: Applied,
}

impl Truth {
    /// What one member knew to be committed, and nothing else.
    pub fn go_back_to(&mut self, data: &Data) {
        let committed = self.clusters.entry(data.cluster).or_default();
        *committed = Committed::default();
        for entry in data.log.iter().take(data.commit) {
            committed.log.push(entry.clone());
            committed.applied.apply(entry);
        }
    }

    fn record(&mut self, server: &Server, from: usize) {
        let committed = self.clusters.entry(server.data.cluster).or_default();
        for index in from.min(committed.log.len())..server.data.commit {
            let entry = &server.data.log[index];
            match committed.log.get(index) {
                None => {
                    committed.log.push(entry.clone());
                    committed.applied.apply(entry);
                }
                Some(known) if known == entry => {}
                Some(known) => {
                    self.diverged.get_or_insert_with(|| {
                        format!(
                            "entry {} of {:?} was {known:?} and is {entry:?}",
                            index + 1,
                            server.data.cluster
                        )
                    });
                }
            }
        }
    }
}

pub fn tick(servers: &mut Servers, network: &Network, truth: &mut Truth, random: &mut Random, now: Tick) {
    let mut order: Vec<Ordinal> = servers.keys().copied().collect();
    if !order.is_empty() {
        let first = random.below(order.len() as u64) as usize;
        order.rotate_left(first);
    }
    for &ordinal in &order {
        connect(servers, network, ordinal, now);
        match servers.get(&ordinal) {
            Some(server) if server.leads() => lead(servers, network, truth, random, ordinal, now),
            Some(_) => election::follow(servers, network, random, ordinal, now),
            None => {}
        }
    }
    for ordinal in order {
        publish(servers, network, random, ordinal);
    }
}

/// Notes who is connected since when, and whether a peer says that this one is gone.
fn connect(servers: &mut Servers, network: &Network, ordinal: Ordinal, now: Tick) {
    let Some(server) = servers.get(&ordinal) else { return };
    let (id, cluster) = (server.id(), server.data.cluster);
    let mut connected = BTreeMap::new();
    let mut told_removed = false;
    for (&other, peer) in
        servers.iter().filter(|(other, peer)| **other != ordinal && peer.data.cluster == cluster)
    {
        if network.connects(ordinal, other) {
            connected.insert(peer.id(), *server.connected.get(&peer.id()).unwrap_or(&now));
            told_removed |= peer.applied.removed.contains(&id);
        }
    }
    if let Some(server) = servers.get_mut(&ordinal) {
        server.connected = connected;
        if told_removed {
            server.exit = server.exit.or(Some(Exit::Removed));
        }
    }
}

fn lead(
    servers: &mut Servers,
    network: &Network,
    truth: &mut Truth,
    random: &mut Random,
    ordinal: Ordinal,
    now: Tick,
) {
    let reached =
        replicate(servers, network, truth, ordinal, now, |_| !random.chance(network.loss_per_mille));
    let Some(leader) = servers.get_mut(&ordinal) else { return };
    let voters = leader.applied.voters().count();
    let own = usize::from(leader.applied.is_voter(leader.id()));
    if let Role::Leader { quorum_seen, .. } = &mut leader.role {
        if reached + own >= quorum(voters) {
            *quorum_seen = now;
        } else if now - *quorum_seen > ELECTION {
            let term = leader.data.term;
            leader.step_down(term, now);
        }
    }
}

/// Sends what each peer lacks, and commits what a quorum has. Returns how many voters were reached.
pub fn replicate(
    servers: &mut Servers,
    network: &Network,
    truth: &mut Truth,
    ordinal: Ordinal,
    now: Tick,
    mut arrives: impl FnMut(Ordinal) -> bool,
) -> usize {
    let Some(mut leader) = servers.remove(&ordinal) else { return 0 };
    let peers: Vec<_> = leader.applied.members.iter().map(|(&id, peer)| (id, *peer)).collect();
    let own = leader.id();
    let mut reached = 0;
    for (id, peer) in peers.into_iter().filter(|(id, _)| *id != own) {
        let Some(follower) = servers.get_mut(&peer.ordinal) else { continue };
        let same = follower.id() == id && follower.data.cluster == leader.data.cluster;
        if !same
            || follower.exit.is_some()
            || !network.delivers(ordinal, peer.ordinal)
            || !arrives(peer.ordinal)
        {
            continue;
        }
        let answered = network.delivers(peer.ordinal, ordinal);
        send(&mut leader, follower, truth, now, answered);
        if !leader.leads() {
            break;
        }
        reached += usize::from(answered && !peer.learner);
    }
    commit(&mut leader, truth);
    servers.insert(ordinal, leader);
    reached
}

/// One message of a leader to one of its peers. Without an answer the leader learns nothing from it.
fn send(leader: &mut Server, follower: &mut Server, truth: &mut Truth, now: Tick, answered: bool) {
    if follower.data.term > leader.data.term {
        let term = follower.data.term;
        if answered {
            leader.step_down(term, now);
        }
        return;
    }
    if follower.data.term < leader.data.term || follower.leads() {
        follower.step_down(leader.data.term, now);
    }
    follower.leader = Some(leader.id());
    follower.heard = now;
    let id = follower.id();
    let last = leader.data.log.len();
    let (term, known_commit) = (leader.data.term, leader.data.commit);
    let Role::Leader { matched, next, .. } = &mut leader.role else { return };
    debug_assert_eq!(term, follower.data.term);
    if matched.get(&id).is_some_and(|&matched| matched > follower.data.log.len()) {
        follower.exit = Some(Exit::Panicked);
        return;
    }
    let next = next.entry(id).or_insert(last + 1);
    let previous = (*next - 1).min(last);
    let agrees = previous == 0
        || follower
            .data
            .log
            .get(previous - 1)
            .is_some_and(|entry| entry.term == leader.data.log[previous - 1].term);
    if !agrees {
        if answered {
            *next = previous.min(follower.data.log.len() + 1).max(1);
        }
        return;
    }
    // A member that joins receives the database of its leader.
    if follower.data.log.is_empty() {
        follower.data.rotten = leader.data.rotten;
    }
    let upto = last.min(previous + CHUNK);
    for index in previous..upto {
        let entry = &leader.data.log[index];
        if follower.data.log.get(index).is_some_and(|own| own.term != entry.term) {
            follower.data.log.truncate(index);
            follower.data.commit = follower.data.commit.min(index);
        }
        if follower.data.log.len() == index {
            follower.data.log.push(entry.clone());
        }
    }
    if answered {
        *next = upto + 1;
        matched.insert(id, upto);
    }
    let before = follower.data.commit;
    follower.data.commit = before.max(known_commit.min(upto));
    truth.record(follower, before);
    follower.apply();
}

/// What a quorum of voters has is committed, if it is of this leader's own term.
fn commit(leader: &mut Server, truth: &mut Truth) {
    let Role::Leader { matched, .. } = &leader.role else { return };
    let own = leader.id();
    let last = leader.data.log.len();
    let mut indexes: Vec<usize> = leader
        .applied
        .voters()
        .map(|(id, _)| if id == own { last } else { matched.get(&id).copied().unwrap_or(0) })
        .collect();
    indexes.sort_unstable_by(|a, b| b.cmp(a));
    let Some(&index) = indexes.get(quorum(indexes.len()) - 1) else { return };
    if index > leader.data.commit && leader.data.log[index - 1].term == leader.data.term {
        let before = leader.data.commit;
        leader.data.commit = index;
        truth.record(leader, before);
        leader.apply();
    }
}

/// A member that has not told its client URLs yet asks the leader to write them down.
fn publish(servers: &mut Servers, network: &Network, random: &mut Random, ordinal: Ordinal) {
    let Some(server) = servers.get(&ordinal) else { return };
    let (id, release) = (server.id(), server.release);
    let known = server.applied.members.get(&id);
    let told = known.is_none_or(|own| own.start == MemberProgress::Published);
    if told || !random.chance(300) {
        return;
    }
    if let Some(leader) = leader_of(servers, network, ordinal)
        && let Some(leader) = servers.get_mut(&leader)
    {
        leader.append(match release {
            Release::V3_5 | Release::V3_5_30 => Change::OldPublish(id),
            Release::V3_6 | Release::V3_7 => Change::Publish(id),
        });
    }
}

/// Where the leader is that this one follows, if it can be reached and still thinks so.
pub fn leader_of(servers: &Servers, network: &Network, ordinal: Ordinal) -> Option<Ordinal> {
    let server = servers.get(&ordinal)?;
    let leader: MemberId = server.leader?;
    let same =
        |peer: &Server| peer.id() == leader && peer.data.cluster == server.data.cluster && peer.leads();
    let (&at, _) = servers.iter().find(|(_, peer)| same(peer))?;
    network.connects(ordinal, at).then_some(at)
}
