//! Who leads: a candidate needs the votes of a quorum, and nobody votes for one whose log is behind its own.

use std::collections::BTreeMap;

use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::quorum::quorum;

use super::consensus::{ELECTION, Network, Servers};
use super::{Change, Role, Tick};
use crate::random::Random;

/// Campaigns when no leader was heard for long; first asks whether it would win, as etcd does.
pub fn follow(servers: &mut Servers, network: &Network, random: &mut Random, ordinal: Ordinal, now: Tick) {
    let Some(server) = servers.get_mut(&ordinal) else { return };
    if now - server.heard > ELECTION {
        server.leader = None;
    }
    if !server.applied.is_voter(server.id()) || server.exit.is_some() || now - server.heard < server.patience
    {
        return;
    }
    server.patience = random.between(ELECTION, 2 * ELECTION);
    server.heard = now;
    if wins(servers, network, ordinal, now, false) {
        wins(servers, network, ordinal, now, true);
    }
}

/// Asks for votes; for real, everybody who grants one writes it down first.
pub fn wins(servers: &mut Servers, network: &Network, ordinal: Ordinal, now: Tick, real: bool) -> bool {
    let Some(mut candidate) = servers.remove(&ordinal) else { return false };
    let (id, term) = (candidate.id(), candidate.data.term + 1);
    if real {
        candidate.data.term = term;
        candidate.data.vote = Some(id);
        candidate.leader = None;
    }
    let (last_term, last_index) = (candidate.last_term(), candidate.data.log.len());
    let voters: Vec<_> = candidate.applied.voters().map(|(id, peer)| (id, *peer)).collect();
    let mut votes = 1;
    let mut highest = 0;
    for (voter, peer) in voters.iter().filter(|(voter, _)| *voter != id) {
        let Some(server) = servers.get_mut(&peer.ordinal) else { continue };
        let same = server.id() == *voter && server.data.cluster == candidate.data.cluster;
        if !same || !network.delivers(ordinal, peer.ordinal) || server.applied.removed.contains(&id) {
            continue;
        }
        let answered = network.delivers(peer.ordinal, ordinal);
        highest = highest.max(if answered { server.data.term } else { 0 });
        let has_leader = server.leads() || server.leader.is_some() && now - server.heard < ELECTION;
        if !real {
            let willing = term > server.data.term && !has_leader;
            votes += usize::from(answered && willing && server.is_up_to_date_with(last_term, last_index));
            continue;
        }
        if term > server.data.term {
            server.step_down(term, now);
        }
        let free = server.data.term == term && server.data.vote.is_none_or(|vote| vote == id);
        if free && server.is_up_to_date_with(last_term, last_index) {
            server.data.vote = Some(id);
            votes += usize::from(answered);
        }
    }
    let won = votes >= quorum(voters.len());
    // Who is refused because its term is old learns the newer one.
    if highest > candidate.data.term {
        candidate.step_down(highest, now);
    }
    if won && real {
        candidate.role = Role::Leader { matched: BTreeMap::new(), next: BTreeMap::new(), quorum_seen: now };
        candidate.leader = Some(id);
        candidate.append(Change::Nothing);
    }
    servers.insert(ordinal, candidate);
    won
}
