//! What could be read at each of the last ticks. An observation takes time: the objects are read first, and each pod is
//! asked at a tick of its own until now. So what an operator observes never existed at one moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use etcd_operator_core::observed::{Answer, Member, Members, Ordinal};

use crate::etcd::{Tick, api, consensus};
use crate::kube::Objects;
use crate::world::World;

#[derive(Debug, Default)]
pub struct Past {
    /// How many ticks an observation takes at most; 0 if it takes no time.
    pub depth: Tick,
    /// The most recent first.
    moments: VecDeque<Moment>,
}

#[derive(Debug)]
struct Moment {
    objects: Rc<Objects>,
    replies: BTreeMap<Ordinal, Reply>,
}

/// What the etcd in a pod replies to an operator.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The pod that replies, by its UID.
    pub pod: u64,
    pub answer: Answer,
    /// Its own member list.
    pub members: Members,
}

impl World {
    /// Called before anything of a tick happens.
    pub fn remember(&mut self) {
        if self.past.depth == 0 {
            return;
        }
        let replies = self.servers.keys().filter_map(|&ordinal| Some((ordinal, self.reply(ordinal, 0)?)));
        let moment = Moment { replies: replies.collect(), objects: self.objects(0) };
        self.past.moments.push_front(moment);
        self.past.moments.truncate(self.past.depth as usize);
    }

    /// How many ticks ago the observation began that ends now.
    pub fn observation_time(&mut self) -> Tick {
        match self.past.moments.len() {
            0 => 0,
            known => self.random.below(known as Tick + 1),
        }
    }

    /// What the API server held so many ticks ago.
    pub fn objects(&self, ago: Tick) -> Rc<Objects> {
        let moment = self.moment(ago).map(|moment| Rc::clone(&moment.objects));
        moment.unwrap_or_else(|| Rc::new(self.kube.objects.clone()))
    }

    /// What an operator that asked this pod so many ticks ago was answered.
    pub fn reply(&self, ordinal: Ordinal, ago: Tick) -> Option<Reply> {
        match self.moment(ago) {
            Some(moment) => moment.replies.get(&ordinal).cloned(),
            None if self.reaches(ordinal) => self.reply_now(ordinal),
            None => None,
        }
    }

    fn moment(&self, ago: Tick) -> Option<&Moment> {
        self.past.moments.get((ago as usize).checked_sub(1)?)
    }

    fn reply_now(&self, ordinal: Ordinal) -> Option<Reply> {
        let server = self.servers.get(&ordinal)?;
        let linearizable = api::linearizable_revision(&self.servers, &self.network, ordinal).is_some();
        let answer = Answer {
            cluster: server.data.cluster,
            member: server.id(),
            leader: server.leader,
            linearizable,
            denied: linearizable && self.denies_operators(server.data.cluster),
            applied_index: server.applied.index as u64,
            commit_index: if server.applied.is_voter(server.id()) { server.data.commit as u64 } else { 0 },
            term: server.data.term,
            version: Some(server.release.version()),
            storage_version: self.storage_version(server),
            downgrade: self.reported_downgrade(server.release),
            listed: None,
            // Equal logs give equal hashes; that they are equal is checked at every commit.
            hash: linearizable.then_some(1 + u32::from(server.data.rotten)),
            alarms: BTreeSet::new(),
            space: None,
            file: None,
            reaches: Some(
                self.servers
                    .iter()
                    .filter(|(other, _)| self.network.reaches(ordinal, **other))
                    .map(|(_, peer)| peer.id())
                    .collect(),
            ),
        };
        let member = |peer: &crate::etcd::Peer| Member {
            ordinal: Some(peer.ordinal),
            learner: peer.learner,
            start: peer.start,
            schemes: peer.schemes,
        };
        // A linearizable list waits until the member has applied what its leader had committed.
        let leader = consensus::leader_of(&self.servers, &self.network, ordinal).filter(|_| linearizable);
        let source = leader.and_then(|leader| self.servers.get(&leader)).unwrap_or(server);
        let list = source.applied.members.iter().map(|(&id, peer)| (id, member(peer))).collect();
        let members = Members { cluster: answer.cluster, leader: answer.leader, list };
        let pod = self.kube.sandboxes.get(&ordinal)?.uid;
        Some(Reply { pod, answer, members })
    }
}
