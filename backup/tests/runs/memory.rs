//! The memory of a run does not depend on the size of the database.

use std::time::{Duration, Instant};

use serde_json::json;
use testbed::store::{Options, S3};
use tokio::process::Child;

use crate::cluster::{Cluster, VERSION};
use crate::program::{Place, identity, text};

/// Twice the limit: what keeps the database in memory exceeds it.
const MEBIBYTES: usize = 128;
/// What etcd's own default limits a database to.
const LARGE_MEBIBYTES: usize = 2000;
pub const LIMIT_KIB: u64 = 64 << 10;

/// The most memory that the process had so far.
pub fn peak_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

async fn peak_of(run: &mut Child) -> u64 {
    let (process, mut peak) = (run.id().expect("it runs"), 0);
    while run.try_wait().expect("it is ours").is_none() {
        peak = peak.max(peak_kib(process).unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    peak
}

/// Takes copies and gets the last one back; each run stays below the limit.
async fn stays_below_the_limit(mut place: Place, cluster: &Cluster, mebibytes: usize) {
    let (private, public) = identity(&place, "identity");
    place.set("etcd", cluster.inputs([0]));
    place.set("clusterId", cluster.ids().await.0);
    let output = place.directory.join("snapshot.db");
    let fetch = ["fetch", "--output", text(&output), "--identity", text(&private)];
    for (arguments, compression, recipients) in [
        (&["take"][..], "None", json!([])),
        (&["take"], "Zstd", json!([public])),
        (&fetch, "None", json!([])),
    ] {
        place.set("compression", compression);
        place.set("recipients", recipients);
        let (began, mut run) = (Instant::now(), place.start(arguments));
        let peak = peak_of(&mut run).await;
        let (verb, seconds) = (arguments[0], began.elapsed().as_secs());
        assert_eq!(place.ended(run).await.code, 0);
        println!("{verb}: {} MiB of memory for a database of {mebibytes} MiB, {seconds} s", peak >> 10);
        assert!((1..LIMIT_KIB).contains(&peak), "{verb}: {peak} KiB");
    }
    assert_eq!(cluster.etcdutl_status(&output)["totalKey"], mebibytes);
}

#[tokio::test]
async fn a_large_database_needs_no_more_memory_than_a_small_one() {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(MEBIBYTES).await;
    let store = S3::start(Options::default()).await.expect("a store");
    stays_below_the_limit(Place::s3(&store.endpoint()), &cluster, MEBIBYTES).await;
}

#[tokio::test]
#[ignore = "takes minutes and 12 GB of disk"]
async fn a_database_of_2_gb_needs_no_more_memory_than_a_small_one() {
    let cluster = Cluster::start(VERSION, 1).await;
    cluster.fill(LARGE_MEBIBYTES).await;
    let store = S3::start(Options::default()).await.expect("a store");
    stays_below_the_limit(Place::s3(&store.endpoint()), &cluster, LARGE_MEBIBYTES).await;
    drop(store);
    stays_below_the_limit(Place::local(), &cluster, LARGE_MEBIBYTES).await;
}
