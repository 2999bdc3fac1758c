//! Two of three volumes are lost for good, and a user consents to continue with the third.

use std::time::{Duration, Instant};

use etcd_operator_core::names::condition;
use etcd_operator_core::recovery;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::access::Member;
use crate::inside;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, world};

const SIZE: u8 = 3;
const SURVIVOR: u8 = 1;
/// With two pods that are created anew, twice.
const LIMIT: Duration = Duration::from_secs(90);
const KEYS: usize = 50;

/// Their nodes are off, and users delete what was there.
pub async fn lose(stage: &Stage, ordinals: &[u8]) {
    let claims: Api<PersistentVolumeClaim> = stage.world.all(&stage.namespace);
    let pods: Api<Pod> = stage.world.all(&stage.namespace);
    for ordinal in ordinals {
        let claim = format!("data-{CLUSTER}-{ordinal}");
        claims.delete(&claim, &DeleteParams::default()).await.expect("it is there");
    }
    for ordinal in ordinals {
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&format!("{CLUSTER}-{ordinal}"), &now).await.expect("it is there");
    }
}

async fn write(stage: &Stage, ordinal: u8, prefix: &str) {
    let mut kv =
        Member::new(&stage.namespace, ordinal).client(&stage.recorder).await.expect("it serves").kv_client();
    for number in 0..KEYS {
        let key = format!("{prefix}-{number}");
        let begun = Instant::now();
        // A leader might have changed.
        while let Err(error) = kv.put(key.as_str(), key.as_str(), None).await {
            assert!(begun.elapsed() < LIMIT, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn count(stage: &Stage, ordinal: u8, prefix: &str) -> i64 {
    let mut kv =
        Member::new(&stage.namespace, ordinal).client(&stage.recorder).await.expect("it serves").kv_client();
    let options = etcd_client::GetOptions::new().with_prefix().with_count_only();
    kv.get(prefix, Some(options)).await.expect("it serves").count()
}

fn cluster(recorder: &Recorder) -> Value {
    recorder.object("EtcdCluster", CLUSTER).unwrap_or_default()
}

fn recovery_order(recorder: &Recorder) -> Option<Value> {
    let order = recorder.object("ConfigMap", &format!("{CLUSTER}-bootstrap"))?;
    serde_json::from_str(order["data"][recovery::KEY].as_str()?).ok()
}

fn is_offered(recorder: &Recorder) -> bool {
    let lost = recorder.condition(condition::QUORUM_LOST);
    let message = lost["message"].as_str().unwrap_or_default().to_owned();
    recovery_order(recorder).is_some() && lost["status"] == "True" && message.contains("acceptDataLoss")
}

async fn consent(stage: &Stage, survivor: &str) {
    let id = cluster(&stage.recorder)["status"]["clusterID"].clone();
    let spec = json!({"recovery": {"acceptDataLoss": {"clusterID": id, "survivor": survivor}}});
    stage.edit(&spec).await.expect("it is accepted");
}

fn incarnation(recorder: &Recorder) -> Option<String> {
    Some(cluster(recorder)["status"]["incarnation"].as_str()?.to_owned())
}

async fn recovers(version: &'static str) {
    let stage = Stage::start(world()).await;
    stage.create(json!({"size": SIZE, "version": version})).await;
    write(&stage, SURVIVOR, "before").await;
    let id = cluster(&stage.recorder)["status"]["clusterID"].clone();
    let others: Vec<u8> = (0..SIZE).filter(|it| *it != SURVIVOR).collect();
    lose(&stage, &others).await;
    stage.until_within(LIMIT, "the loss is reported, with the consent to give", is_offered).await;
    let offer = stage.recorder.condition(condition::QUORUM_LOST)["message"].clone();
    println!("{offer}");
    assert!(offer.as_str().is_some_and(|it| it.contains(&format!("{CLUSTER}-{SURVIVOR} has the most data"))));

    let begun = Instant::now();
    consent(&stage, "Auto").await;
    stage
        .until_within(LIMIT, "recovered", |it| Until::Ready(SIZE).holds(it) && incarnation(it).is_some())
        .await;
    println!("{version}: three voters {:.1} s after the consent", begun.elapsed().as_secs_f64());
    for ordinal in 0..SIZE {
        assert_eq!(count(&stage, ordinal, "before").await, KEYS as i64, "{ordinal}");
    }
    assert_eq!(cluster(&stage.recorder)["status"]["clusterID"], id);
    assert_eq!(recovery_order(&stage.recorder), None);
    write(&stage, SURVIVOR, "after").await;
    // A read shows that this member knows them to be committed. What it did not would be lost.
    assert_eq!(count(&stage, 0, "after").await, KEYS as i64);

    // The consent is still there, and does nothing for another loss.
    let (first, again) = (incarnation(&stage.recorder), [SURVIVOR, 2]);
    lose(&stage, &again).await;
    let refused = |it: &Recorder| {
        let message = it.condition(condition::STALLED)["message"].as_str().unwrap_or_default().to_owned();
        message.contains("acceptDataLoss has no effect")
    };
    stage.until_within(LIMIT, "the used consent is refused", refused).await;
    assert_eq!(recovery_order(&stage.recorder), None);
    stage.edit(&json!({"recovery": null})).await.expect("it is accepted");
    stage.until_within(LIMIT, "the loss is reported again", is_offered).await;
    consent(&stage, &format!("{CLUSTER}-0")).await;
    let is_another = |it: &Recorder| Until::Ready(SIZE).holds(it) && incarnation(it) != first;
    stage.until_within(LIMIT, "recovered again", is_another).await;
    for prefix in ["before", "after"] {
        assert_eq!(count(&stage, 2, prefix).await, KEYS as i64, "{prefix}");
    }
    stage.end().await;
}

pub fn with_consent() {
    world().runtime.block_on(recovers(inside::TWO_LEARNERS));
}

pub fn of_other_releases() {
    world().runtime.block_on(async {
        recovers(inside::ONE_LEARNER).await;
        recovers(inside::NEWEST).await;
    });
}
