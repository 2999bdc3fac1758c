//! etcd as a process on a volume: a log with terms, votes, and membership that is part of the log. What is promised to
//! others (term, vote, entries) is on the volume; who loses the volume breaks its promises.

pub mod api;
pub mod consensus;
pub mod election;

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::{ClusterId, MemberId, Ordinal};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::tls::{Scheme, Schemes};
use etcd_operator_core::version::Version;

use crate::random::mix;

/// A tenth of a second.
pub type Tick = u64;

/// Where releases of etcd differ in what they allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Before 3.5.30.
    V3_5,
    /// From 3.5.30 on.
    V3_5_30,
    /// From 3.6.11 on, which adds by the same rule as 3.5.30; what is older of 3.6 adds as 3.5 did before. Started with
    /// two learners allowed, as the operator starts it.
    V3_6,
    /// Does not start on a log that has entries in the format of 3.5.
    V3_7,
}

impl Release {
    pub const ALL: [Self; 4] = [Self::V3_5, Self::V3_5_30, Self::V3_6, Self::V3_7];

    /// As etcd of this release reports it.
    pub fn version(self) -> Version {
        match self {
            Self::V3_5 => Version::new(3, 5, 29),
            Self::V3_5_30 => Version::new(3, 5, 30),
            Self::V3_6 => Version::new(3, 6, 11),
            Self::V3_7 => Version::new(3, 7, 3),
        }
    }

    /// What it can be upgraded to.
    pub fn next(self) -> Self {
        match self {
            Self::V3_5 => Self::V3_5_30,
            Self::V3_5_30 => Self::V3_6,
            Self::V3_6 | Self::V3_7 => Self::V3_7,
        }
    }

    /// Whether it reports how its data is stored.
    pub fn reports_storage(self) -> bool {
        self.max_learners() > 1
    }

    pub fn max_learners(self) -> usize {
        match self {
            Self::V3_5 | Self::V3_5_30 => 1,
            Self::V3_6 | Self::V3_7 => 2,
        }
    }

