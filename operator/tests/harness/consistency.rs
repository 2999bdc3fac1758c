//! A member whose disk returns other bytes than were written.

use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, GetOptions};
use etcd_operator_core::names::condition;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::{Value, json};
use testbed::fault::alter_value;

use crate::access::Member;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, world};

const SIZE: u8 = 3;
/// The stage writes others.
const COMPARED_KEY: &str = "compared";
const RIGHT: &[u8] = b"the value that all members have";
const WRONG: &[u8] = b"the value that one member reads";
/// etcd writes a batch into its file after a tenth of a second.
const UNTIL_WRITTEN: Duration = Duration::from_secs(1);
/// Two comparisons and a replacement.
const LIMIT: Duration = Duration::from_secs(180);

async fn client(stage: &Stage, ordinal: u8) -> Client {
    Member::new(&stage.namespace, ordinal).client(&stage.recorder).await.expect("it serves")
}

fn is_consistent(stage: &Stage, value: &str) -> bool {
    stage.recorder.condition(condition::DATA_CONSISTENT)["status"] == value
}

async fn rot(stage: &Stage, ordinal: u8) {
    let claims: Api<PersistentVolumeClaim> = stage.world.all(&stage.namespace);
    let claim = claims.get(&format!("data-{CLUSTER}-{ordinal}")).await.expect("it is there");
    alter_value(&stage.world.stand_in.volume(&claim), RIGHT, WRONG).expect("the value is written");
}

/// What each member reads from its own file.
async fn values(stage: &Stage) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for ordinal in 0..SIZE {
        let own = Some(GetOptions::new().with_serializable());
        let read = client(stage, ordinal).await.kv_client().get(COMPARED_KEY, own).await.expect("it serves");
        all.push(read.kvs().first().map(|it| it.value().to_vec()).unwrap_or_default());
    }
    all
}

fn member_id(stage: &Stage, ordinal: u8) -> Value {
    let cluster = stage.recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
    let name = format!("{CLUSTER}-{ordinal}");
    let members = cluster["status"]["members"].as_array().cloned().unwrap_or_default();
    members.into_iter().find(|it| it["name"] == *name).map(|it| it["id"].clone()).unwrap_or_default()
}

async fn prepared(version: &str) -> Stage {
    let stage = Stage::start(world()).await;
    let maintenance = json!({"consistencyCheck": {"intervalSeconds": 10}});
    stage.create(json!({"size": SIZE, "version": version, "maintenance": maintenance})).await;
    // The second write replaces what members have in memory, so that they read the first one from the file.
    for key in [COMPARED_KEY, "another"] {
        client(&stage, 0).await.kv_client().put(key, RIGHT, None).await.expect("it serves");
        tokio::time::sleep(UNTIL_WRITTEN).await;
    }
    stage.until_within(LIMIT, "compared", |_| is_consistent(&stage, "True")).await;
    stage
}

/// Clients write meanwhile.
pub fn replaced(version: &'static str) {
    world().runtime.block_on(async {
        let mut stage = prepared(version).await;
        let before = member_id(&stage, 1);
        rot(&stage, 1).await;
        assert_eq!(values(&stage).await, [RIGHT, WRONG, RIGHT]);
        let begun = Instant::now();
        stage.write();
        stage.until_within(LIMIT, "reported", |_| is_consistent(&stage, "False")).await;
        println!("reported after {:.1} s", begun.elapsed().as_secs_f64());
        let is_replaced = |recorder: &Recorder| {
            is_consistent(&stage, "True")
                && member_id(&stage, 1) != before
                && Until::Ready(SIZE).holds(recorder)
        };
        stage.until_within(LIMIT, "replaced", is_replaced).await;
        println!("replaced and compared after {:.1} s", begun.elapsed().as_secs_f64());
        assert_eq!(values(&stage).await, [RIGHT, RIGHT, RIGHT]);
        stage.end().await;
    });
}

/// etcd reports it, so that nobody can write. The member that differs leads.
pub fn disarmed(version: &'static str) {
    world().runtime.block_on(async {
        let stage = prepared(version).await;
        let cluster = stage.recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
        let leader = (0..SIZE).find(|it| member_id(&stage, *it) == cluster["status"]["leaderID"]);
        let leader = leader.expect("one leads");
        rot(&stage, leader).await;
        let id = member_id(&stage, leader);
        let id = u64::from_str_radix(id.as_str().expect("it has one"), 16).expect("it is an ID");
        let mut of_member = AlarmOptions::new();
        of_member.with_member(id);
        let mut maintenance = client(&stage, 0).await.maintenance_client();
        let raised = maintenance.alarm(AlarmAction::Activate, AlarmType::Corrupt, Some(of_member)).await;
        raised.expect("it is raised");
        let begun = Instant::now();
        let mut kv = client(&stage, (leader + 1) % SIZE).await.kv_client();
        while let Err(error) = kv.put("other", "value", None).await {
            assert!(begun.elapsed() < LIMIT, "{error}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("writes are back after {:.1} s", begun.elapsed().as_secs_f64());
        let is_over =
            |recorder: &Recorder| is_consistent(&stage, "True") && Until::Ready(SIZE).holds(recorder);
        stage.until_within(LIMIT, "replaced", is_over).await;
        assert_eq!(values(&stage).await, [RIGHT, RIGHT, RIGHT]);
        stage.end().await;
    });
}
