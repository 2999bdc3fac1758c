//! An operator takes over a cluster of the previous version, which recorded no forms: it restarts nothing and records what
//! members run, and the next edit rolls out.
//!
//! `core/tests/previous/stateful-set.json` is the StatefulSet as that version wrote it, and all pods are created from it.

use std::collections::BTreeMap;

use etcd_operator::lease;
use etcd_operator_core::agent::Protocol;
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::form::KEY;
use etcd_operator_core::names::{AGENT_ANNOTATION, FORM_ANNOTATION, RENDERING_ANNOTATION};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::faults::Faults;
use crate::inside;
use crate::operator::{LEASE_NAMESPACE, Operator};
use crate::recorder::Recorder;
use crate::scenario::until;
use crate::steps::Until;
use crate::world::{CLUSTER, World, world};

const SIZE: u8 = 3;
/// With placeholders for what differs between two clusters.
const PREVIOUS: &str = include_str!("../../../core/tests/previous/stateful-set.json");
/// The tag of the agent's image in it.
const PREVIOUS_AGENT: &str = "previous";

pub fn from_the_previous_version() {
    let world = world();
    world.runtime.block_on(run(world));
}

async fn run(world: &World) {
    let namespace = world.namespace().await;
    let faults = Faults::none(&namespace);
    let recorder = Recorder::start(&world.admin, &namespace).await;
    let clusters: Api<EtcdCluster> = world.all(&namespace);
    let operator = Operator::start(&world.kubeconfig, &faults);
    let spec = json!({"size": SIZE, "version": inside::TWO_LEARNERS});
    let cluster = EtcdCluster::new(CLUSTER, serde_json::from_value(spec).expect("a spec"));
    let created = clusters.create(&PostParams::default(), &cluster).await.expect("it is accepted");
    until(&recorder, &faults, "created", |it| Until::Ready(SIZE).holds(it)).await;
    end(operator, world).await;
    leave_as_the_previous_version_did(world, &namespace, &created, &recorder).await;

    let before = pods(&recorder);
    recorder.begin();
    let operator = Operator::start(&world.kubeconfig, &faults);
    until(&recorder, &faults, "taken over", |it| Until::Ready(SIZE).holds(it) && is_recorded(it)).await;
    assert_eq!(pods(&recorder), before, "no pod restarts");
    // Statuses and templates do not count.
    let changed: Vec<_> = recorder.changes().into_keys().collect();
    assert_eq!(changed, ["ConfigMap kv-form"]);
    assert_eq!(agents(&recorder), [PREVIOUS_AGENT; SIZE as usize]);
    let message = condition(&recorder, "Reconciling")["message"].clone();
    let listed =
        message.as_str().is_some_and(|it| it.ends_with("kv-0 (previous), kv-1 (previous), kv-2 (previous)"));
    assert!(listed, "{message}");

    let form = recorded(&recorder)["digest"].as_str().map(str::to_owned);
    let edit = Patch::Merge(json!({"spec": {"options": {"snapshotCount": 5000}}}));
    clusters.patch(CLUSTER, &PatchParams::default(), &edit).await.expect("it is accepted");
    let rolled = Until::Rolled { size: SIZE, before: form };
    until(&recorder, &faults, "rolled out", |it| rolled.holds(it)).await;
    let after = pods(&recorder);
    assert!(before.iter().all(|(name, pod)| after[name] != *pod), "every pod restarts: {before:?} {after:?}");
    assert_eq!(agents(&recorder), ["dev"; SIZE as usize]);
    clusters.delete(CLUSTER, &DeleteParams::default()).await.expect("it is there");
    until(&recorder, &faults, "deleted", |it| Until::Gone.holds(it)).await;
    end(operator, world).await;
}

async fn end(operator: Operator, world: &World) {
    drop(operator);
    let leases: Api<Lease> = world.all(LEASE_NAMESPACE);
    leases.delete(lease::NAME, &DeleteParams::default()).await.expect("the operator held it");
}

/// While no operator runs.
async fn leave_as_the_previous_version_did(
    world: &World,
    namespace: &str,
    cluster: &EtcdCluster,
    recorder: &Recorder,
) {
    let sets: Api<StatefulSet> = world.all(namespace);
    let records: Api<ConfigMap> = world.all(namespace);
    let live: Api<Pod> = world.all(namespace);
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    sets.delete(CLUSTER, &orphan).await.expect("it is there");
    records.delete(&format!("{CLUSTER}-form"), &DeleteParams::default()).await.expect("it is there");
    let gone = |it: &Recorder| it.object("StatefulSet", CLUSTER).is_none();
    until(recorder, &Faults::none(namespace), "the StatefulSet is gone", gone).await;
    let text = PREVIOUS.replace("NAMESPACE", namespace).replace("UID", &cluster.uid().unwrap_or_default());
    let set = serde_json::from_str(&text).expect("it is a StatefulSet");
    sets.create(&PostParams::default(), &set).await.expect("it is accepted");
    let before = pods(recorder);
    live.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("they are there");
    let again = |it: &Recorder| {
        let now = pods(it);
        now.len() == usize::from(SIZE)
            && now.iter().all(|(name, pod)| before[name] != *pod && is_ready(it, name))
    };
    until(recorder, &Faults::none(namespace), "pods are created again", again).await;
    for name in before.keys() {
        let pod = recorder.object("Pod", name).unwrap_or_default();
        let annotations = pod["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        assert!(!annotations.keys().any(|it| it.starts_with("etcd.etcd.io/")), "{annotations:?}");
    }
}

/// UIDs and how often containers were restarted.
fn pods(recorder: &Recorder) -> BTreeMap<String, (Value, Value)> {
    let names = (0..SIZE).map(|ordinal| format!("{CLUSTER}-{ordinal}"));
    let state = |pod: &Value| {
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].clone();
        (pod["metadata"]["uid"].clone(), restarts)
    };
    names.filter_map(|name| Some((name.clone(), state(&recorder.object("Pod", &name)?)))).collect()
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

fn condition(recorder: &Recorder, type_: &str) -> Value {
    let cluster = recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|it| it["type"] == type_).unwrap_or_default()
}

fn agents(recorder: &Recorder) -> Vec<Value> {
    let cluster = recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
    let members = cluster["status"]["members"].as_array().cloned().unwrap_or_default();
    members.into_iter().map(|member| member["agentVersion"].clone()).collect()
}
