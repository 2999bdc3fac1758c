//! The continuous archive has every revision, whatever is killed; and what it cannot have, it reports.

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_operator_core::backup::progress::Progress;
use etcd_operator_core::backup::report::{Done, Outcome, Reason};
use rustix::process::Signal;
use serde_json::json;
use testbed::build::STANDARD_ETCD;
use testbed::store::{Options, S3};
use tokio::process::Child;

use crate::cluster::{Cluster, VERSION, until};
use crate::faults::signal;
use crate::ledger::{self, Archived, Random, archived, history};
use crate::memory::{LIMIT_KIB, peak_kib};
use crate::program::{Ended, Place};

pub const ARCHIVE: [&str; 3] = ["archive", "--flush-interval-seconds", "1"];

/// A cluster, a store, and a full copy to begin with.
pub struct World {
    pub cluster: Cluster,
    id: String,
    store: S3,
    pub place: Place,
}

impl World {
    pub async fn new(version: &str, size: u8) -> Self {
        let cluster = Cluster::start(version, size).await;
        let store = S3::start(Options::default()).await.expect("a store");
        let place = Place::s3(&store.endpoint());
        let id = cluster.ids().await.0;
        let mut world = Self { cluster, id, store, place };
        world.use_all(size);
        world.place.take().await;
        world
    }

    fn use_all(&mut self, size: u8) {
        self.place.set("etcd", self.cluster.inputs(0..size));
        self.place.set("clusterId", self.id.as_str());
    }

    pub fn archiver(&self) -> Child {
        self.place.start(&ARCHIVE)
    }

    fn archived(&self) -> Archived {
        archived(&self.chain(), &self.id)
    }

    /// How many copies and segments a run deletes.
    async fn pruned(&self) -> (usize, usize) {
        let Done::Prune { segments_deleted, deleted_count, .. } = self.place.done(&["prune"]).await else {
            panic!("not pruned")
        };
        (deleted_count, segments_deleted)
    }

    pub fn chain(&self) -> PathBuf {
        self.store.bucket().join("prod").join(&self.id).join("chain")
    }

    /// Until everything up to a revision is stored.
    pub async fn has_archived(&self, revision: i64) {
        has_archived(&self.chain(), revision).await;
    }

    /// Without a result, because it was killed.
    pub async fn ends(&self, mut archiver: Child) {
        archiver.wait().await.expect("it ends");
    }

    /// Until everything that the cluster has is stored.
    async fn caught_up(&self, ordinal: u8) {
        let mut client = self.cluster.client(ordinal).await;
        let last = client.get("x", None).await.expect("it serves").header().expect("one").revision();
        self.has_archived(last).await;
    }

    /// Ends it with SIGTERM, and compares the archive with etcd.
    async fn is_complete(&self, archiver: Child, ordinal: u8) -> Archived {
        self.caught_up(ordinal).await;
        signal(&archiver, Signal::TERM);
        let ended = self.place.ended(archiver).await;
        let archived = self.is_equal(ordinal).await;
        let last = archived.segments.last().expect("there are some").last;
        assert!(
            matches!(done(&ended), Done::Archive { archived, .. } if *archived == last),
            "{}",
            ended.said
        );
        archived
    }

