//! A volume that is made from a snapshot, and the member that starts on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use etcd_operator_core::agent::restoration::{DIRECTORY, RESULT, Restoration, Restored, SNAPSHOT, VARIABLE};
use etcd_operator_core::agent::{Protocol, environment, path};
use serde_json::Value;

use crate::pods::{Cluster, name};
use crate::{NEWEST, VERSIONS, formed};

/// The pod that gets the data.
const RESTORED: usize = 1;
const BUMP: u64 = 1_000_000;

/// A cluster whose member has ended, with its snapshot where a restore of the next pod looks for it.
fn with_snapshot(version: &str) -> Cluster {
    let mut cluster = formed(version, 1);
    for key in ["a", "b", "c"] {
        cluster.etcdctl(0, &["put", key, "value"]);
    }
    cluster.etcdctl(0, &["del", "b"]);
    let work = cluster.volume(RESTORED).join(DIRECTORY);
    fs::create_dir_all(&work).expect("a directory");
    cluster.etcdctl(0, &["snapshot", "save", &work.join(SNAPSHOT).display().to_string()]);
    cluster.kill(0);
    cluster.take_order_back();
    cluster
}

fn restoration(cluster: &Cluster) -> Restoration {
    Restoration {
        protocol_version: Protocol::CURRENT,
        cluster_uid: cluster.config.cluster_uid.clone(),
        restore_uid: "restore".into(),
        name: name(RESTORED),
        peer_url: cluster.url(RESTORED),
        bump_revision: Some(BUMP),
    }
}

struct Run {
    output: Output,
    message: String,
}

