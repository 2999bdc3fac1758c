//! An operator takes over a cluster of the previous version, which recorded no forms and knew no TLS: it restarts nothing,
//! records what members run, and leaves connections in plain text. The next edit rolls out.
//!
//! `core/tests/previous/stateful-set.json` is the StatefulSet as that version wrote it, and all pods are created from it.

use std::sync::Arc;

use etcd_operator_core::agent::Protocol;
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::form::KEY;
use etcd_operator_core::names::{AGENT_ANNOTATION, FORM_ANNOTATION, RENDERING_ANNOTATION, condition, reason};
use etcd_operator_core::tls::{ClientPort, PeerPort, Transport};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::inside;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::steps::Until;
use crate::switching;
use crate::world::{CLUSTER, world};

const SIZE: u8 = 3;
const APPLY_ANNOTATION: &str = "etcd.etcd.io/apply";
/// With placeholders for what differs between two clusters.
const PREVIOUS: &str = include_str!("../../../core/tests/previous/stateful-set.json");
/// The tag of the agent's image in it.
const PREVIOUS_AGENT: &str = "previous";

pub fn from_the_previous_version() {
    world().runtime.block_on(run());
}

async fn run() {
    let mut stage = Stage::start(world()).await;
    let plain = json!({"tls": {"enabled": false}});
    let spec = json!({"size": SIZE, "version": inside::TWO_LEARNERS, "security": plain});
    let created = stage.create(spec).await;
    stage.end_operator().await;
    leave_as_the_previous_version_did(&stage, &created).await;

    let before = stage.recorder.members();
    stage.recorder.begin();
    stage.start_operator();
    stage.until("taken over", |it| Until::Ready(SIZE).holds(it) && is_recorded(it)).await;
    let recorder = Arc::clone(&stage.recorder);
    assert_eq!(recorder.members(), before, "no pod restarts");
    // Statuses and templates do not count. No Secret is among them. Pods get the annotations by which Prometheus finds them.
    let changed: Vec<_> = recorder.changes().into_keys().collect();
    assert_eq!(changed, ["ConfigMap kv-form", "Pod kv-0", "Pod kv-1", "Pod kv-2"]);
    assert_eq!(agents(&recorder), [PREVIOUS_AGENT; SIZE as usize]);
    let message = recorder.condition(condition::RECONCILING)["message"].clone();
    let listed =
        message.as_str().is_some_and(|it| it.ends_with("kv-0 (previous), kv-1 (previous), kv-2 (previous)"));
    assert!(listed, "{message}");
    stays_in_plain_text(&recorder);

    let form = recorded(&recorder)["digest"].as_str().map(str::to_owned);
    stage.edit(&json!({"options": {"snapshotCount": 5000}})).await.expect("it is accepted");
    let rolled = Until::Rolled { size: SIZE, before: form };
    stage.until("rolled out", |it| rolled.holds(it)).await;
    let after = recorder.members();
    assert!(before.iter().all(|(name, pod)| after[name] != *pod), "every pod restarts: {before:?} {after:?}");
    assert_eq!(agents(&recorder), ["dev"; SIZE as usize]);
    stays_in_plain_text(&recorder);
    stage.annotate(APPLY_ANNOTATION, Some("security.tls")).await;
    let target = Transport { clients: ClientPort::Both, peers: PeerPort::Https };
    stage
        .until_within(switching::LIMIT, "switched", |it| switching::is_done(it, &stage.namespace, target))
        .await;
    applied_again(&stage).await;
    stage.delete().await;
    stage.end().await;
}

/// As by a tool that applies the same manifest again, with and without the annotation.
async fn applied_again(stage: &Stage) {
    let before = stage.recorder.members();
    for value in [None, Some("security.tls")] {
        stage.annotate(APPLY_ANNOTATION, value).await;
        stage.edit(&json!({"paused": false})).await.expect("it is accepted");
        stage.until("applied again", |it| Until::Ready(SIZE).holds(it)).await;
    }
    assert_eq!(stage.recorder.members(), before, "no pod restarts");
    assert_eq!(recorded(&stage.recorder)["tls"], "inForce");
}

/// Although the spec asks for TLS, by default. All connections of the harness are in plain text, too: there are no Secrets.
fn stays_in_plain_text(recorder: &Recorder) {
    let tls = recorder.object("EtcdCluster", CLUSTER).unwrap_or_default()["spec"]["security"]["tls"].clone();
    assert_eq!(tls["enabled"], true);
    assert!(!recorder.kinds().contains("Secret"));
    let ready = recorder.condition(condition::TLS_READY);
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!(reason::TLS_NOT_IN_EFFECT)));
}

/// While no operator runs. The spec asks for TLS from then on, as those of all clusters do that said nothing about it.
async fn leave_as_the_previous_version_did(stage: &Stage, cluster: &EtcdCluster) {
    let Stage { world, namespace, recorder, .. } = stage;
    let sets: Api<StatefulSet> = world.all(namespace);
    let records: Api<ConfigMap> = world.all(namespace);
    let live: Api<Pod> = world.all(namespace);
    stage.edit(&json!({"security": null})).await.expect("it is accepted");
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    sets.delete(CLUSTER, &orphan).await.expect("it is there");
    records.delete(&format!("{CLUSTER}-form"), &DeleteParams::default()).await.expect("it is there");
    stage.until("the StatefulSet is gone", |it| it.object("StatefulSet", CLUSTER).is_none()).await;
    let text = PREVIOUS.replace("NAMESPACE", namespace).replace("UID", &cluster.uid().unwrap_or_default());
    let set = serde_json::from_str(&text).expect("it is a StatefulSet");
    sets.create(&PostParams::default(), &set).await.expect("it is accepted");
    let before = recorder.members();
    live.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("they are there");
    let again = |it: &Recorder| {
        let now = it.members();
        now.len() == usize::from(SIZE)
            && now.iter().all(|(name, pod)| before[name] != *pod && is_ready(it, name))
    };
    stage.until("pods are created again", again).await;
    for name in before.keys() {
        let pod = recorder.object("Pod", name).unwrap_or_default();
        let annotations = pod["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        assert!(!annotations.keys().any(|it| it.starts_with("etcd.etcd.io/")), "{annotations:?}");
    }
}

fn is_ready(recorder: &Recorder, pod: &str) -> bool {
    let conditions = recorder.object("Pod", pod).unwrap_or_default()["status"]["conditions"].clone();
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

fn recorded(recorder: &Recorder) -> Value {
    let object = recorder.object("ConfigMap", &format!("{CLUSTER}-form")).unwrap_or_default();
    serde_json::from_str(object["data"][KEY].as_str().unwrap_or("null")).unwrap_or_default()
}

/// The form of pods that carry no mark, and a template that gives one to new pods.
fn is_recorded(recorder: &Recorder) -> bool {
    let set = recorder.object("StatefulSet", CLUSTER).unwrap_or_default();
    let annotations = &set["spec"]["template"]["metadata"]["annotations"];
    let record = recorded(recorder);
    record["ofUnmarkedPods"] == true
        && annotations[FORM_ANNOTATION] == record["digest"]
        && annotations[RENDERING_ANNOTATION].is_string()
        && annotations[AGENT_ANNOTATION] == json!(Protocol::CURRENT.0.to_string())
}

fn agents(recorder: &Recorder) -> Vec<Value> {
    let cluster = recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
    let members = cluster["status"]["members"].as_array().cloned().unwrap_or_default();
    members.into_iter().map(|member| member["agentVersion"].clone()).collect()
}