    /// Compares the archive with etcd.
    async fn is_equal(&self, ordinal: u8) -> Archived {
        let archived = self.archived();
        let expected = history(&self.cluster, ordinal).await;
        assert_eq!(archived.revisions.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (revision, changes) in &expected {
            assert_eq!(archived.revisions[revision], *changes, "revision {revision}");
        }
        let received: Vec<_> = archived.received.values().collect();
        assert!(received.is_sorted(), "times go back");
        archived
    }
}

/// Until the segments of a folder have everything up to a revision.
pub async fn has_archived(segments: &Path, revision: i64) {
    let lasts = || {
        let entries = std::fs::read_dir(segments).into_iter().flatten().flatten();
        entries.filter_map(|it| {
            let object = std::fs::read(it.path()).ok()?;
            let head = object.split(|byte| *byte == b'\n').next()?;
            serde_json::from_slice::<serde_json::Value>(head).ok()?["last"].as_i64()
        })
    };
    until("the archive to have everything", async || lasts().max() >= Some(revision)).await;
}

fn done(ended: &Ended) -> &Done {
    let Outcome::Succeeded(done) = &ended.report.outcome else { panic!("{}", ended.said) };
    done
}

async fn kill(mut archiver: Child) {
    signal(&archiver, Signal::KILL);
    archiver.wait().await.expect("it ends");
}

#[tokio::test]
async fn every_revision_is_archived_although_the_archiver_is_killed_again_and_again() {
    for version in STANDARD_ETCD {
        let world = World::new(version, 1).await;
        let mut client = world.cluster.client(0).await;
        let mut random = Random(7);
        ledger::grant(&mut client, 77, 1234).await;
        let with = etcd_client::PutOptions::new().with_lease(77);
        client.put("leased", "x", Some(with)).await.expect("written");
        for _ in 0..6 {
            let archiver = world.archiver();
            ledger::write(&mut client, &mut random, 150).await;
            tokio::time::sleep(Duration::from_millis(random.below(1_500))).await;
            kill(archiver).await;
        }
        let archiver = world.archiver();
        ledger::write_extremes(&mut client).await;
        let archived = world.is_complete(archiver, 0).await;
        assert_eq!(archived.leases.get(&77), Some(&1234), "the lifetime of a lease is archived");
        println!("{version}: {} revisions, {} segments", archived.revisions.len(), archived.segments.len());
    }
}

#[tokio::test]
async fn an_archive_is_current_although_nothing_is_written_after_the_copy() {
    for version in STANDARD_ETCD {
        let world = World::new(version, 1).await;
        let file = world.place.file("status.json", "");
        let archiver =
            world.place.start(&[&ARCHIVE[..], &["--status", &file.display().to_string()]].concat());
        until("everything to be confirmed", async || {
            let status = std::fs::read(&file).unwrap_or_default();
            serde_json::from_slice::<Progress>(&status).is_ok_and(|it| it.confirmed.is_some())
        })
        .await;
        kill(archiver).await;
    }
}

#[tokio::test]
async fn members_that_are_lost_do_not_end_the_archive() {
    let mut world = World::new(VERSION, 3).await;
    let archiver = world.archiver();
    let mut random = Random(3);
    for ordinal in [world.cluster.leader().await, 0, 1, 2] {
        let writes_to = (ordinal + 1) % 3;
        let mut client = world.cluster.client(writes_to).await;
        ledger::write(&mut client, &mut random, 40).await;
        world.cluster.kill(ordinal);
        ledger::write(&mut client, &mut random, 40).await;
        world.cluster.restart(ordinal).await;
    }
    world.is_complete(archiver, 0).await;
}

#[tokio::test]
async fn compaction_that_is_faster_is_a_gap_until_the_next_full_copy() {
    let mut world = World::new(VERSION, 1).await;
    let mut client = world.cluster.client(0).await;
    let mut random = Random(5);
    let archiver = world.archiver();
    ledger::write(&mut client, &mut random, 20).await;
    world.caught_up(0).await;
    kill(archiver).await;
    let before = world.archived();
    let last = before.segments.last().expect("there are some").last;
    ledger::write(&mut client, &mut random, 50).await;
    let now = client.get("x", None).await.expect("it serves").header().expect("one").revision();

    // What comes next is still there, but not what would prove that the history is the same.
    client.compact(last + 1, None).await.expect("compacted");
    let archiver = world.archiver();
    world.caught_up(0).await;
    kill(archiver).await;

    ledger::write(&mut client, &mut random, 50).await;
    let end = client.get("x", None).await.expect("it serves").header().expect("one").revision();
    client.compact(end, None).await.expect("compacted");
    let message = world.place.refused(&ARCHIVE, Reason::ChainBroken).await;
    let gap = format!(
        "the archive is not continuous: etcd has compacted revisions {} to {} before they were archived: take a full copy, \
         after which the archiver begins a new chain",
        now + 1,
        end - 1
    );
    assert_eq!(message, gap);

    world.place.take().await;
    let archiver = world.archiver();
    ledger::write(&mut client, &mut random, 20).await;
    world.caught_up(0).await;
    kill(archiver).await;
    let after = world.archived();
    let chain = after.segments.last().expect("there are some");
    assert_eq!(chain.chain_first, end + 1, "a new chain begins after the copy");
    assert!(!after.revisions.contains_key(&(now + 1)), "nothing covers the gap");

    // A manifest that nothing can read might be that of a copy which needs everything.
    world.place.set("retention", json!({"maxCopies": 1}));
    let unreadable = world.chain().with_file_name("copies").join("20200101T000000Z-00000000000000ff.json");
    std::fs::write(&unreadable, "{}").expect("a file");
    assert_eq!(world.pruned().await, (1, 0));
    std::fs::remove_file(&unreadable).expect("removed");
    // The copy that the first chain begins with is gone, and so is that chain now.
    let (copies, segments) = world.pruned().await;
    assert!(copies == 0 && segments > 0, "{segments}");
    let left = world.archived();
    assert_eq!(left.segments.first().map(|it| it.first), Some(end + 1));
    assert_eq!(left.segments.last(), after.segments.last());
}

#[tokio::test]
async fn a_store_that_is_lost_for_a_while_leaves_no_gap() {
    let mut world = World::new(VERSION, 1).await;
    let mut client = world.cluster.client(0).await;
    let mut random = Random(11);
    let archiver = world.archiver();
    ledger::write(&mut client, &mut random, 50).await;
    world.caught_up(0).await;
    world.store.kill();
    // More than fits into the memory of the archiver.
    world.cluster.fill(40).await;
    ledger::write(&mut client, &mut random, 50).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.store.restart(Options::default()).await.expect("it starts again");
    ledger::write(&mut client, &mut random, 50).await;
    let archived = world.is_complete(archiver, 0).await;
    assert!(
        archived.segments.iter().any(|it| it.times.exact_since.is_none() && it.first > 20),
        "what waited in etcd has no exact times"
    );
}

#[tokio::test]
async fn two_archivers_store_one_chain() {
    let world = World::new(VERSION, 1).await;
    let mut other = Place::s3(&world.store.endpoint());
    other.set("etcd", world.cluster.inputs([0]));
    other.set("clusterId", world.id.as_str());
    let mut client = world.cluster.client(0).await;
    let mut random = Random(13);
    let (first, second) = (world.archiver(), other.start(&ARCHIVE));
    for _ in 0..8 {
        ledger::write(&mut client, &mut random, 60).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    world.caught_up(0).await;
    for (archiver, place) in [(first, &world.place), (second, &other)] {
        signal(&archiver, Signal::TERM);
        let ended = place.ended(archiver).await;
        assert!(matches!(done(&ended), Done::Archive { .. }));
    }
    let archived = world.is_equal(0).await;
    assert!(archived.segments.iter().skip(1).all(|it| it.chain_first == 2), "it is one chain");
}

#[tokio::test]
async fn a_cluster_whose_data_was_replaced_does_not_continue_its_chain() {
    let mut world = World::new(VERSION, 1).await;
    let mut client = world.cluster.client(0).await;
    for number in 0..5 {
        client.put(format!("key-{number}"), "x", None).await.expect("written");
    }
    let archiver = world.archiver();
    world.is_complete(archiver, 0).await;
    world.cluster.kill(0);
    world.cluster.restart_empty(0).await;
    let message = world.place.refused(&ARCHIVE, Reason::ChainBroken).await;
    assert!(message.contains("is at revision 1, and the archive has revision 6"), "{message}");
    assert!(message.ends_with("give its backups another `path` and take a full copy there"), "{message}");
    let mut client = world.cluster.client(0).await;
    for number in 0..9 {
        client.put(format!("other-{number}"), "x", None).await.expect("written");
    }
    let refused = world.place.refused(&ARCHIVE, Reason::ChainBroken);
    let message = tokio::time::timeout(Duration::from_secs(60), refused).await.expect("it ends");
    assert!(message.contains("revision 6 of etcd is not the one that the archive has"), "{message}");
}

#[tokio::test]
async fn without_a_copy_there_is_nothing_to_continue() {
    let cluster = Cluster::start(VERSION, 1).await;
    let mut place = Place::local();
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", cluster.ids().await.0);
    let message = place.refused(&ARCHIVE, Reason::CopyNeeded).await;
    assert_eq!(
        message,
        "the archive cannot begin: the store has no good copy of this cluster to begin with: take a full copy and start the \
         archiver again"
    );
}

#[tokio::test]
async fn an_archiver_needs_no_more_memory_for_more_data() {
    let mut world = World::new(VERSION, 1).await;
    let (_, public) = crate::program::identity(&world.place, "identity");
    world.place.set("compression", "Zstd");
    world.place.set("recipients", json!([public]));
    let archiver = world.archiver();
    world.cluster.fill(128).await;
    let mut client = world.cluster.client(0).await;
    ledger::write_extremes(&mut client).await;
    let last = client.get("x", None).await.expect("it serves").header().expect("one").revision();
    let process = archiver.id().expect("it runs");
    world.has_archived(last).await;
    let peak = peak_kib(process).expect("it runs");
    signal(&archiver, Signal::TERM);
    world.place.ended(archiver).await;
    println!("archive: {} MiB of memory", peak >> 10);
    assert!((1..LIMIT_KIB).contains(&peak), "{peak} KiB");
}
