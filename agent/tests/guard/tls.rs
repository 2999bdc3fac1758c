//! Pods whose peers and clients use TLS.

use std::fs;

use etcd_operator_core::agent::Reason;
use etcd_operator_core::observed::Process;
use etcd_operator_core::start::Waiting;
use etcd_operator_core::tls::{CERTIFICATE_KEY, Purpose};

use crate::certificates::Authority;
use crate::joining::{becomes_etcd_with_the_data, with_a_past};
use crate::pods::{Cluster, a_while, until};
use crate::{NEWEST, OLDEST, VERSIONS, formed_in};

#[test]
fn three_pods_form_a_cluster_with_tls_and_come_back() {
    for version in VERSIONS {
        let mut cluster = formed_in(Cluster::with_tls(version), 3);
        let id = cluster.cluster_id(0);
        cluster.etcdctl(0, &["put", "key", "value"]);
        cluster.take_order_back();
        cluster.kill(1);
        cluster.start(1);
        cluster.serves(&[0, 1, 2]);
        assert!(
            cluster.log(1).contains(r#""initial-corrupt-check":"true""#),
            "{version}: it asked the others"
        );
        for ordinal in 0..3 {
            cluster.kill(ordinal);
        }
        for ordinal in 0..3 {
            cluster.start(ordinal);
        }
        cluster.serves(&[0, 1, 2]);
        assert_eq!(cluster.cluster_id(2), id, "{version}");
        assert!(cluster.etcdctl(2, &["get", "key"]).contains("value"), "{version}");
        assert!(cluster.members(0).expect("it answers")[0].peer_urls[0].starts_with("https://"));
    }
}

#[test]
fn pods_join_with_tls_and_receive_the_data_first() {
    for version in [OLDEST, NEWEST] {
        let mut cluster = Cluster::with_tls(version);
        cluster.config.options.snapshot_count = Some(100);
        let cluster = with_a_past(formed_in(cluster, 1), 120);
        cluster.add_learner(1);
        becomes_etcd_with_the_data(&cluster, "119");
        assert!(cluster.log(1).contains("starting etcd with the received data"), "{version}");
    }
}

/// etcd would look up names that DNS does not have yet.
#[test]
fn members_are_not_asked_before_they_can_find_who_asks() {
    let mut cluster = formed_in(Cluster::with_tls(NEWEST), 1);
    cluster.take_order_back();
    cluster.start(1);
    cluster.waits(1, "NoOrder");
    cluster.tell(&[1], &[0]);
    cluster.waits(1, "NoOrder");
    cluster.tell(&[1], &[0, 1]);
    cluster.waits(1, "NotAMember");
    // Without an operator it tries after a while.
    cluster.kill(1);
    cluster.start(1);
    cluster.waits(1, "NoOrder");
    cluster.waits(1, "NotAMember");
}

/// It has its order and no data, and the others have formed a cluster by it.
#[test]
fn one_with_wrong_certificates_never_concludes_that_there_is_no_cluster() {
    let mut cluster = formed_in(Cluster::with_tls(NEWEST), 3);
    cluster.kill(2);
    cluster.wipe_volume(2);
    cluster.forget_pod(2);
    cluster.give_certificates(2, &Authority::generate());
    cluster.start(2);
    cluster.tell(&[2], &[0, 1, 2]);
    cluster.waits(2, "PeersMissing");
    until("the failure to be logged", || cluster.log(2).contains("cannot ask another pod").then_some(()));
    a_while();
    assert!(!cluster.runs_etcd(2));
    assert_eq!(cluster.log(2).matches("cannot ask another pod").count(), 2, "once for each pod");

    // The certificates are replaced in place.
    cluster.give_right_certificates(2);
    cluster.waits(2, "DataLost");
}

#[test]
fn unreadable_certificates_are_waited_for_and_use_no_order_up() {
    for purpose in [Purpose::Peer, Purpose::Server] {
        let mut cluster = Cluster::with_tls(NEWEST);
        cluster.give_right_certificates(0);
        let missing = cluster.tls_file(0, purpose, CERTIFICATE_KEY);
        fs::remove_file(&missing).expect("it was there");
        cluster.give_order("n1", 1);
        cluster.start(0);
        let report = until("the agent to wait", || {
            let unusable = |it: &Reason| matches!(it, Reason::Known(Waiting::Certificates { .. }));
            cluster.report(0).filter(|report| unusable(&report.waiting))
        });
        let expected = format!("usable certificates: cannot read {missing}: No such file or directory");
        assert!(report.message.starts_with(&expected), "{}", report.message);
        assert_eq!((report.process(), report.ever_started), (Process::Started, false));
        a_while();
        assert!(!cluster.runs_etcd(0));
        cluster.give_right_certificates(0);
        cluster.serves(&[0]);
    }
}
