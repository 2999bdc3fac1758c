//! The simulated etcd, on volumes of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_core::observed::{MemberId, Ordinal};
use etcd_operator_core::tls::Scheme;
use etcd_operator_sim::etcd::api::{self, Error, linearizable_revision};
use etcd_operator_sim::etcd::consensus::{self, Network, Servers, Truth};
use etcd_operator_sim::etcd::{self, Change, Data, Exit, Release, Server, Tick};
use etcd_operator_sim::random::Random;

use crate::script::{Answer, Cluster, Listed, Request};

const ORDER: u64 = 7;
/// The ID of a member that never was.
const NOBODY: MemberId = MemberId(9);
const TICK: Duration = Duration::from_millis(100);

pub struct Simulated {
    release: Release,
    founders: u8,
    servers: Servers,
    volumes: BTreeMap<Ordinal, Data>,
    ends: BTreeMap<Ordinal, Exit>,
    /// The newest ID that each member had.
    ids: BTreeMap<Ordinal, MemberId>,
    truth: Truth,
    random: Random,
    now: Tick,
}

impl Simulated {
    pub fn new(release: Release, founders: u8) -> Self {
        let ids = Ordinal::below(founders).map(|ordinal| (ordinal, etcd::founding_id(ORDER, ordinal)));
        Self {
            release,
            founders,
            servers: Servers::new(),
            volumes: BTreeMap::new(),
            ends: BTreeMap::new(),
            ids: ids.collect(),
            truth: Truth::default(),
            random: Random::new(1),
            now: 0,
        }
    }

    fn id(&self, ordinal: u8) -> MemberId {
        self.ids.get(&Ordinal(ordinal)).copied().unwrap_or(NOBODY)
    }

    fn serving(&self) -> Option<&Server> {
        let serves = |ordinal| linearizable_revision(&self.servers, &Network::default(), ordinal).is_some();
        self.servers.iter().find(|(ordinal, _)| serves(**ordinal)).map(|(_, server)| server)
    }

    fn stop(&mut self, ordinal: Ordinal) {
        if let Some(server) = self.servers.remove(&ordinal) {
            self.volumes.insert(ordinal, server.data);
        }
    }

    fn pass(&mut self) {
        self.now += 1;
        let network = Network::default();
        consensus::tick(&mut self.servers, &network, &mut self.truth, &mut self.random, self.now);
        let exits: Vec<_> =
            self.servers.iter().filter_map(|(&ordinal, server)| Some((ordinal, server.exit?))).collect();
        for (ordinal, exit) in exits {
            self.ends.insert(ordinal, exit);
            self.stop(ordinal);
        }
    }
}

impl Cluster for Simulated {
    fn start(&mut self, ordinal: u8) {
        let at = Ordinal(ordinal);
        let data = self.volumes.get(&at).cloned().unwrap_or_else(|| {
            let id = self.id(ordinal);
            if etcd::founding_id(ORDER, at) == id && ordinal < self.founders {
                etcd::found(ORDER, self.founders, at, Scheme::Http)
            } else {
                etcd::join(etcd::cluster_id(ORDER), id)
            }
        });
        self.ends.remove(&at);
        self.servers.insert(at, Server::start(data, self.release, self.now));
    }

    fn kill(&mut self, ordinal: u8) {
        self.stop(Ordinal(ordinal));
    }

    fn wipe(&mut self, ordinal: u8) {
        self.volumes.remove(&Ordinal(ordinal));
    }

    fn write(&mut self, count: u16) {
        let leader = self.servers.values_mut().find(|server| server.leads()).expect("somebody leads");
        for value in 0..count {
            leader.append(Change::Write(u64::from(value)));
        }
        for _ in 0..count / 10 {
            self.pass();
        }
    }

    fn ask(&mut self, via: u8, request: Request, _: Duration) -> Answer {
        let ids = self.ids.clone();
        let id = |ordinal: u8| ids.get(&Ordinal(ordinal)).copied().unwrap_or(NOBODY);
        let Self { servers, truth, now, .. } = self;
        let network = Network::default();
        let at = Ordinal(via);
        let mut etcd = api::Call { servers, network: &network, truth, now: *now, strict: true };
        match request {
            Request::AddLearner(new) => {
                let added = etcd.add_learner(at, Ordinal(new), Scheme::Http)?;
                self.ids.insert(Ordinal(new), added);
                Ok(())
            }
            Request::AddVoter(_) => panic!("the simulation has no such call"),
            Request::Promote(member) => etcd.promote(at, id(member)),
            Request::Remove(member) => etcd.remove(at, id(member)),
            Request::MoveLeader(to) => etcd.move_leader(id(via), id(to)),
            Request::LinearizableRead => {
                linearizable_revision(servers, &network, at).map(drop).ok_or(Error::Unavailable)
            }
            Request::SerializableRead => servers.get(&at).map(drop).ok_or(Error::Unavailable),
        }
    }

    fn list(&mut self) -> Option<Vec<Listed>> {
        let members = self.serving()?.applied.members.values();
        let listed =
            members.map(|peer| Listed { ordinal: peer.ordinal.0, learner: peer.learner, start: peer.start });
        Some(listed.collect())
    }

    fn running(&mut self) -> Vec<u8> {
        self.servers.keys().map(|ordinal| ordinal.0).collect()
    }

    fn leader(&mut self, at: u8) -> Option<u8> {
        consensus::leader_of(&self.servers, &Network::default(), Ordinal(at)).map(|leader| leader.0)
    }

    fn ended(&mut self, ordinal: u8) -> bool {
        self.ends.get(&Ordinal(ordinal)) == Some(&Exit::Removed)
    }

    fn wait(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / TICK.as_millis() {
            self.pass();
        }
    }

    fn await_new_second(&mut self) {
        self.pass();
        while !self.now.is_multiple_of(10) {
            self.pass();
        }
    }
}
