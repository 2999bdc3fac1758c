//! Every field of an EtcdCluster, edited on a cluster that runs: its verdict holds.

use std::collections::BTreeMap;
use std::time::Instant;

use etcd_operator::lease;
use etcd_operator_core::api::{EtcdCluster, FieldVerdict, VERDICTS, Verdict};
use etcd_operator_core::names::{FORM_ANNOTATION, condition};
use etcd_operator_core::validate::validate;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::faults::Faults;
use crate::operator::{LEASE_NAMESPACE, Operator};
use crate::recorder::{Objects, Recorder};
use crate::scenario::until;
use crate::steps::{Until, Volumes};
use crate::world::{CLUSTER, World, world};

struct Edited<'a> {
    namespace: &'a str,
    clusters: Api<EtcdCluster>,
    recorder: &'a Recorder,
    faults: &'a Faults,
}

pub fn every_edit_does_what_its_verdict_says() {
    let world = world();
    world.runtime.block_on(run(world));
}

async fn run(world: &World) {
    let namespace = world.namespace().await;
    let faults = Faults::none(&namespace);
    let recorder = Recorder::start(&world.admin, &namespace).await;
    let operator = Operator::start(&world.kubeconfig, &faults);
    let clusters = world.all(&namespace);
    let edited = Edited { namespace: &namespace, clusters, recorder: &recorder, faults: &faults };
    // With a place for labels, so that taking them back leaves the rest of it alone.
    let base = json!({"size": 1, "version": "3.5.21", "podTemplate": {}});
    let cluster = EtcdCluster::new(CLUSTER, serde_json::from_value(base.clone()).expect("a spec"));
    edited.clusters.create(&PostParams::default(), &cluster).await.expect("it is accepted");
    edited.until("created", |it| Until::Ready(1).holds(it)).await;

    let edits: BTreeMap<String, Value> =
        serde_saphyr::from_str(include_str!("../../../core/tests/edits.yaml")).expect("it is YAML");
    for FieldVerdict { field, verdict, .. } in VERDICTS {
        let begun = Instant::now();
        edited.check(field, verdict, &edits[field], &base).await;
        println!("{field}: {verdict} ({:.1} s)", begun.elapsed().as_secs_f64());
    }
    edited.clusters.delete(CLUSTER, &DeleteParams::default()).await.expect("it is there");
    edited.until("deleted", |it| Until::Gone.holds(it)).await;
    drop(operator);
    let leases: Api<Lease> = world.all(LEASE_NAMESPACE);
    leases.delete(lease::NAME, &DeleteParams::default()).await.expect("the operator held it");
}

impl Edited<'_> {
    async fn check(&self, field: &str, verdict: Verdict, edit: &Value, base: &Value) {
        let pod = self.pod_uid();
        self.recorder.begin();
        match verdict {
            Verdict::Immutable => {
                let refused = self.patch(edit).await.expect_err("it is rejected");
                let kube::Error::Api(answer) = &refused else { panic!("{field}: {refused}") };
                assert!(
                    answer.code == 422 && answer.message.contains("cannot be changed"),
                    "{field}: {refused}"
                );
                assert_eq!(self.recorder.changes(), BTreeMap::new(), "{field}");
            }
            Verdict::None => {
                let cluster = self.patch(edit).await.expect("it is accepted");
                let generation = json!(cluster.metadata.generation);
                let arrived = |it: &Recorder| {
                    object(it, "EtcdCluster", CLUSTER)["metadata"]["generation"] == generation
                };
                self.until(field, |it| arrived(it) && Until::Ready(1).holds(it)).await;
                let changed: Vec<_> = self.recorder.changes().into_keys().collect();
                assert_eq!(changed, [format!("EtcdCluster {CLUSTER}")], "{field}");
            }
            Verdict::Live => {
                let before = self.all(self.recorder);
                self.patch(edit).await.expect("it is accepted");
                self.until(field, |it| is_in_effect(field, it)).await;
                assert_eq!(self.pod_uid(), pod, "{field}: no pod restarts");
                // A volume cannot shrink.
                if field == "storage.size" {
                    return;
                }
                self.patch(&back(edit, base)).await.expect("it is accepted");
                self.until(field, |it| Until::Ready(1).holds(it) && self.all(it) == before).await;
                assert_eq!(self.pod_uid(), pod, "{field}: no pod restarts");
            }
            Verdict::Rolling => {
                let cluster = self.patch(edit).await.expect("it is accepted");
                let form = validate(&cluster).expect("it is valid").form.digest();
                let has_form =
                    |object: &Value| object["metadata"]["annotations"][FORM_ANNOTATION] == json!(form);
                let rolled = |it: &Recorder| {
                    let template = object(it, "StatefulSet", CLUSTER)["spec"]["template"].clone();
                    Until::Ready(1).holds(it) && has_form(&template) && has_form(&first_pod(it))
                };
                self.until(field, rolled).await;
                assert_ne!(self.pod_uid(), pod, "{field}: its pod restarts");
            }
            Verdict::Replaced => {
                self.patch(edit).await.expect("it is accepted");
                let refused = |it: &Recorder| reason(it, condition::STALLED) == "StorageClassNeedsMembers";
                self.until(field, refused).await;
                assert_eq!(self.pod_uid(), pod, "{field}: the only member stays");
                self.patch(&json!({"size": 3})).await.expect("it is accepted");
                let class = edit["storage"]["storageClassName"].clone();
                let moved = |it: &Recorder| {
                    let claim = |it: &Recorder, ordinal| {
                        let name = format!("data-{CLUSTER}-{ordinal}");
                        object(it, "PersistentVolumeClaim", &name)["spec"]["storageClassName"] == class
                    };
                    Until::Ready(3).holds(it) && (0..3).all(|ordinal| claim(it, ordinal))
                };
                self.until(field, moved).await;
                assert_ne!(self.pod_uid(), pod, "{field}: its member is replaced");
                self.patch(&json!({"size": 1})).await.expect("it is accepted");
                self.until(field, |it| Until::Ready(1).holds(it)).await;
            }
        }
    }

    /// Everything, without what counts edits.
    fn all(&self, recorder: &Recorder) -> Objects {
        let mut objects = recorder.comparable(self.namespace);
        for object in objects.values_mut() {
            object["metadata"]["generation"] = Value::Null;
            object["status"]["observedGeneration"] = Value::Null;
            let conditions = object["status"]["conditions"].as_array_mut();
            conditions.into_iter().flatten().for_each(|it| it["observedGeneration"] = Value::Null);
        }
        objects
    }

    async fn patch(&self, spec: &Value) -> kube::Result<EtcdCluster> {
        let change = Patch::Merge(json!({"spec": spec}));
        self.clusters.patch(CLUSTER, &PatchParams::default(), &change).await
    }

    async fn until(&self, field: &str, holds: impl Fn(&Recorder) -> bool) {
        until(self.recorder, self.faults, field, holds).await;
    }

    fn pod_uid(&self) -> Value {
        first_pod(self.recorder)["metadata"]["uid"].clone()
    }
}

