//! The agent with real etcd, as processes on loopback.

#[path = "guard/access.rs"]
mod access;
#[path = "support/certificates.rs"]
mod certificates;
#[path = "guard/forming.rs"]
mod forming;
#[path = "guard/joining.rs"]
mod joining;
#[path = "guard/ownership.rs"]
mod ownership;
#[path = "guard/pods.rs"]
mod pods;
#[path = "guard/recovering.rs"]
mod recovering;
#[path = "guard/restoring.rs"]
mod restoring;
#[path = "guard/tls.rs"]
mod tls;

use std::fs;

use etcd_operator_core::agent::{Reason, path};
use etcd_operator_core::start::Waiting;
use pods::{Cluster, a_while};

const VERSIONS: [&str; 4] = testbed::build::STANDARD_ETCD;
const OLDEST: &str = VERSIONS[0];
const NEWEST: &str = VERSIONS[3];

/// A cluster that has formed, with its order still there.
fn formed(version: &str, size: usize) -> Cluster {
    formed_in(Cluster::new(version), size)
}

fn formed_in(mut cluster: Cluster, size: usize) -> Cluster {
    cluster.give_order("n1", size);
    let all: Vec<usize> = (0..size).collect();
    for &ordinal in &all {
        cluster.start(ordinal);
    }
    if size > 1 {
        cluster.tell(&all, &all);
    }
    cluster.serves(&all);
    cluster
}

