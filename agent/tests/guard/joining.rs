//! Members that join: what they receive first, and how they find the others.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use etcd_operator_core::agent::Reason;
use etcd_operator_core::etcd_config::PEER_PORT;
use etcd_operator_core::observed::Process;
use etcd_operator_core::start::Waiting;

use crate::pods::{Cluster, a_while, until};
use crate::{NEWEST, OLDEST, VERSIONS, formed};

/// One member with so much behind it, and a pod that waits to be added.
pub fn with_a_past(mut cluster: Cluster, entries: usize) -> Cluster {
    for number in 0..entries {
        cluster.etcdctl(0, &["put", "key", &number.to_string()]);
    }
    cluster.take_order_back();
    cluster.start(1);
    cluster.waits(1, "NotAMember");
    cluster.tell(&[1], &[0, 1]);
    cluster
}

pub fn becomes_etcd_with_the_data(cluster: &Cluster, newest: &str) {
    cluster.is_listed_as_started(1);
    until("the agent to become etcd", || cluster.runs_etcd(1).then_some(()));
    cluster.promote(1);
    cluster.serves(&[0, 1]);
    assert!(cluster.etcdctl(1, &["get", "key"]).contains(newest));
}

#[test]
fn who_joins_receives_the_data_before_it_serves() {
    for version in &VERSIONS[2..] {
        let cluster = with_a_past(formed(version, 1), 120);
        cluster.add_learner(1);
        becomes_etcd_with_the_data(&cluster, "119");
        let log = cluster.log(1);
        assert!(log.contains("data from the other members: 0 of 1"), "{version}:\n{log}");
        assert!(log.contains("starting etcd with the received data"), "{version}:\n{log}");
        assert!(log.contains("received and saved database snapshot"), "{version}:\n{log}");
    }
}

#[test]
fn two_that_receive_do_not_get_into_each_others_way() {
    let mut cluster = with_a_past(formed(NEWEST, 1), 120);
    cluster.start(2);
    cluster.waits(2, "NotAMember");
    cluster.tell(&[1, 2], &[0, 1, 2]);
    for ordinal in [1, 2] {
        cluster.add_learner(ordinal);
    }
    for ordinal in [1, 2] {
        until("the agent to become etcd", || cluster.runs_etcd(ordinal).then_some(()));
        cluster.promote(ordinal);
    }
    cluster.serves(&[0, 1, 2]);
    for ordinal in [1, 2] {
        assert!(cluster.log(ordinal).contains(r#""reason":"Fetching""#));
    }
}

#[test]
fn who_would_not_find_the_members_by_their_names_waits() {
    let mut cluster = Cluster::new(NEWEST);
    // Whatever it leads to, the member is elsewhere.
    cluster.names.insert(0, "localhost".into());
    cluster.give_order("n1", 1);
    cluster.start(0);
    cluster.serves(&[0]);
    let cluster = with_a_past(cluster, 0);
    cluster.add_learner(1);
    let report = cluster.waits(1, "Names");
    assert_eq!(report.waiting, Reason::Known(Waiting::Names { astray: vec!["localhost".into()] }));
    assert_eq!(report.process(), Process::Waiting);
    a_while();
    assert!(!cluster.runs_etcd(1));
}

#[test]
fn a_list_without_a_quorum_behind_it_is_not_joined_by() {
    for version in [OLDEST, NEWEST] {
        let mut cluster = formed(version, 2);
        cluster.take_order_back();
        cluster.add_learner(2);
        cluster.kill(1);
        cluster.start(2);
        cluster.tell(&[2], &[0, 1, 2]);
        cluster.waits(2, "NoQuorum");
        a_while();
        assert!(!cluster.runs_etcd(2), "{version}");
        cluster.start(1);
        cluster.is_listed_as_started(2);
    }
}

#[test]
fn before_3_6_the_snapshot_count_decides() {
    let mut cluster = Cluster::new(OLDEST);
    cluster.config.options.snapshot_count = Some(10);
    cluster.give_order("n1", 1);
    cluster.start(0);
    cluster.serves(&[0]);
    let cluster = with_a_past(cluster, 20);
    cluster.add_learner(1);
    becomes_etcd_with_the_data(&cluster, "19");
    assert!(cluster.log(1).contains(r#""reason":"Fetching""#));
}

#[test]
fn who_receives_says_so_and_ends_with_its_etcd_when_told() {
    let mut cluster = formed(NEWEST, 1);
    let file = cluster.directory().join("child");
    cluster.receive_by(&format!("echo $$ > {}; exec /bin/sleep 600", file.display()));
    let mut cluster = with_a_past(cluster, 120);
    cluster.add_learner(1);
    let report = cluster.waits(1, "Fetching");
    assert_eq!((report.process(), report.ever_started), (Process::Started, true));
    assert_eq!((cluster.probe(1, "/livez"), cluster.probe(1, "/readyz")), (Some(200), Some(503)));
    assert!(!cluster.runs_etcd(1));

    let child = until("it to run", || fs::read_to_string(&file).ok().filter(|id| id.ends_with('\n')));
    let process = Path::new("/proc").join(child.trim());
    assert!(process.exists());
    assert!(cluster.terminate(1).success());
    assert!(!process.exists());
}

#[test]
fn an_etcd_that_cannot_receive_says_why_and_does_so_when_it_can() {
    let mut cluster = with_a_past(formed(NEWEST, 1), 120);
    let taken = TcpListener::bind((cluster.host(1), PEER_PORT)).expect("nobody listens there yet");
    cluster.add_learner(1);
    assert_eq!(cluster.ended(1).code(), Some(1));
    let message = cluster.termination_message(1);
    assert!(message.starts_with("etcd exited while receiving data from the other members"), "{message}");
    assert!(message.ends_with("bind: address already in use"), "{message}");

    drop(taken);
    cluster.start(1);
    becomes_etcd_with_the_data(&cluster, "119");
}
