//! A database that reaches its quota.

use std::time::{Duration, Instant};

use etcd_client::Client;
use serde_json::json;

use crate::access::Member;
use crate::inside;
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::world;

const SIZE: u8 = 3;
const QUOTA: i64 = 16 << 20;
const FULL: &str = "database space exceeded";
/// A settled cluster is observed every half minute, and nothing reports the alarm before.
const LIMIT: Duration = Duration::from_secs(120);

async fn client(stage: &Stage, ordinal: u8) -> Client {
    Member::new(&stage.namespace, ordinal).client(&stage.recorder).await.expect("it serves")
}

/// One key, and so many revisions of it that etcd takes no more.
async fn fill(stage: &Stage) {
    let mut kv = client(stage, 0).await.kv_client();
    for _ in 0..200 {
        // Under load, a response can be late.
        if let Err(error) = kv.put("key", vec![b'x'; 1 << 20], None).await
            && error.to_string().contains(FULL)
        {
            return;
        }
    }
    panic!("it never fills");
}

pub fn reclaimed() {
    world().runtime.block_on(async {
        let stage = Stage::start(world()).await;
        let options = json!({"quotaBackendBytes": QUOTA});
        stage.create(json!({"size": SIZE, "version": inside::TWO_LEARNERS, "options": options})).await;
        fill(&stage).await;
        let mut kv = client(&stage, 0).await.kv_client();
        let begun = Instant::now();
        while let Err(error) = kv.put("key", "value", None).await {
            assert!(begun.elapsed() < LIMIT, "{error}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("writes are back after {:.1} s", begun.elapsed().as_secs_f64());
        for ordinal in 0..SIZE {
            let status =
                client(&stage, ordinal).await.maintenance_client().status().await.expect("it serves");
            assert!(status.db_size() < QUOTA / 2 && status.errors().is_empty(), "{ordinal}: {status:?}");
        }
        stage.until("ready", |it| Until::Ready(SIZE).holds(it)).await;
        stage.end().await;
    });
}

/// Of all members, while a client writes.
pub fn tidied() {
    world().runtime.block_on(async {
        let mut stage = Stage::start(world()).await;
        let maintenance = json!({"defragmentation": {"minSizeBytes": 8 << 20}});
        stage
            .create(json!({"size": SIZE, "version": inside::TWO_LEARNERS, "maintenance": maintenance}))
            .await;
        let mut kv = client(&stage, 0).await.kv_client();
        let mut revision = 0;
        for _ in 0..12 {
            let written = kv.put("key", vec![b'x'; 1 << 20], None).await.expect("it serves");
            revision = written.header().expect("it has one").revision();
        }
        stage.write();
        kv.put("key", "value", None).await.expect("it serves");
        kv.compact(revision, None).await.expect("it is not compacted yet");
        let begun = Instant::now();
        for ordinal in 0..SIZE {
            loop {
                let mut maintenance = client(&stage, ordinal).await.maintenance_client();
                let size = maintenance.status().await.map_or(i64::MAX, |it| it.db_size());
                if size < 8 << 20 {
                    break;
                }
                assert!(begun.elapsed() < LIMIT, "member {ordinal} has {size}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        println!("all members are defragmented after {:.1} s", begun.elapsed().as_secs_f64());
        stage.until("ready", |it| Until::Ready(SIZE).holds(it)).await;
        stage.end().await;
    });
}
