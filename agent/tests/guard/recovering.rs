//! One member continues without the others, by an order that it uses once.

use std::fs;

use etcd_operator_core::agent::path;
use etcd_operator_core::start::Identity;

use crate::pods::{Cluster, a_while};
use crate::{VERSIONS, formed};

const ALONE: &str = r#""force-new-cluster":true"#;

fn starts_alone(cluster: &Cluster, ordinal: usize) -> usize {
    cluster.log(ordinal).matches(ALONE).count()
}

fn members(cluster: &mut Cluster, ordinal: usize) -> Vec<String> {
    let list = cluster.etcdctl(ordinal, &["member", "list"]);
    list.lines().filter(|line| line.contains("started")).map(str::to_owned).collect()
}

fn identity(cluster: &Cluster, ordinal: usize) -> Identity {
    let text = fs::read_to_string(cluster.volume(ordinal).join(path::IDENTITY)).expect("it is there");
    serde_json::from_str(&text).expect("an identity")
}

/// Two of three members have lost their volumes, and the third is stopped.
fn majority_lost(version: &str) -> Cluster {
    let mut cluster = formed(version, 3);
    cluster.etcdctl(0, &["put", "key", "value"]);
    // What the survivor does not know to be committed is lost.
    assert!(cluster.etcdctl(1, &["get", "key"]).contains("value"));
    cluster.etcdctl(1, &["put", "another", "value"]);
    cluster.take_order_back();
    for ordinal in [0, 1, 2] {
        cluster.kill(ordinal);
    }
    for ordinal in [0, 2] {
        cluster.wipe_volume(ordinal);
    }
    cluster
}

#[test]
fn the_survivor_starts_once_without_the_others_and_normally_from_then_on() {
    for version in VERSIONS {
        let mut cluster = majority_lost(version);
        cluster.give_recovery_order("r1", 1);
        cluster.start(1);
        cluster.serves(&[1]);
        assert_eq!(starts_alone(&cluster, 1), 1, "{version}");
        assert_eq!(members(&mut cluster, 1).len(), 1, "{version}");
        assert!(cluster.etcdctl(1, &["get", "key"]).contains("value"), "{version}");
        let recorded = identity(&cluster, 1);
        assert_eq!(recorded.incarnation.as_deref(), Some("r1"));
        assert!(recorded.used_nonces.contains("r1") && recorded.used_nonces.contains("n1"), "{recorded:?}");

        // The order is still there, on this volume, in this pod and in the next one.
        for forgets in [false, true] {
            cluster.kill(1);
            if forgets {
                cluster.forget_pod(1);
            }
            cluster.start(1);
            cluster.serves(&[1]);
            assert_eq!(starts_alone(&cluster, 1), 1, "{version}: the order was used twice");
        }
        assert_eq!(identity(&cluster, 1), recorded);
    }
}

#[test]
fn an_order_for_another_pod_or_cluster_changes_nothing_and_no_empty_volume_follows_one() {
    let mut cluster = majority_lost(VERSIONS[2]);
    cluster.give_recovery_order("r1", 0);
    cluster.start(1);
    a_while();
    assert_eq!(starts_alone(&cluster, 1), 0, "it names another pod");
    assert_eq!(identity(&cluster, 1).incarnation, None);
    cluster.kill(1);

    let own = std::mem::replace(&mut cluster.config.cluster_uid, "another".into());
    cluster.give_recovery_order("r2", 1);
    cluster.config.cluster_uid = own;
    cluster.start(1);
    a_while();
    assert_eq!(starts_alone(&cluster, 1), 0, "it is for another cluster");
    cluster.kill(1);

    cluster.give_recovery_order("r3", 0);
    cluster.forget_pod(0);
    cluster.start(0);
    cluster.waits(0, "NoOrder");
    a_while();
    assert!(!cluster.runs_etcd(0));
}

#[test]
fn what_etcd_refuses_does_not_use_the_order_up() {
    let mut cluster = majority_lost(VERSIONS[2]);
    cluster.give_recovery_order("r1", 1);
    cluster.config.options.extra_arguments = [("no-such-flag".into(), "1".into())].into();
    cluster.start(1);
    assert_eq!(cluster.ended(1).code(), Some(1));
    assert_eq!(identity(&cluster, 1).incarnation, None);
    cluster.config.options.extra_arguments.clear();
    cluster.start(1);
    cluster.serves(&[1]);
    assert_eq!(members(&mut cluster, 1).len(), 1);
}

/// The same cluster, with the same cluster ID, and a member of before that comes back with its data.
#[test]
fn a_previous_member_that_returns_ends_and_serves_nobody() {
    let mut cluster = formed(VERSIONS[2], 3);
    cluster.take_order_back();
    for ordinal in [0, 1, 2] {
        cluster.kill(ordinal);
    }
    cluster.give_recovery_order("r1", 1);
    cluster.start(1);
    cluster.serves(&[1]);
    cluster.start(0);
    cluster.ended(0);
    assert!(cluster.log(0).contains("removed"), "it learns that it was removed: {}", cluster.log(0));
    cluster.serves(&[1]);
}
