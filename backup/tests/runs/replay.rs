//! A copy and the archive after it lead to every revision and every moment: what a replay restores is what etcd had then.

use std::path::PathBuf;
use std::time::Duration;

use etcd_operator_core::backup::report::{Done, Reason};
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::json;
use testbed::build::STANDARD_ETCD;

use crate::archive::{ARCHIVE, World, has_archived};
use crate::cluster::{Cluster, USER, VERSION, until};
use crate::faults::signal;
use crate::ledger::{self, Random, keys};
use crate::program::{Place, identity, text};

/// Arguments of a run, beside what it restores.
struct Replay {
    output: PathBuf,
    scratch: PathBuf,
    etcd: PathBuf,
    etcdutl: PathBuf,
    identity: Option<PathBuf>,
}

impl Replay {
    fn of(world: &World, name: &str) -> Self {
        Self::new(&world.place, &world.cluster, name)
    }

    fn new(place: &Place, cluster: &Cluster, name: &str) -> Self {
        let programs = cluster.programs();
        Self {
            output: place.directory.join(format!("{name}.db")),
            scratch: place.directory.join(format!("{name}.scratch")),
            etcd: programs.join("etcd"),
            etcdutl: programs.join("etcdutl"),
            identity: None,
        }
    }

    fn arguments<'a>(&'a self, target: [&'a str; 2]) -> Vec<&'a str> {
        let mut all = vec!["replay", target[0], target[1]];
        all.extend(["--output", text(&self.output), "--scratch", text(&self.scratch)]);
        all.extend(["--etcd", text(&self.etcd), "--etcdutl", text(&self.etcdutl)]);
        if let Some(identity) = &self.identity {
            all.extend(["--identity", text(identity)]);
        }
        all
    }

    /// Nothing is left of one that failed.
    fn left_nothing(&self) {
        assert!(!self.output.exists() && !self.scratch.exists());
        assert!(!self.output.with_extension("db.partial").exists());
    }
}

/// Replays to a revision, and compares every key with what the source had then.
async fn is_equal(world: &World, version: &str, revision: i64, replay: &Replay) {
    let number = revision.to_string();
    let done = world.place.done(&replay.arguments(["--to-revision", &number])).await;
    let Done::Replay { revision: found, replayed, .. } = done else { panic!("{done:?}") };
    assert_eq!(found, revision);
    assert!(!replay.scratch.exists(), "the scratch data is removed");
    println!("{version}: revision {revision}, {replayed} replayed");
    let restored = Cluster::restored(version, &replay.output).await;
    let (expected, is) = (
        keys(&mut world.cluster.client(0).await, revision).await,
        keys(&mut restored.client(0).await, 0).await,
    );
    assert_eq!(is.revision, revision);
    assert_eq!(is.keys.len(), expected.keys.len());
    for (is, expected) in is.keys.iter().zip(&expected.keys) {
        assert_eq!(is, expected);
    }
}

#[tokio::test]
async fn every_key_has_its_revisions_version_and_lease_again() {
    for version in STANDARD_ETCD {
        let mut world = World::new(version, 1).await;
        let (private, public) = identity(&world.place, "identity");
        let mut client = world.cluster.client(0).await;
        let mut random = Random(17);
        // A lease and keys that the copy has, others that it does not have.
        ledger::grant(&mut client, 76, 4321).await;
        let with = |id| Some(etcd_client::PutOptions::new().with_lease(id));
        client.put("leased-before", "x", with(76)).await.expect("written");
        ledger::write(&mut client, &mut random, 50).await;
        world.place.set("compression", "Zstd");
        world.place.set("recipients", json!([public]));
        let copy = world.place.take().await;
        let archiver = world.archiver();
        ledger::grant(&mut client, 77, 1234).await;
        client.put("leased-after", "x", with(77)).await.expect("written");
        ledger::write(&mut client, &mut random, 200).await;
        let middle = revision(&mut client).await;
        ledger::write_extremes(&mut client).await;
        ledger::write(&mut client, &mut random, 100).await;
        let end = revision(&mut client).await;
        world.has_archived(end).await;
        signal(&archiver, Signal::TERM);
        world.place.ended(archiver).await;
        for (name, revision) in [("middle", middle), ("end", end), ("copy", copy.revision.highest)] {
            let mut replay = Replay::of(&world, name);
            replay.identity = Some(private.clone());
            is_equal(&world, version, revision, &replay).await;
            if name == "end" {
                let restored = Cluster::restored(version, &replay.output).await;
                let mut client = restored.client(0).await;
                for (id, ttl) in [(76, 4321), (77, 1234)] {
                    let lease = client.lease_time_to_live(id, None).await.expect("a response");
                    assert_eq!(lease.granted_ttl(), ttl, "lease {id}");
                }
            }
        }
    }
}

async fn revision(client: &mut etcd_client::Client) -> i64 {
    client.get("x", None).await.expect("it serves").header().expect("it has one").revision()
}

#[tokio::test]
async fn a_time_leads_to_the_revision_that_the_cluster_had_then() {
    let world = World::new(VERSION, 1).await;
    let mut client = world.cluster.client(0).await;
    let archiver = world.archiver();
    let write = async |client: &mut etcd_client::Client, name: &str| {
        client.put(name, "x", None).await.expect("written");
        // Until everything is received, and until what comes next is received later.
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        (Timestamp::now(), revision(client).await)
    };
    write(&mut client, "zero").await;
    let (one, at_one) = write(&mut client, "one").await;
    let (_, at_two) = write(&mut client, "two").await;
    world.has_archived(at_two).await;
    signal(&archiver, Signal::KILL);
    world.ends(archiver).await;
    let (without, _) = write(&mut client, "three").await;
    let archiver = world.archiver();
    let (four, at_four) = write(&mut client, "four").await;
    let (_, at_five) = write(&mut client, "five").await;
    world.has_archived(at_five).await;
    signal(&archiver, Signal::TERM);
    world.place.ended(archiver).await;

    for (name, time, expected) in [("one", one, at_one), ("four", four, at_four)] {
        let replay = Replay::of(&world, name);
        let done = world.place.done(&replay.arguments(["--to-time", &time.to_string()])).await;
        let Done::Replay { revision, .. } = done else { panic!("{done:?}") };
        assert_eq!(revision, expected, "{name}");
        assert_eq!(world.cluster.etcdutl_status(&replay.output)["revision"], expected);
    }
    let replay = Replay::of(&world, "without");
    for (time, word) in [
        (without, "it caught up then; the nearest times that it knows are"),
        (Timestamp::MAX, "the last time"),
    ] {
        let arguments = [time.to_string()];
        let message =
            world.place.refused(&replay.arguments(["--to-time", &arguments[0]]), Reason::CopyNotFound).await;
        assert!(message.contains(word) && message.contains("(revision "), "{message}");
        replay.left_nothing();
    }
    let message = world.place.refused(&replay.arguments(["--to-revision", "999"]), Reason::ChainBroken).await;
    assert!(message.contains(&format!("no segment has revision {}", at_five + 1)), "{message}");
    let message = world.place.refused(&replay.arguments(["--to-revision", "0"]), Reason::CopyNotFound).await;
    assert!(message.contains("no good copy has revision 0 or an earlier one"), "{message}");
    replay.left_nothing();
}

#[tokio::test]
async fn what_is_damaged_or_missing_is_refused() {
    let mut world = World::new(VERSION, 1).await;
    let mut client = world.cluster.client(0).await;
    for round in 0..3 {
        let archiver = world.archiver();
        client.put(format!("key-{round}"), "value", None).await.expect("written");
        world.has_archived(2 + round).await;
        signal(&archiver, Signal::TERM);
        world.place.ended(archiver).await;
    }
    let segments: Vec<_> = (2..5).map(|first| world.chain().join(format!("{first:020}.segment"))).collect();
    let replay = Replay::of(&world, "damaged");
    let arguments = replay.arguments(["--to-revision", "4"]);
    let good = std::fs::read(&segments[1]).expect("a segment");

    let mut flipped = good.clone();
    *flipped.last_mut().expect("it has content") ^= 1;
    std::fs::write(&segments[1], &flipped).expect("written");
    let message = world.place.refused(&arguments, Reason::CopyDamaged).await;
    assert!(message.ends_with("its SHA-256 is another one: choose a revision up to 2"), "{message}");

    // Another segment with the same revisions is not the one that the next one continues.
    std::fs::write(&segments[1], &good).expect("written");
    ledger::tamper(&segments[1], |_| {});
    let message = world.place.refused(&arguments, Reason::CopyDamaged).await;
    assert!(
        message.contains("the segment that begins with revision 4 does not continue the one before it"),
        "{message}"
    );

    std::fs::remove_file(&segments[1]).expect("removed");
    let message = world.place.refused(&arguments, Reason::ChainBroken).await;
    assert!(message.contains("no segment has revision 3"), "{message}");
    std::fs::write(&segments[1], &good).expect("written");

    // The newest segment has no successor with its hash.
    let newest = std::fs::read(&segments[2]).expect("a segment");
    let later: fn(&mut Vec<ledger::RecordedChange>) = |all| all.iter_mut().for_each(|it| it.version += 1);
    for (change, words) in [
        (later, "a key that it changes has another version"),
        (Vec::clear, "etcd gives it revision 3, although no lease has expired"),
    ] {
        ledger::tamper(&segments[2], change);
        let message = world.place.refused(&arguments, Reason::CopyDamaged).await;
        let expected = format!("the replay of revision 4 does not lead to what the cluster had: {words}");
        assert_eq!(message, expected);
        std::fs::write(&segments[2], &newest).expect("written");
    }

    let (private, public) = identity(&world.place, "identity");
    let mut sealed = Replay::of(&world, "sealed");
    sealed.identity = Some(private);
    let message = world.place.refused(&sealed.arguments(["--to-revision", "4"]), Reason::CopyUnusable).await;
    assert!(message.contains("is not encrypted, but an identity was given"), "{message}");
    world.place.set("recipients", json!([public]));
    let archiver = world.archiver();
    client.put("key-3", "value", None).await.expect("written");
    world.has_archived(5).await;
    signal(&archiver, Signal::TERM);
    world.place.ended(archiver).await;
    let message = world.place.refused(&replay.arguments(["--to-revision", "5"]), Reason::CopyUnusable).await;
    assert!(message.contains("it is encrypted: give the file with the identity of one of age1"), "{message}");

    let mut without = Replay::of(&world, "without");
    without.etcdutl = PathBuf::from("/does/not/exist");
    let message = world.place.refused(&without.arguments(["--to-revision", "4"]), Reason::OutputFailed).await;
    assert!(message.contains("cannot run /does/not/exist"), "{message}");
    for replay in [&replay, &sealed, &without] {
        replay.left_nothing();
    }
    world.place.done(&arguments).await;
}

#[tokio::test]
async fn authentication_that_the_copy_has_is_no_obstacle() {
    let cluster = Cluster::start_with(VERSION, 1, true).await;
    until("the member to serve", async || cluster.etcdctl(&["get", "x"]).is_some()).await;
    for arguments in [
        &["user", "add", "root", "--no-password"][..],
        &["user", "add", USER, "--no-password"],
        &["user", "grant-role", "root", "root"],
        &["user", "grant-role", USER, "root"],
        &["auth", "enable"],
        &["put", "before", "x"],
    ] {
        assert!(cluster.etcdctl(arguments).is_some(), "{arguments:?}");
    }
    let status = cluster.etcdctl(&["endpoint", "status", "--write-out=json"]).expect("it serves");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let id = status[0]["Status"]["header"]["cluster_id"].as_u64().expect("an ID");
    let mut place = Place::local();
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", format!("{id:x}"));
    place.take().await;
    let archiver = place.start(&ARCHIVE);
    for number in 0..5 {
        assert!(cluster.etcdctl(&["put", &format!("key-{number}"), "x"]).is_some());
    }
    let segments = place.objects(&format!("{id:x}")).join("chain");
    has_archived(&segments, 7).await;
    signal(&archiver, Signal::TERM);
    place.ended(archiver).await;
    let replay = Replay::new(&place, &cluster, "authenticated");
    place.done(&replay.arguments(["--to-revision", "7"])).await;
    let status = cluster.etcdutl_status(&replay.output);
    assert_eq!((&status["revision"], &status["totalKey"]), (&json!(7), &json!(6)));
}
