//! What a client may ask of etcd: reads, status, and changes of membership with the checks that real etcd makes.

use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::{MemberId, Ordinal};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::tls::{Scheme, Schemes};

use super::consensus::{self, Network, Servers, Truth};
use super::election;
use super::{Applied, Change, Release, Role, Server, Tick, added_id};

/// How long peers must have been connected before a membership change is accepted: five seconds.
const STRICT_WINDOW: Tick = 50;
/// How far a member may be behind and still serve a linearizable read before the deadline.
const CLOSE: usize = 100;

/// `tests/conformance.rs` holds these against the answers of real etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No etcd runs where it was called.
    Unavailable,
    /// A learner serves nothing but its status and reads that may be old.
    NotSupportedForLearner,
    NoLeader,
    /// Leadership is moved by the leader only.
    NotLeader,
    BadLeaderTransferee,
    /// There is no such member, or it would get the ID of one that was removed.
    NotFound,
    /// The same URL was added in this very second.
    MemberExists,
    /// A member with this URL is there already.
    PeerUrlExists,
    TooManyLearners,
    LearnerNotReady,
    /// Only learners are promoted.
    NotLearner,
    /// The strict reconfiguration check.
    UnhealthyCluster,
    NotEnoughStartedMembers,
    /// It was not answered, and whether it was agreed upon is not known.
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
    pub fn add_learner(&mut self, via: Ordinal, ordinal: Ordinal, scheme: Scheme) -> Result<MemberId, Error> {
        let receiver = self.receiver(via)?;
        let id = added_id(receiver.data.cluster, ordinal, self.now);
        let needed = receiver.release.connected_for_addition(receiver.applied.voters().count());
        if self.strict && self.connected_voters(receiver) < needed {
            return Err(Error::UnhealthyCluster);
        }
        let at = self.leader(via).ok_or(Error::Timeout)?;
        self.propose(at, Change::AddLearner(id, ordinal, scheme)).map(|()| id)
    }

    /// The only call that is carried to the leader before anything is checked.
    pub fn promote(&mut self, via: Ordinal, member: MemberId) -> Result<(), Error> {
        self.receiver(via)?;
        let at = self.leader(via).ok_or(Error::NoLeader)?;
        let leader = self.servers.get(&at).ok_or(Error::NoLeader)?;
        if !leader.applied.members.contains_key(&member) {
            return Err(Error::NotFound);
        }
        let Role::Leader { matched, .. } = &leader.role else { return Err(Error::NoLeader) };
        let last = leader.data.log.len();
        let index = if member == leader.id() { last } else { matched.get(&member).copied().unwrap_or(0) };
        if index * 10 < last * 9 {
            return Err(Error::LearnerNotReady);
        }
        let started = leader.applied.voters().filter(|(_, peer)| peer.start != MemberProgress::Added).count();
        if self.strict && started + 1 < quorum(leader.applied.voters().count() + 1) {
            return Err(Error::NotEnoughStartedMembers);
        }
        self.propose(at, Change::Promote(member))
    }

    /// Nothing but that there is such a member is checked.
    pub fn update(&mut self, via: Ordinal, member: MemberId, schemes: Schemes) -> Result<(), Error> {
        self.receiver(via)?;
        let at = self.leader(via).ok_or(Error::Timeout)?;
        self.propose(at, Change::Update(member, schemes))
    }

    pub fn remove(&mut self, via: Ordinal, member: MemberId) -> Result<(), Error> {
        let receiver = self.receiver(via)?;
        let is_learner = receiver.applied.members.get(&member).is_some_and(|peer| peer.learner);
        if self.strict && !is_learner {
            let staying: Vec<_> = receiver.applied.voters().filter(|(id, _)| *id != member).collect();
            let started = staying.iter().filter(|(_, peer)| peer.start != MemberProgress::Added).count();
            if started < quorum(staying.len()) {
                return Err(Error::NotEnoughStartedMembers);
            }
            let is_connected = member == receiver.id()
                || receiver.applied.is_voter(member) && receiver.connected.contains_key(&member);
            let voters = receiver.applied.voters().count();
            if is_connected && self.connected_voters(receiver) <= quorum(voters - 1) {
                return Err(Error::UnhealthyCluster);
            }
        }
        let at = self.leader(via).ok_or(Error::Timeout)?;
        self.propose(at, Change::Remove(member))
    }

    /// Is asked of the member that is to let go.
    pub fn move_leader(&mut self, from: MemberId, to: MemberId) -> Result<(), Error> {
        let asked = self.servers.iter().find(|(_, server)| server.id() == from).map(|(&at, _)| at);
        let at = asked.ok_or(Error::Unavailable)?;
        let leader = self.receiver(at)?;
        if !leader.leads() {
            return Err(Error::NotLeader);
        }
        let successor = leader.applied.members.get(&to).filter(|peer| !peer.learner);
        let successor = successor.ok_or(Error::BadLeaderTransferee)?.ordinal;
        if successor == at {
            return Ok(());
        }
        consensus::replicate(self.servers, self.network, self.truth, at, self.now, |_| true);
        let there =
            self.servers.get(&successor).is_some_and(|server| server.id() == to && server.exit.is_none());
        if !there || !self.network.connects(at, successor) {
            return Err(Error::Timeout);
        }
        if !election::wins(self.servers, self.network, successor, self.now, true) {
            return Err(Error::Timeout);
        }
        Ok(())
    }

    /// Who is called checks with its own eyes, leader or not.
    fn receiver(&self, via: Ordinal) -> Result<&Server, Error> {
        let running = self.servers.get(&via).filter(|server| server.exit.is_none());
        let server = running.ok_or(Error::Unavailable)?;
        if server.applied.is_voter(server.id()) { Ok(server) } else { Err(Error::NotSupportedForLearner) }
    }

    fn leader(&self, via: Ordinal) -> Option<Ordinal> {
        consensus::leader_of(self.servers, self.network, via)
    }

    /// Voters with which this one has been connected for long enough, itself among them.
    fn connected_voters(&self, receiver: &Server) -> usize {
        let long = |id: MemberId| {
            receiver.connected.get(&id).is_some_and(|&since| self.now - since >= STRICT_WINDOW)
        };
        receiver.applied.voters().filter(|(id, _)| *id == receiver.id() || long(*id)).count()
    }

    /// One membership change at a time; done when the leader has applied it. What is not allowed is found out only
    /// then, so it is not found out without a quorum.
    fn propose(&mut self, at: Ordinal, change: Change) -> Result<(), Error> {
        let leader = self.servers.get_mut(&at).ok_or(Error::Timeout)?;
        let unapplied = leader.data.log.get(leader.applied.index..).unwrap_or_default();
        if unapplied.iter().any(|entry| entry.change.is_membership()) {
            return Err(Error::Timeout);
        }
        let verdict = leader.applied.allows(&change, leader.release);
        let term = leader.data.term;
        let index = leader.append(if verdict.is_ok() { change } else { Change::Nothing });
        for _ in 0..2 {
            consensus::replicate(self.servers, self.network, self.truth, at, self.now, |_| true);
        }
        let leader = self.servers.get(&at).ok_or(Error::Timeout)?;
        let done = leader.applied.index >= index && leader.data.term == term;
        if done { verdict } else { Err(Error::Timeout) }
    }
}

impl Applied {
    /// What etcd checks when it applies a change of membership.
    fn allows(&self, change: &Change, release: Release) -> Result<(), Error> {
        match change {
            Change::AddLearner(id, ..) if self.removed.contains(id) => Err(Error::NotFound),
            Change::AddLearner(id, ..) if self.members.contains_key(id) => Err(Error::MemberExists),
            Change::AddLearner(_, ordinal, _)
                if self.members.values().any(|peer| peer.ordinal == *ordinal) =>
            {
                Err(Error::PeerUrlExists)
            }
            Change::AddLearner(..) => {
                let learners = self.members.values().filter(|peer| peer.learner).count();
                if learners < release.max_learners() { Ok(()) } else { Err(Error::TooManyLearners) }
            }
            Change::Promote(id) | Change::Remove(id) | Change::Update(id, _)
                if !self.members.contains_key(id) =>
            {
                Err(Error::NotFound)
            }
            Change::Promote(id) if self.is_voter(*id) => Err(Error::NotLearner),
            Change::Promote(_)
            | Change::Update(..)
            | Change::Remove(_)
            | Change::Nothing
            | Change::Write(_)
            | Change::Found(..)
            | Change::Publish(_)
            | Change::OldPublish(_) => Ok(()),
        }
    }
}
