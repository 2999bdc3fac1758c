//! The simulated etcd keeps the rules that real etcd keeps, and breaks where real etcd would break.

use etcd_operator_core::observed::{MemberId, Ordinal};
use etcd_operator_core::tls::Scheme;
use etcd_operator_sim::etcd::api::{Call, Error, linearizable_revision};
use etcd_operator_sim::etcd::consensus::{self, Network, Servers, Truth};
use etcd_operator_sim::etcd::{self, Change, Exit, Release, Server, Tick};
use etcd_operator_sim::random::Random;

const ORDER: u64 = 7;

/// A cluster of servers, and nothing around them.
struct Lab {
    servers: Servers,
    network: Network,
    truth: Truth,
    random: Random,
    now: Tick,
}

impl Lab {
    fn new(size: u8) -> Self {
        let servers = Ordinal::below(size).map(|ordinal| (ordinal, founder(size, ordinal))).collect();
        let mut lab = Self {
            servers,
            network: Network::default(),
            truth: Truth::default(),
            random: Random::new(1),
            now: 0,
        };
        lab.pass(100);
        lab
    }

    fn pass(&mut self, ticks: Tick) {
        for _ in 0..ticks {
            self.now += 1;
            consensus::tick(&mut self.servers, &self.network, &mut self.truth, &mut self.random, self.now);
        }
    }

    fn call(&mut self) -> Call<'_> {
        let Self { servers, network, truth, now, .. } = self;
        Call { servers, network, truth, now: *now, strict: true }
    }

    fn leader(&self) -> Ordinal {
        let leader = self.servers.iter().find(|(_, server)| server.leads());
        *leader.expect("there is a leader").0
    }

    fn follower(&self) -> Ordinal {
        let follower = self.servers.iter().find(|(_, server)| !server.leads());
        *follower.expect("there is a follower").0
    }

    fn write(&mut self, value: u64) {
        let leader = self.leader();
        self.servers.get_mut(&leader).expect("it is there").append(Change::Write(value));
        self.pass(5);
    }

    fn id(&self, ordinal: Ordinal) -> MemberId {
        self.servers[&ordinal].id()
    }

    fn serves(&self, ordinal: Ordinal) -> bool {
        linearizable_revision(&self.servers, &self.network, ordinal).is_some()
    }
}

fn founder(size: u8, ordinal: Ordinal) -> Server {
    Server::start(etcd::found(ORDER, size, ordinal, Scheme::Http), Release::V3_5, 0)
}

#[test]
fn a_voter_that_forgets_its_votes_and_entries_can_lose_data() {
    let mut lab = Lab::new(3);
    let leader = lab.leader();
    let behind = lab.follower();
    let witness =
        Ordinal::below(3).find(|&other| other != leader && other != behind).expect("there are three");
    lab.network.cut.insert(behind);
    lab.write(1);
    // The witness starts once more, without its volume, and forms a quorum with the one that was away.
    lab.network.cut.clear();
    lab.network.cut.insert(leader);
    lab.servers.insert(witness, founder(3, witness));
    lab.pass(100);
    assert!(lab.serves(behind) || lab.serves(witness), "the two of them go on");
    lab.servers.values_mut().filter(|server| server.leads()).for_each(|server| {
        server.append(Change::Write(2));
    });
    lab.pass(50);
    assert!(lab.truth.diverged.is_some(), "an acknowledged write is gone, and nobody noticed");
}

#[test]
fn a_voter_that_keeps_its_volume_loses_nothing() {
    let mut lab = Lab::new(3);
    let follower = lab.follower();
    lab.write(1);
    let data = lab.servers[&follower].data.clone();
    lab.servers.insert(follower, Server::start(data, Release::V3_5, lab.now));
    lab.pass(100);
    assert_eq!(lab.truth.diverged, None);
    assert!(lab.serves(follower));
}

#[test]
fn who_forgets_while_the_leader_remembers_panics() {
    let mut lab = Lab::new(3);
    lab.write(1);
    let follower = lab.follower();
    lab.servers.insert(follower, founder(3, follower));
    lab.pass(2);
    assert_eq!(lab.servers[&follower].exit, Some(Exit::Panicked));
}

#[test]
fn without_a_quorum_nobody_serves() {
    let mut lab = Lab::new(3);
    let leader = lab.leader();
    lab.network.cut.extend(Ordinal::below(3).filter(|&other| other != leader));
    assert!(!lab.serves(leader));
}

#[test]
fn a_new_member_is_refused_while_a_voter_is_away_or_has_just_come_back() {
    let mut lab = Lab::new(3);
    let (leader, away) = (lab.leader(), lab.follower());
    lab.network.cut.insert(away);
    lab.pass(1);
    assert_eq!(lab.call().add_learner(leader, Ordinal(3), Scheme::Http), Err(Error::UnhealthyCluster));
    lab.network.cut.clear();
    lab.pass(40);
    assert_eq!(lab.call().add_learner(leader, Ordinal(3), Scheme::Http), Err(Error::UnhealthyCluster));
    lab.pass(20);
    assert!(lab.call().add_learner(leader, Ordinal(3), Scheme::Http).is_ok());
}

#[test]
fn one_learner_at_a_time_and_one_member_for_each_url() {
    let mut lab = Lab::new(1);
    lab.call().add_learner(Ordinal(0), Ordinal(1), Scheme::Http).expect("the first is taken");
    lab.pass(10);
    assert_eq!(lab.call().add_learner(Ordinal(0), Ordinal(1), Scheme::Http), Err(Error::PeerUrlExists));
    assert_eq!(lab.call().add_learner(Ordinal(0), Ordinal(2), Scheme::Http), Err(Error::TooManyLearners));
}

#[test]
fn a_url_that_comes_back_within_a_second_has_the_id_that_was_removed() {
    let mut lab = Lab::new(1);
    let id = lab.call().add_learner(Ordinal(0), Ordinal(1), Scheme::Http).expect("it is taken");
    lab.call().remove(Ordinal(0), id).expect("it goes");
    assert_eq!(lab.call().add_learner(Ordinal(0), Ordinal(1), Scheme::Http), Err(Error::NotFound));
    lab.pass(10);
    assert!(lab.call().add_learner(Ordinal(0), Ordinal(1), Scheme::Http).is_ok());
}

#[test]
fn a_removed_member_ends() {
    let mut lab = Lab::new(3);
    let (leader, victim) = (lab.leader(), lab.follower());
    let id = lab.id(victim);
    lab.call().remove(leader, id).expect("it may go");
    lab.pass(5);
    assert_eq!(lab.servers[&victim].exit, Some(Exit::Removed));
}

#[test]
fn a_healthy_member_is_not_removed_while_another_is_away() {
    let mut lab = Lab::new(3);
    let (leader, away) = (lab.leader(), lab.follower());
    let healthy = Ordinal::below(3).find(|&other| other != leader && other != away).expect("there are three");
    lab.network.cut.insert(away);
    lab.pass(1);
    let (healthy, away) = (lab.id(healthy), lab.id(away));
    assert_eq!(lab.call().remove(leader, healthy), Err(Error::UnhealthyCluster));
    assert_eq!(lab.call().remove(leader, away), Ok(()));
}

#[test]
fn leadership_moves_to_a_voter() {
    let mut lab = Lab::new(3);
    let (leader, heir) = (lab.leader(), lab.follower());
    let (from, to) = (lab.id(leader), lab.id(heir));
    lab.call().move_leader(from, to).expect("it moves");
    lab.pass(2);
    assert_eq!(lab.leader(), heir);
}