impl Run {
    fn of(cluster: &Cluster, restoration: &Restoration) -> Self {
        let message = cluster.directory().join("message");
        let path = format!("{}:{}", cluster.programs.display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new(env!("CARGO_BIN_EXE_etcd-agent"))
            .arg("restore")
            .env(VARIABLE, serde_json::to_string(restoration).expect("plain data"))
            .env(environment::VOLUME, cluster.volume(RESTORED))
            .env(environment::TERMINATION_LOG, &message)
            .env("PATH", path)
            .output()
            .expect("the agent runs");
        Self { output, message: fs::read_to_string(message).unwrap_or_default() }
    }

    fn restored(&self) -> Restored {
        assert!(self.output.status.success(), "{}", self.message);
        serde_json::from_str(&self.message).expect("a result")
    }

    fn refused(&self, part: &str) {
        assert!(!self.output.status.success());
        assert!(self.message.contains(part), "{}", self.message);
    }
}

fn data(cluster: &Cluster) -> PathBuf {
    cluster.volume(RESTORED).join(path::DATA)
}

fn revision(cluster: &Cluster) -> i64 {
    let status = cluster.etcdctl(RESTORED, &["endpoint", "status", "--write-out=json"]);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    status[0]["Status"]["header"]["revision"].as_i64().expect("a revision")
}

#[test]
fn a_snapshot_of_every_version_becomes_a_member_with_the_id_that_was_computed_and_raised_revisions() {
    for version in VERSIONS {
        let mut cluster = with_snapshot(version);
        let restoration = restoration(&cluster);
        let restored = Run::of(&cluster, &restoration).restored();
        assert_eq!(restored.revision, 5, "{version}");
        assert_eq!(restored.served_revision, 5 + 1_000_000, "{version}");
        assert!(!cluster.volume(RESTORED).join(DIRECTORY).exists(), "the snapshot takes room");
        // An attempt whose result was lost reports it again, and nothing changes.
        let log = fs::read_dir(data(&cluster).join("member/wal")).expect("a log").count();
        assert_eq!(Run::of(&cluster, &restoration).restored(), restored);
        assert_eq!(fs::read_dir(data(&cluster).join("member/wal")).expect("a log").count(), log);

        cluster.start(RESTORED);
        cluster.serves(&[RESTORED]);
        let found = cluster.etcdctl(RESTORED, &["get", "", "--from-key", "--keys-only"]);
        assert_eq!(found.split_whitespace().collect::<Vec<_>>(), ["a", "c"], "{version}");
        assert_eq!(revision(&cluster), restored.served_revision, "{version}");
        let member = cluster.member_id(RESTORED, RESTORED);
        assert_eq!(member, restoration.member_id().to_string(), "{version}");
        // What precedes the restore counts as compacted, so a watch that continues from there is cancelled.
        let ended = Command::new(cluster.programs.join("etcdctl"))
            .args(["--endpoints", &format!("http://{}:2379", cluster.host(RESTORED)), "get", "a", "--rev=3"])
            .output()
            .expect("etcdctl runs");
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(words.contains("required revision has been compacted"), "{version}: {words}");
        cluster.kill(RESTORED);
    }
}

#[test]
fn a_restore_that_ended_anywhere_continues_and_half_of_one_is_never_started() {
    let mut cluster = with_snapshot(NEWEST);
    let restoration = restoration(&cluster);
    let (volume, kept) = (cluster.volume(RESTORED), cluster.directory().join("kept.db"));
    let snapshot = volume.join(DIRECTORY).join(SNAPSHOT);
    fs::copy(&snapshot, &kept).expect("it is there");
    // Ended by a node in the middle of the data.
    fs::create_dir_all(volume.join(DIRECTORY).join(path::DATA).join("member")).expect("a directory");
    let restored = Run::of(&cluster, &restoration).restored();
    // Everything but the last rename.
    fs::create_dir_all(volume.join(DIRECTORY)).expect("a directory");
    fs::rename(data(&cluster), volume.join(DIRECTORY).join(path::DATA)).expect("it is there");
    assert!(volume.join(RESULT).exists() && volume.join(path::IDENTITY).exists());
    cluster.start(RESTORED);
    cluster.waits(RESTORED, "NoOrder");
    cluster.kill(RESTORED);
    fs::copy(&kept, &snapshot).expect("it is there");
    assert_eq!(Run::of(&cluster, &restoration).restored(), restored);
    cluster.start(RESTORED);
    cluster.serves(&[RESTORED]);
}

#[test]
fn data_of_others_stays_and_a_damaged_snapshot_leaves_nothing() {
    let cluster = with_snapshot(NEWEST);
    let restoration = restoration(&cluster);
    let snapshot = cluster.volume(RESTORED).join(DIRECTORY).join(SNAPSHOT);
    let whole = fs::read(&snapshot).expect("it is there");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&whole[..whole.len() - 5000], &flipped] {
        fs::write(&snapshot, damaged).expect("it can be written");
        Run::of(&cluster, &restoration).refused("etcdutl snapshot");
        assert!(!data(&cluster).exists());
    }
    fs::write(&snapshot, &whole).expect("it can be written");
    let restored = Run::of(&cluster, &restoration).restored();
    // Another restore, another cluster, another pod: none of them may touch it.
    let others = [
        Restoration { restore_uid: "other".into(), ..restoration.clone() },
        Restoration { cluster_uid: "other".into(), ..restoration.clone() },
        Restoration { name: name(2), ..restoration.clone() },
    ];
    for other in others {
        Run::of(&cluster, &other).refused("delete it, and create another EtcdRestore");
    }
    let result: Restored = read(&cluster.volume(RESTORED).join(RESULT));
    assert_eq!(result, restored);
    // Without a log, an identity of others is enough.
    fs::remove_dir_all(data(&cluster)).expect("it is there");
    Run::of(&cluster, &Restoration { cluster_uid: "other".into(), ..restoration })
        .refused("the volume holds data of kv-1");
    cluster.wipe_volume(RESTORED);
}

fn read(path: &Path) -> Restored {
    serde_json::from_slice(&fs::read(path).expect("it is there")).expect("a result")
}
