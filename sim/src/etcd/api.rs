//! What a client may ask of etcd: reads, status, and changes of membership with the checks that real etcd makes.

use etcd_operator_core::observed::{MemberId, Ordinal, Start};
use etcd_operator_core::quorum::quorum;

use super::consensus::{self, Network, Servers, Truth};
use super::election;
use super::{Change, Role, Server, Tick, added_id};

/// How long peers must have been connected before a membership change is accepted: five seconds.
const STRICT_WINDOW: Tick = 50;
/// How far a member may be behind and still serve a linearizable read before the deadline.
const CLOSE: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    NoLeader,
    NotFound,
    /// A member with this URL is there already.
    PeerUrlExists,
    TooManyLearners,
    LearnerNotReady,
    /// The strict reconfiguration check.
    UnhealthyCluster,
    NotEnoughStartedMembers,
    /// It was proposed, but whether it was agreed upon is not known.
    Timeout,
}

/// Everything a call needs.
pub struct Call<'a> {
    pub servers: &'a mut Servers,
    pub network: &'a Network,
    pub truth: &'a mut Truth,
    pub now: Tick,
    /// Off only to show that the operator's own check would do.
    pub strict: bool,
}

/// The revision that a linearizable read at this member returns.
pub fn linearizable_revision(servers: &Servers, network: &Network, ordinal: Ordinal) -> Option<u64> {
    let server = servers.get(&ordinal).filter(|server| server.exit.is_none())?;
    if !server.applied.is_voter(server.id()) {
        return None;
    }
    let at = consensus::leader_of(servers, network, ordinal)?;
    let leader = servers.get(&at)?;
    let has_committed =
        leader.data.log[..leader.data.commit].last().is_some_and(|entry| entry.term == leader.data.term);
    let agreeing = leader.applied.voters().filter(|(id, peer)| {
        *id == leader.id()
            || servers.get(&peer.ordinal).is_some_and(|voter| {
                voter.id() == *id
                    && voter.data.cluster == leader.data.cluster
                    && voter.data.term <= leader.data.term
                    && network.connects(at, peer.ordinal)
            })
    });
    let agreed = agreeing.count() >= quorum(leader.applied.voters().count());
    // It waits until it has applied what the leader had committed when it was asked; not for long.
    let close = server.data.log.len() + CLOSE >= leader.data.commit;
    (has_committed && agreed && close).then_some(leader.applied.revision)
}

impl Call<'_> {
    pub fn add_learner(&mut self, via: Ordinal, ordinal: Ordinal) -> Result<MemberId, Error> {
        let (at, leader) = self.leader(via)?;
        let id = added_id(leader.data.cluster, ordinal, self.now);
        let applied = &leader.applied;
        if applied.removed.contains(&id) {
            return Err(Error::NotFound);
        }
        if applied.members.values().any(|peer| peer.ordinal == ordinal) {
            return Err(Error::PeerUrlExists);
        }
        if applied.members.values().filter(|peer| peer.learner).count() >= leader.max_learners {
            return Err(Error::TooManyLearners);
        }
        let voters = applied.voters().count();
        let connected = self.connected_voters(leader);
        if self.strict && voters > 1 && connected < voters {
            return Err(Error::UnhealthyCluster);
        }
        self.propose(at, Change::AddLearner(id, ordinal)).map(|()| id)
    }

    pub fn promote(&mut self, via: Ordinal, member: MemberId) -> Result<(), Error> {
        let (at, leader) = self.leader(via)?;
        let Some(learner) = leader.applied.members.get(&member).filter(|peer| peer.learner) else {
            return Err(Error::NotFound);
        };
        let Role::Leader { matched, .. } = &leader.role else { return Err(Error::NoLeader) };
        let index = matched.get(&member).copied().unwrap_or(0);
        if learner.start != Start::Published || index * 10 < leader.data.log.len() * 9 {
            return Err(Error::LearnerNotReady);
        }
        let started = leader.applied.voters().filter(|(_, peer)| peer.start != Start::Added).count();
        if self.strict && started + 1 < quorum(leader.applied.voters().count() + 1) {
            return Err(Error::NotEnoughStartedMembers);
        }
        self.propose(at, Change::Promote(member))
    }

    pub fn remove(&mut self, via: Ordinal, member: MemberId) -> Result<(), Error> {
        let (at, leader) = self.leader(via)?;
        let Some(peer) = leader.applied.members.get(&member) else { return Err(Error::NotFound) };
        if self.strict && !peer.learner {
            let voters = leader.applied.voters().count();
            let staying = leader.applied.voters().filter(|(id, _)| *id != member);
            let started = staying.filter(|(_, peer)| peer.start != Start::Added).count();
            if voters == 1 || started < quorum(voters - 1) {
                return Err(Error::NotEnoughStartedMembers);
            }
            let is_connected = member == leader.id() || leader.connected.contains_key(&member);
            if is_connected && self.connected_voters(leader) - 1 < quorum(voters - 1) {
                return Err(Error::UnhealthyCluster);
            }
        }
        self.propose(at, Change::Remove(member))
    }

    pub fn move_leader(&mut self, from: MemberId, to: MemberId) -> Result<(), Error> {
        let found = self.servers.iter().find(|(_, server)| server.id() == from && server.leads());
        let (&at, leader) = found.ok_or(Error::NoLeader)?;
        let heir =
            leader.applied.members.get(&to).filter(|peer| !peer.learner).ok_or(Error::NotFound)?.ordinal;
        consensus::replicate(self.servers, self.network, self.truth, at, self.now, |_| true);
        let there = self.servers.get(&heir).is_some_and(|server| server.id() == to && server.exit.is_none());
        if !there || !self.network.connects(at, heir) {
            return Err(Error::Timeout);
        }
        if !election::wins(self.servers, self.network, heir, self.now, true) {
            return Err(Error::Timeout);
        }
        Ok(())
    }

    fn leader(&self, via: Ordinal) -> Result<(Ordinal, &Server), Error> {
        let at = consensus::leader_of(self.servers, self.network, via).ok_or(Error::NoLeader)?;
        self.servers.get(&at).map(|server| (at, server)).ok_or(Error::NoLeader)
    }

    /// Voters that have been connected for long enough, the leader among them.
    fn connected_voters(&self, leader: &Server) -> usize {
        let long =
            |id: MemberId| leader.connected.get(&id).is_some_and(|&since| self.now - since >= STRICT_WINDOW);
        leader.applied.voters().filter(|(id, _)| *id == leader.id() || long(*id)).count()
    }

    /// One membership change at a time; done when the leader has applied it.
    fn propose(&mut self, at: Ordinal, change: Change) -> Result<(), Error> {
        let leader = self.servers.get_mut(&at).ok_or(Error::NoLeader)?;
        let unapplied = leader.data.log.get(leader.applied.index..).unwrap_or_default();
        if unapplied.iter().any(|entry| entry.change.is_membership()) {
            return Err(Error::Timeout);
        }
        let term = leader.data.term;
        let index = leader.append(change);
        for _ in 0..2 {
            consensus::replicate(self.servers, self.network, self.truth, at, self.now, |_| true);
        }
        let leader = self.servers.get(&at).ok_or(Error::Timeout)?;
        let done = leader.applied.index >= index && leader.data.term == term;
        if done { Ok(()) } else { Err(Error::Timeout) }
    }
}
