//! Stores and members that fail, and runs that are killed: there is no copy then, and the next run works.

use std::time::{Duration, Instant};

use etcd_operator_core::backup::report::{Done, Reason};
use rustix::process::{Pid, Signal, kill_process};
use testbed::store::{Options, S3};

use crate::cluster::{Cluster, VERSION};
use crate::program::Place;
use crate::relay::Relay;

/// Eight parts, of which some arrive, and not all.
const MEBIBYTES: usize = 40;
const HOLD_AFTER: usize = 20 << 20;
const LIMIT: Duration = Duration::from_secs(20);

struct Held {
    cluster: Cluster,
    store: S3,
    relay: Relay,
    place: Place,
}

/// A run that is in the middle of its upload, and stays there.
async fn held() -> (Held, tokio::process::Child) {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(MEBIBYTES).await;
    let store = S3::start(Options::default()).await.expect("a store");
    let relay = Relay::start(store.address(), HOLD_AFTER).await;
    let mut place = Place::s3(&format!("http://{}", relay.address));
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", cluster.ids().await.0);
    let run = place.start(&["take"]);
    relay.holds().await;
    (Held { cluster, store, relay, place }, run)
}

impl Held {
    /// No copy is there, and the next run takes one.
    async fn recovers(mut self) {
        self.place.set_store("endpoint", self.store.endpoint());
        assert_eq!(self.place.list().await, []);
        let copy = self.place.take().await;
        assert_eq!(self.place.list().await, [copy]);
        drop(self.relay);
        drop(self.cluster);
    }