    /// How many of the voters must be connected before a member is added.
    pub fn connected_for_addition(self, voters: usize) -> usize {
        match self {
            Self::V3_5 => voters,
            // As if the new one were a voter and did not answer; a voter alone always passes.
            Self::V3_5_30 | Self::V3_6 | Self::V3_7 => quorum(voters + 1).min(voters),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub term: u64,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    Write(u64),
    /// Part of a static bootstrap.
    Found(MemberId, Ordinal, Scheme),
    AddLearner(MemberId, Ordinal, Scheme),
    /// Other peer URLs.
    Update(MemberId, Schemes),
    Promote(MemberId),
    Remove(MemberId),
    /// A member tells its client URLs.
    Publish(MemberId),
    /// The same, in the format of 3.5.
    OldPublish(MemberId),
}

impl Change {
    pub fn is_membership(&self) -> bool {
        match self {
            Self::Found(..)
            | Self::AddLearner(..)
            | Self::Update(..)
            | Self::Promote(_)
            | Self::Remove(_) => true,
            Self::Nothing | Self::Write(_) | Self::Publish(_) | Self::OldPublish(_) => false,
        }
    }
}

/// What is on the volume.
#[derive(Clone, Debug)]
pub struct Data {
    pub cluster: ClusterId,
    pub member: MemberId,
    pub term: u64,
    pub vote: Option<MemberId>,
    pub log: Vec<Entry>,
    pub commit: usize,
    /// How many of the first entries a restarted member does not read, because its snapshot has what follows from them.
    pub snapshot: usize,
    /// The database returns other data than was written.
    pub rotten: bool,
}

impl Data {
    /// Whether etcd 3.7 exits when it reads them.
    pub fn has_old_entries(&self) -> bool {
        let read = self.log.get(self.snapshot..).unwrap_or_default();
        read.iter().any(|entry| matches!(entry.change, Change::OldPublish(_)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub ordinal: Ordinal,
    pub learner: bool,
    pub start: MemberProgress,
    pub schemes: Schemes,
}

/// What follows from the entries up to an index.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    pub index: usize,
    pub members: BTreeMap<MemberId, Peer>,
    pub removed: BTreeSet<MemberId>,
    /// How many writes there were.
    pub revision: u64,
}

impl Applied {
    pub fn apply(&mut self, entry: &Entry) {
        self.index += 1;
        match &entry.change {
            Change::Nothing => {}
            Change::Write(_) => self.revision += 1,
            Change::Found(id, ordinal, scheme) => {
                self.insert(*id, *ordinal, false, MemberProgress::Listed, *scheme);
            }
            Change::AddLearner(id, ordinal, scheme) => {
                self.insert(*id, *ordinal, true, MemberProgress::Added, *scheme);
            }
            Change::Update(id, schemes) => self.change(*id, |peer| peer.schemes = *schemes),
            Change::Promote(id) => self.change(*id, |peer| peer.learner = false),
            Change::Publish(id) | Change::OldPublish(id) => {
                self.change(*id, |peer| peer.start = MemberProgress::Published)
            }
            Change::Remove(id) => {
                self.members.remove(id);
                self.removed.insert(*id);
            }
        }
    }

    fn insert(
        &mut self,
        id: MemberId,
        ordinal: Ordinal,
        learner: bool,
        start: MemberProgress,
        scheme: Scheme,
    ) {
        self.members.insert(id, Peer { ordinal, learner, start, schemes: Schemes::only(scheme) });
    }

    fn change(&mut self, id: MemberId, change: impl Fn(&mut Peer)) {
        if let Some(peer) = self.members.get_mut(&id) {
            change(peer);
        }
    }

    pub fn voters(&self) -> impl Iterator<Item = (MemberId, &Peer)> {
        self.members.iter().filter(|(_, peer)| !peer.learner).map(|(&id, peer)| (id, peer))
    }

    pub fn is_voter(&self, id: MemberId) -> bool {
        self.members.get(&id).is_some_and(|peer| !peer.learner)
    }
}

#[derive(Clone, Debug)]
pub enum Role {
    Follower,
    Leader { matched: BTreeMap<MemberId, usize>, next: BTreeMap<MemberId, usize>, quorum_seen: Tick },
}

/// Why a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was told that it is no member any more.
    Removed,
    /// The leader remembers entries that it no longer has.
    Panicked,
}

/// A running etcd.
#[derive(Clone, Debug)]
pub struct Server {
    pub data: Data,
    pub applied: Applied,
    pub leader: Option<MemberId>,
    pub role: Role,
    /// When it last heard of a leader.
    pub heard: Tick,
    pub patience: Tick,
    pub release: Release,
    /// Since when it has been connected with its peers.
    pub connected: BTreeMap<MemberId, Tick>,
    pub exit: Option<Exit>,
}

impl Server {
    pub fn start(data: Data, release: Release, now: Tick) -> Self {
        let mut server = Self {
            data,
            applied: Applied::default(),
            leader: None,
            role: Role::Follower,
            heard: now,
            patience: 10,
            release,
            connected: BTreeMap::new(),
            exit: None,
        };
        server.apply();
        server
    }

    pub fn id(&self) -> MemberId {
        self.data.member
    }

    pub fn leads(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// Applies what is known to be committed.
    pub fn apply(&mut self) {
        while self.applied.index < self.data.commit {
            self.applied.apply(&self.data.log[self.applied.index]);
        }
        // Its leader sends a snapshot instead of what it cannot read.
        if self.release == Release::V3_7 {
            self.data.snapshot = self.applied.index;
        }
        if self.applied.removed.contains(&self.id()) {
            self.exit = self.exit.or(Some(Exit::Removed));
        }
    }

    pub fn append(&mut self, change: Change) -> usize {
        self.data.log.push(Entry { term: self.data.term, change });
        self.data.log.len()
    }

    /// Whether this log is at least as long as another's.
    pub fn is_up_to_date_with(&self, last_term: u64, last_index: usize) -> bool {
        (last_term, last_index) >= (self.last_term(), self.data.log.len())
    }

    pub fn last_term(&self) -> u64 {
        self.data.log.last().map_or(0, |entry| entry.term)
    }

    /// Follows from now on, whoever will lead, and has patience again.
    pub fn step_down(&mut self, term: u64, now: Tick) {
        self.heard = now;
        if term > self.data.term {
            self.data.term = term;
            self.data.vote = None;
        }
        self.role = Role::Follower;
        self.leader = None;
    }
}

/// The data of a member that is started by a bootstrap order.
pub fn found(order: u64, size: u8, own: Ordinal, scheme: Scheme) -> Data {
    let entries = Ordinal::below(size).map(|ordinal| (founding_id(order, ordinal), ordinal));
    let log: Vec<Entry> =
        entries.map(|(id, ordinal)| Entry { term: 1, change: Change::Found(id, ordinal, scheme) }).collect();
    let commit = log.len();
    Data {
        cluster: cluster_id(order),
        member: founding_id(order, own),
        term: 1,
        vote: None,
        log,
        commit,
        snapshot: 0,
        rotten: false,
    }
}

/// The data of a member that joins: none yet.
pub fn join(cluster: ClusterId, member: MemberId) -> Data {
    Data { cluster, member, term: 0, vote: None, log: Vec::new(), commit: 0, snapshot: 0, rotten: false }
}

pub fn cluster_id(order: u64) -> ClusterId {
    ClusterId(mix(order) | 1)
}

pub fn founding_id(order: u64, ordinal: Ordinal) -> MemberId {
    MemberId(mix(mix(order) ^ u64::from(ordinal.0)) | 1)
}

/// As etcd does it: the second is part of the ID, so the same URL added twice in one second has the same one.
pub fn added_id(cluster: ClusterId, ordinal: Ordinal, now: Tick) -> MemberId {
    MemberId(mix(cluster.0 ^ mix(u64::from(ordinal.0)) ^ mix(now / 10)) | 1)
}
