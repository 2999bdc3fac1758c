//! Pods that form a cluster by their order.

use etcd_operator_core::agent::Reason;
use etcd_operator_core::start::Waiting;

use crate::pods::{Cluster, a_while, name, until};
use crate::{NEWEST, OLDEST, VERSIONS, formed};

#[test]
fn three_pods_form_a_cluster_by_their_order_and_come_back_without_anybody() {
    for version in VERSIONS {
        let mut cluster = formed(version, 3);
        let id = cluster.cluster_id(0);
        cluster.etcdctl(0, &["put", "key", "value"]);

        cluster.take_order_back();
        for ordinal in 0..3 {
            cluster.kill(ordinal);
        }
        for ordinal in 0..3 {
            cluster.start(ordinal);
        }
        cluster.serves(&[0, 1, 2]);
        assert_eq!(cluster.cluster_id(2), id, "{version}");
        assert!(cluster.etcdctl(2, &["get", "key"]).contains("value"), "{version}");
    }
}

#[test]
fn pods_that_come_up_one_after_the_other_form_one_cluster() {
    let mut cluster = Cluster::new(NEWEST);
    cluster.give_order("n1", 5);
    for ordinal in [3, 0, 4, 2, 1] {
        cluster.start(ordinal);
        cluster.tell(&[ordinal], &[0, 1, 2, 3, 4]);
    }
    cluster.serves(&[0, 1, 2, 3, 4]);
}

#[test]
fn nobody_starts_without_one_that_learns_late_where_the_others_are() {
    for version in [OLDEST, NEWEST] {
        let mut cluster = Cluster::new(version);
        // Nobody is there: only what a pod is told leads it to the others.
        cluster.config.peer_host = cluster.host(99);
        cluster.give_order("n1", 3);
        for ordinal in 0..3 {
            cluster.start(ordinal);
        }
        cluster.tell(&[0, 1], &[0, 1, 2]);
        let report = cluster.waits(0, "OthersNotReady");
        assert!(!report.reply([127, 0, 0, 1].into()).ready);
        cluster.waits(2, "PeersMissing");
        cluster.tell(&[2], &[0, 1, 2]);
        cluster.serves(&[0, 1, 2]);
        let log = cluster.log(2);
        assert!(!log.contains("NeverPublished"), "{version}: it came too late:\n{log}");
    }
}

#[test]
fn who_comes_too_late_for_its_order_is_not_let_in_by_it() {
    let mut cluster = Cluster::new(NEWEST);
    cluster.give_order("n1", 3);
    cluster.start(0);
    cluster.start(1);
    cluster.tell(&[0, 1], &[0, 1]);
    let missing = Reason::Known(Waiting::PeersMissing { missing: vec![name(2)] });
    until("the third to be missed", || cluster.report(0).filter(|report| report.waiting == missing));
    // Their patience ends, and two of three are a quorum.
    cluster.is_healthy(0);
    cluster.start(2);
    cluster.tell(&[2], &[0, 1, 2]);
    cluster.waits(2, "NeverPublished");
    a_while();
    assert!(!cluster.runs_etcd(2));
}

#[test]
fn an_order_that_a_cluster_has_formed_by_stays_void_when_its_members_are_gone() {
    let mut cluster = formed(NEWEST, 3);
    cluster.kill(2);
    cluster.wipe_volume(2);
    cluster.forget_pod(2);
    cluster.start(2);
    cluster.tell(&[2], &[0, 1, 2]);
    cluster.waits(2, "DataLost");
    cluster.kill(0);
    cluster.kill(1);
    cluster.waits(2, "OrderVoid");
    a_while();
    assert!(!cluster.runs_etcd(2));
}