fn object(recorder: &Recorder, kind: &str, name: &str) -> Value {
    recorder.object(kind, name).unwrap_or_default()
}

/// Of a condition that is True.
fn reason(recorder: &Recorder, type_: &str) -> String {
    let conditions = object(recorder, "EtcdCluster", CLUSTER)["status"]["conditions"].clone();
    let conditions = conditions.as_array().cloned().unwrap_or_default();
    let condition = conditions.iter().find(|it| it["type"] == type_ && it["status"] == "True");
    condition.and_then(|it| it["reason"].as_str()).unwrap_or_default().to_owned()
}

fn first_pod(recorder: &Recorder) -> Value {
    object(recorder, "Pod", &format!("{CLUSTER}-0"))
}

/// What users see of an edit that needs no restart.
fn is_in_effect(field: &str, recorder: &Recorder) -> bool {
    let cluster = object(recorder, "EtcdCluster", CLUSTER);
    let seen = cluster["status"]["observedGeneration"] == cluster["metadata"]["generation"];
    let metadata = |part: &str, key: &str, value: &str| {
        let template = object(recorder, "StatefulSet", CLUSTER)["spec"]["template"].clone();
        [template, first_pod(recorder)].iter().all(|it| it["metadata"][part][key] == value)
    };
    match field {
        "externalAccess.nodePort.port" => {
            let service = object(recorder, "Service", &format!("{CLUSTER}-nodeport"));
            service["spec"]["ports"][0]["nodePort"] == 30379
        }
        "paused" => {
            let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == condition::PAUSED && it["status"] == "True")
        }
        "podDisruptionBudget" => recorder.object("PodDisruptionBudget", CLUSTER).is_none(),
        "podTemplate.annotations" => metadata("annotations", "example.org/note", "hello"),
        "podTemplate.labels" => metadata("labels", "team", "shop"),
        "size" => Until::Ready(3).holds(recorder),
        "storage.size" => {
            let volumes = Volumes { size: "20Gi", class: "standard" };
            Until::Provisioned { size: 1, volumes }.holds(recorder)
        }
        // They are read when the cluster stops or is deleted.
        "storage.onDelete" => seen && cluster["spec"]["storage"]["onDelete"] == "Delete",
        // It is read when the operator has a reason of its own to restart a member.
        "maintenance.windows" => {
            seen && cluster["spec"]["maintenance"]["windows"][0]["durationMinutes"] == 60
        }
        "storage.onStop" => seen && cluster["spec"]["storage"]["onStop"] == "RetainAll",
        _ => panic!("{field} is live: what is its effect?"),
    }
}

/// The merge patch that takes an edit back.
fn back(edit: &Value, base: &Value) -> Value {
    match (edit, base) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().map(|(name, edit)| (name.clone(), back(edit, &base[name]))).collect()
        }
        (_, base) => base.clone(),
    }
}