    /// The store removes what it has received of a part when it notices that nothing follows.
    async fn has_nothing_unfinished(&self) {
        let began = Instant::now();
        while self.unfinished() > 0 {
            assert!(began.elapsed() < LIMIT, "{} parts stay", self.unfinished());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Parts of uploads that have not ended.
    fn unfinished(&self) -> usize {
        fn files(directory: &std::path::Path) -> usize {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|it| if it.path().is_dir() { files(&it.path()) } else { 1 }).sum()
        }
        files(&self.store.bucket().join(".sgwtmp/multipart"))
    }
}

pub fn signal(run: &tokio::process::Child, signal: Signal) {
    let id = i32::try_from(run.id().expect("it runs")).expect("a process ID");
    kill_process(Pid::from_raw(id).expect("not zero"), signal).expect("it is ours");
}

#[tokio::test]
async fn a_run_that_is_terminated_removes_its_upload() {
    let (held, run) = held().await;
    assert!(held.unfinished() > 0, "the upload has begun");
    signal(&run, Signal::TERM);
    let message = held.place.ended(run).await.refused(Reason::Interrupted);
    assert!(message.contains("no copy was stored"), "{message}");
    held.has_nothing_unfinished().await;
    held.recovers().await;
}

#[tokio::test]
async fn a_run_that_is_killed_leaves_no_copy() {
    let (held, mut run) = held().await;
    signal(&run, Signal::KILL);
    run.wait().await.expect("it ends");
    held.recovers().await;
}

#[tokio::test]
async fn on_a_volume_a_run_that_is_killed_leaves_a_file_that_is_no_copy() {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(MEBIBYTES).await;
    let id = cluster.ids().await.0;
    let mut place = Place::local();
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", id.as_str());
    let data = place.objects(&id).join("data");
    let files = || -> Vec<_> {
        let entries = std::fs::read_dir(&data).into_iter().flatten().flatten();
        entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect()
    };
    let (began, mut run) = (Instant::now(), place.start(&["take"]));
    while files().is_empty() {
        assert!(began.elapsed() < LIMIT, "nothing is written");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    signal(&run, Signal::KILL);
    run.wait().await.expect("it ends");
    let left = files();
    assert!(left.len() == 1 && left[0].contains(".db#"), "{left:?}");
    assert_eq!(place.list().await, []);
    let copy = place.take().await;
    assert_eq!(place.list().await, [copy]);
    place.set("retention", serde_json::json!({"maxCopies": 1}));
    let Done::Prune { without_manifest, .. } = place.done(&["prune"]).await else { panic!("not pruned") };
    assert_eq!(without_manifest, 0, "the store's client does not list it");
    assert!(files().contains(&left[0]));
}

#[tokio::test]
async fn a_store_that_is_lost_in_the_middle_ends_the_run() {
    let (mut held, run) = held().await;
    held.store.kill();
    held.relay = Relay::start(held.store.address(), usize::MAX).await;
    let message = held.place.ended(run).await.refused(Reason::StoreUnreachable);
    assert!(message.starts_with("cannot upload a part of prod/"), "{message}");
    held.store.restart(Options::default()).await.expect("it starts again");
    held.recovers().await;
}

#[tokio::test]
async fn a_member_that_is_lost_in_the_middle_ends_the_run() {
    let (mut held, run) = held().await;
    held.cluster.kill(0);
    let message = held.place.ended(run).await.refused(Reason::EtcdUnavailable);
    assert!(message.starts_with("cannot receive the snapshot: http://127."), "{message}");
    held.has_nothing_unfinished().await;
    held.place.set_store("endpoint", held.store.endpoint());
    assert_eq!(held.place.list().await, []);
}

#[tokio::test]
async fn a_store_that_refuses_is_reported_in_its_own_words() {
    let mut store = S3::start(Options::default()).await.expect("a store");
    let mut place = Place::s3(&store.endpoint());
    place.set_environment("AWS_SECRET_ACCESS_KEY", "wrong");
    let message = place.refused(&["probe"], Reason::StoreDenied).await;
    assert!(message.contains("the store responds SignatureDoesNotMatch: "), "{message}");
    assert!(
        message.ends_with("check the credentials and their rights on the bucket or directory"),
        "{message}"
    );
    place.set_environment("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY);

    place.set_store("bucket", "other");
    let message = place.refused(&["probe"], Reason::StoreRejected).await;
    assert!(message.contains("the store responds NoSuchBucket: "), "{message}");
    place.set_store("bucket", S3::BUCKET);
    place.done(&["probe"]).await;
    assert_eq!(std::fs::read_dir(store.bucket().join("prod")).map_or(0, Iterator::count), 0, "nothing stays");

    store.kill();
    let message = place.refused(&["probe"], Reason::StoreUnreachable).await;
    assert!(message.contains("check the endpoint, the network"), "{message}");
    store.restart(Options { read_only: true, ..Options::default() }).await.expect("it starts again");
    let message = place.refused(&["probe"], Reason::StoreDenied).await;
    assert!(message.contains("the store responds AccessDenied: "), "{message}");
}

#[tokio::test]
async fn a_response_that_is_lost_is_no_failure() {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(6).await;
    let store = S3::start(Options::default()).await.expect("a store");
    // What begins the upload, sends a part, completes the upload, and writes the manifest.
    let requests =
        [("POST ", "?uploads"), ("PUT ", "partNumber=1"), ("POST ", "uploadId="), ("PUT ", "/copies/")];
    for (run, (method, word)) in requests.into_iter().enumerate() {
        let relay = Relay::losing(store.address(), method, word).await;
        let mut place = Place::s3(&format!("http://{}", relay.address));
        place.set_store("path", format!("lost-{run}"));
        place.set("etcd", cluster.inputs([0]));
        place.set("clusterId", cluster.ids().await.0);
        let copy = place.take().await;
        assert!(relay.has_lost(), "{method}{word}: nothing was lost");
        assert_eq!(place.list().await, std::slice::from_ref(&copy));
        place.done(&["verify", copy.name.as_str()]).await;
    }
}

#[tokio::test]
async fn a_store_without_room_ends_the_run() {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(MEBIBYTES).await;
    let room_bytes = Some(16 << 20);
    let store = S3::start(Options { room_bytes, ..Options::default() }).await.expect("a store");
    let mut place = Place::s3(&store.endpoint());
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", cluster.ids().await.0);
    place.done(&["probe"]).await;
    let message = place.refused(&["take"], Reason::StoreRejected).await;
    assert!(message.contains("No space left on device: check that the bucket"), "{message}");
    assert_eq!(place.list().await, []);
    // The parts are gone, so there is room again.
    place.done(&["probe"]).await;
}

#[tokio::test]
async fn a_directory_that_does_not_exist_is_reported() {
    let mut place = Place::local();
    place.set_store("directory", "/does/not/exist");
    let message = place.refused(&["probe"], Reason::InvalidConfiguration).await;
    assert!(message.contains("cannot open the store file:///does/not/exist: "), "{message}");
}

#[tokio::test]
async fn an_endpoint_without_a_member_is_named() {
    let mut place = Place::local();
    place.set("etcd", serde_json::json!({"endpoints": ["http://127.0.0.1:1"]}));
    let message = place.refused(&["take"], Reason::EtcdUnavailable).await;
    assert!(message.contains("no healthy voter to take a snapshot from: http://127.0.0.1:1: "), "{message}");
    assert!(message.to_lowercase().contains("connection refused"), "{message}");
}