#[test]
fn every_version_takes_its_flags_to_heart() {
    for version in VERSIONS {
        let mut cluster = Cluster::new(version);
        cluster.config.options.quota_backend_bytes = Some(123_456_789);
        cluster.config.options.extra_arguments = [("max-request-bytes".into(), "2097152".into())].into();
        cluster.give_order("n1", 1);
        cluster.start(0);
        cluster.serves(&[0]);
        let log = cluster.log(0);
        let mut settings =
            vec![r#""quota-backend-bytes":123456789"#, r#""max-request-bytes":2097152"#, r#""name":"kv-0""#];
        if version.starts_with("v3.5.") {
            settings.extend([r#""initial-corrupt-check":true"#, r#""compact-check-time-enabled":true"#]);
        } else {
            settings.extend([r#""max-learners":2"#, "InitialCorruptCheck=true", "CompactHashCheck=true"]);
        }
        for setting in settings {
            assert!(log.contains(setting), "{version} does not have {setting}:\n{log}");
        }
        for complaint in [r#""level":"fatal""#, "deprecated", "unrecognized environment"] {
            assert!(!log.contains(complaint), "{version} complains:\n{log}");
        }
    }
}

#[test]
fn the_agent_becomes_etcd_and_leaves_the_port_to_it() {
    let mut cluster = Cluster::new(NEWEST);
    cluster.start(0);
    let report = cluster.waits(0, "NoOrder");
    assert_eq!((report.name.as_str(), report.ever_started), ("kv-0", false));
    assert_eq!(report.peer_url, cluster.url(0));
    for (probe, status) in [
        ("/livez", 200),
        ("/readyz", 503),
        ("/health?serializable=true&exclude=NOSPACE", 200),
        ("/health", 503),
        ("/metrics", 200),
    ] {
        assert_eq!(cluster.probe(0, probe), Some(status), "{probe}");
    }
    assert!(cluster.page(0, "/metrics").contains("etcd_agent_waiting{reason=\"NoOrder\"} 1\n"));
    assert!(!cluster.runs_etcd(0));

    cluster.give_order("n1", 1);
    cluster.serves(&[0]);
    assert!(cluster.runs_etcd(0));
    assert!(!cluster.page(0, "/metrics").contains("etcd_agent_waiting"));
    assert_eq!(cluster.probe(0, "/readyz"), Some(200));
    assert_eq!(cluster.probe(0, "/agent"), Some(404));
}

#[test]
fn a_waiting_agent_ends_when_told() {
    let mut cluster = Cluster::new(NEWEST);
    cluster.start(0);
    cluster.waits(0, "NoOrder");
    assert!(cluster.terminate(0).success());
}

#[test]
fn a_member_that_lost_its_volume_waits_to_be_replaced_with_and_without_the_order() {
    for version in [OLDEST, NEWEST] {
        let mut cluster = formed(version, 3);
        let id = cluster.cluster_id(0);
        for order_is_there in [true, false] {
            if !order_is_there {
                cluster.take_order_back();
            }
            cluster.kill(2);
            cluster.wipe_volume(2);
            cluster.forget_pod(2);
            cluster.start(2);
            cluster.tell(&[2], &[0, 1, 2]);
            let report = cluster.waits(2, "DataLost");
            assert!(!report.ever_started, "nobody is left to remember");
            a_while();
            assert!(!cluster.runs_etcd(2), "{version}");
        }

        // The operator replaces it: the pod joins with nothing else done to it.
        let lost = cluster.member_id(0, 2);
        cluster.etcdctl(0, &["member", "remove", &lost]);
        cluster.waits(2, "NotAMember");
        // The same second would give it the same, already removed identity.
        a_while();
        cluster.add_learner(2);
        cluster.is_listed_as_started(2);
        assert_eq!(cluster.cluster_id(2), id, "{version}");
    }
}

#[test]
fn a_single_member_never_forms_a_second_cluster() {
    let mut cluster = formed(OLDEST, 1);
    // Only its data is wiped: the volume remembers the order.
    cluster.kill(0);
    cluster.wipe_data(0);
    cluster.forget_pod(0);
    cluster.start(0);
    assert!(cluster.waits(0, "OrderUsed").ever_started);

    // The whole volume is wiped under the pod: the pod remembers.
    cluster.kill(0);
    cluster.wipe_volume(0);
    cluster.start(0);
    let report = cluster.waits(0, "OrderUsed");
    assert_eq!(report.waiting, Reason::Known(Waiting::OrderUsed { nonce: "n1".into() }));

    // Volume and pod are new; the order is gone, as it is before any volume is deleted.
    cluster.kill(0);
    cluster.wipe_volume(0);
    cluster.forget_pod(0);
    cluster.take_order_back();
    cluster.start(0);
    cluster.waits(0, "NoOrder");
    a_while();
    assert!(!cluster.runs_etcd(0));
}

#[test]
fn pods_join_once_they_are_added_and_two_do_not_get_into_each_others_way() {
    for version in [OLDEST, NEWEST] {
        let mut cluster = formed(version, 1);
        cluster.take_order_back();
        for ordinal in [1, 2] {
            cluster.start(ordinal);
            cluster.waits(ordinal, "NotAMember");
        }
        cluster.tell(&[1, 2], &[0, 1, 2]);
        cluster.add_learner(1);
        if version == OLDEST {
            cluster.is_listed_as_started(1);
            cluster.promote(1);
        }
        cluster.add_learner(2);
        for ordinal in [1, 2] {
            cluster.is_listed_as_started(ordinal);
            if version != OLDEST || ordinal == 2 {
                cluster.promote(ordinal);
            }
        }
        cluster.serves(&[0, 1, 2]);
        assert!(!cluster.log(1).contains("Fetching"), "a log that is whole is sent at once");
    }
}

#[test]
fn a_volume_of_another_cluster_or_pod_is_refused_and_can_be_adopted() {
    let mut cluster = formed(NEWEST, 1);
    cluster.etcdctl(0, &["put", "key", "value"]);
    cluster.kill(0);
    let former = std::mem::replace(&mut cluster.config.cluster_uid, "another".into());

    cluster.start(0);
    assert_eq!(cluster.ended(0).code(), Some(1));
    assert_eq!(
        cluster.termination_message(0),
        format!(
            "ForeignCluster: the volume holds data of another cluster (UID {former}, expected another): delete \
             the volume, or let this cluster adopt it"
        )
    );

    cluster.config.adopts = Some(former);
    cluster.start(0);
    cluster.serves(&[0]);
    assert!(cluster.etcdctl(0, &["get", "key"]).contains("value"));
    // From now on it is ours.
    cluster.kill(0);
    cluster.config.adopts = None;
    cluster.start(0);
    cluster.serves(&[0]);

    cluster.kill(0);
    cluster.rename_volume(0, 1);
    cluster.start(1);
    assert_eq!(cluster.ended(1).code(), Some(1));
    assert_eq!(
        cluster.termination_message(1),
        "ForeignPod: the volume holds data of kv-0, but this pod is kv-1: put the original volume back"
    );
}

#[test]
fn an_argument_that_etcd_does_not_know_uses_no_order_up() {
    let mut cluster = Cluster::new(NEWEST);
    cluster.give_order("n1", 1);
    cluster.config.options.extra_arguments = [("max-requests-bytes".into(), "1".into())].into();
    cluster.start(0);
    assert_eq!(cluster.ended(0).code(), Some(1));
    assert_eq!(
        cluster.termination_message(0),
        "etcd rejected its arguments: flag provided but not defined: -max-requests-bytes"
    );
    cluster.config.options.extra_arguments.clear();
    cluster.start(0);
    cluster.serves(&[0]);
}

#[test]
fn a_first_start_that_failed_half_way_is_cleaned_up_behind() {
    let mut cluster = formed(OLDEST, 1);
    cluster.take_order_back();
    cluster.start(1);
    cluster.waits(1, "NotAMember");
    cluster.kill(1);
    // As etcd leaves it when it makes its database and then finds no peer.
    let snap = cluster.volume(1).join(path::DATA).join("member/snap");
    fs::create_dir_all(&snap).expect("a directory");
    fs::write(snap.join("db"), "not a database").expect("a file");
    cluster.start(1);
    assert_eq!(cluster.ended(1).code(), Some(1), "nothing says whose that is");
    assert!(cluster.termination_message(1).starts_with("UnknownOwner"));

    let identity = format!(r#"{{"clusterUid":"{}","name":"kv-1"}}"#, cluster.config.cluster_uid);
    fs::write(cluster.volume(1).join(path::IDENTITY), identity).expect("a file");
    cluster.start(1);
    cluster.waits(1, "NotAMember");
    cluster.add_learner(1);
    cluster.is_listed_as_started(1);
    assert!(cluster.volume(1).join(path::DISCARDED).join("member/snap/db").exists());
}

#[test]
fn one_that_comes_back_to_members_that_serve_compares_its_data_with_theirs() {
    let mut cluster = formed(NEWEST, 3);
    cluster.kill(1);
    cluster.start(1);
    cluster.serves(&[0, 1, 2]);
    assert!(cluster.log(1).contains("starting initial corruption check"));
}

#[test]
fn the_program_installs_itself() {
    let directory = std::env::temp_dir().join(format!("etcd-agent-install-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join(path::PROGRAM);
    for _ in 0..2 {
        let mut install = std::process::Command::new(env!("CARGO_BIN_EXE_etcd-agent"));
        assert!(install.arg("install").arg(&directory).status().expect("it runs").success());
        let shown = std::process::Command::new(&program).arg("--version").output().expect("the copy runs");
        assert!(String::from_utf8_lossy(&shown.stdout).starts_with("etcd-agent "));
    }
    fs::remove_dir_all(&directory).expect("it was there");
}
