//! Every field of an EtcdCluster, edited on a cluster that runs: its verdict holds.

use std::collections::BTreeMap;
use std::time::Instant;

use etcd_operator_core::api::{EtcdCluster, FieldVerdict, VERDICTS, Verdict};
use etcd_operator_core::names::{FORM_ANNOTATION, condition, reason};
use etcd_operator_core::tls::{self, Certificate, Purpose};
use etcd_operator_core::validate::validate;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::auth;
use crate::recorder::{Objects, Recorder};
use crate::stage::Stage;
use crate::steps::{Until, Volumes};
use crate::world::{CLUSTER, world};

pub fn every_edit_does_what_its_verdict_says() {
    world().runtime.block_on(run());
}

async fn run() {
    let stage = Stage::start(world()).await;
    // With a place for labels and certificates, so that taking them back leaves the rest of it alone.
    let security = json!({"tls": {"certificates": {}}});
    let base = json!({"size": 1, "version": "3.5.21", "podTemplate": {}, "security": security});
    stage.create(base.clone()).await;

    let edits: BTreeMap<String, Value> =
        serde_saphyr::from_str(include_str!("../../../core/tests/edits.yaml")).expect("it is YAML");
    for FieldVerdict { field, verdict, .. } in VERDICTS {
        let begun = Instant::now();
        Edited(&stage).check(field, verdict, &edits[field], &base).await;
        println!("{field}: {verdict} ({:.1} s)", begun.elapsed().as_secs_f64());
    }
    stage.delete().await;
    stage.end().await;
}

struct Edited<'a>(&'a Stage);

impl Edited<'_> {
    /// Until the only member has the form of this spec.
    async fn until_rolled(&self, field: &str, cluster: &EtcdCluster) {
        let form = validate(cluster).expect("it is valid").form.digest();
        let has_form = |object: &Value| object["metadata"]["annotations"][FORM_ANNOTATION] == json!(form);
        let rolled = |it: &Recorder| {
            let template = object(it, "StatefulSet", CLUSTER)["spec"]["template"].clone();
            Until::Ready(1).holds(it) && has_form(&template) && has_form(&first_pod(it))
        };
        self.until(field, rolled).await;
    }

    async fn check(&self, field: &str, verdict: Verdict, edit: &Value, base: &Value) {
        let pod = self.pod_uid();
        self.0.recorder.begin();
        match verdict {
            Verdict::Immutable => {
                let refused = self.patch(edit).await.expect_err("it is rejected");
                let kube::Error::Api(answer) = &refused else { panic!("{field}: {refused}") };
                assert!(
                    answer.code == 422 && answer.message.contains("cannot be changed"),
                    "{field}: {refused}"
                );
                assert_eq!(self.0.recorder.changes(), BTreeMap::new(), "{field}");
            }
            Verdict::None => {
                let cluster = self.patch(edit).await.expect("it is accepted");
                let generation = json!(cluster.metadata.generation);
                let arrived = |it: &Recorder| {
                    object(it, "EtcdCluster", CLUSTER)["metadata"]["generation"] == generation
                };
                self.until(field, |it| arrived(it) && Until::Ready(1).holds(it)).await;
                let changed: Vec<_> = self.0.recorder.changes().into_keys().collect();
                assert_eq!(changed, [format!("EtcdCluster {CLUSTER}")], "{field}");
            }
            Verdict::Live => {
                let before = self.all(&self.0.recorder);
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
                self.until_rolled(field, &cluster).await;
                assert_ne!(self.pod_uid(), pod, "{field}: its pod restarts");
                // One of them can keep the next from having an effect.
                if field.starts_with("security.tls.") {
                    let back = json!({
                        "enabled": true, "clientTLSEnabled": true, "peerTLSEnabled": true, "plainClients": "Refuse",
                    });
                    let cluster =
                        self.patch(&json!({"security": {"tls": back}})).await.expect("it is accepted");
                    self.until_rolled(field, &cluster).await;
                }
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
        let mut objects = recorder.comparable(&self.0.namespace);
        for object in objects.values_mut() {
            object["metadata"]["generation"] = Value::Null;
            object["status"]["observedGeneration"] = Value::Null;
            let conditions = object["status"]["conditions"].as_array_mut();
            conditions.into_iter().flatten().for_each(|it| it["observedGeneration"] = Value::Null);
        }
        objects
    }

    async fn patch(&self, spec: &Value) -> kube::Result<EtcdCluster> {
        self.0.edit(spec).await
    }

    async fn until(&self, field: &str, holds: impl Fn(&Recorder) -> bool) {
        self.0.until(field, holds).await;
    }

    fn pod_uid(&self) -> Value {
        first_pod(&self.0.recorder)["metadata"]["uid"].clone()
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

/// What the certificate for the client port says.
fn server(recorder: &Recorder) -> Certificate {
    let secret = recorder.secret(Purpose::Server).expect("it is there");
    tls::read(secret.data.as_ref()).expect("it is a certificate")
}

/// What users see of an edit that needs no restart.
fn is_in_effect(field: &str, recorder: &Recorder) -> bool {
    let cluster = object(recorder, "EtcdCluster", CLUSTER);
    let seen = cluster["status"]["observedGeneration"] == cluster["metadata"]["generation"];
    let metadata = |part: &str, key: &str, value: &Value| {
        let template = object(recorder, "StatefulSet", CLUSTER)["spec"]["template"].clone();
        [template, first_pod(recorder)].iter().all(|it| it["metadata"][part][key] == *value)
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
        "podTemplate.annotations" => metadata("annotations", "example.org/note", &json!("hello")),
        "podTemplate.labels" => metadata("labels", "team", &json!("shop")),
        "security.networkPolicy.clientSelector" => {
            let policy = object(recorder, "NetworkPolicy", CLUSTER);
            policy["spec"]["ingress"][1]["from"][0]["podSelector"]["matchLabels"]["app"] == "shop"
        }
        "security.auth.enabled" => auth::is_enabled(recorder),
        // There is no such Secret.
        "security.auth.rootPasswordSecret" => {
            recorder.condition(condition::AUTH_READY)["reason"] == reason::ROOT_PASSWORD_MISSING
        }
        // There are no such Secrets.
        "security.tls.caSecret" | "security.tls.certificateSecret" => {
            recorder.condition(condition::TLS_READY)["reason"] == reason::CERTIFICATE_REJECTED
        }
        // Nothing serves its API.
        "security.tls.issuerRef.group" | "security.tls.issuerRef.kind" | "security.tls.issuerRef.name" => {
            recorder.condition(condition::TLS_READY)["reason"] == reason::CERT_MANAGER_MISSING
        }
        "monitoring.podMonitor" => {
            recorder.condition(condition::SPEC_WARNING)["reason"] == reason::PROMETHEUS_OPERATOR_MISSING
                && metadata("annotations", "prometheus.io/scrape", &Value::Null)
        }
        "security.tls.certificates.dnsNames" => {
            server(recorder).dns_names.contains(&"etcd.example.com".into())
        }
        "security.tls.certificates.ipAddresses" => {
            server(recorder).ip_addresses.contains(&"192.0.2.1".into())
        }
        "security.tls.certificates.validitySeconds" => {
            let left = server(recorder).not_after.as_second() - Timestamp::now().as_second();
            left <= 3600
        }
        // It is read when the next certificate is issued.
        "security.tls.certificates.keyAlgorithm" => {
            seen && cluster["spec"]["security"]["tls"]["certificates"]["keyAlgorithm"] == "ECDSAP384"
        }
        "size" => Until::Ready(3).holds(recorder),
        "storage.size" => {
            let volumes = Volumes { size: "20Gi", class: "standard" };
            Until::Provisioned { size: 1, volumes }.holds(recorder)
        }
        // It is read when members restart for the next edit.
        "rollout.strategy" => seen && cluster["spec"]["rollout"]["strategy"] == "Supervised",
        // They are read when the cluster stops or is deleted.
        "storage.onDelete" => seen && cluster["spec"]["storage"]["onDelete"] == "Delete",
        // It is read when a quorum is lost.
        "recovery.acceptDataLoss.clusterID" => {
            seen && cluster["spec"]["recovery"]["acceptDataLoss"]["clusterID"] == "c1"
        }
        "recovery.acceptDataLoss.survivor" => {
            seen && cluster["spec"]["recovery"]["acceptDataLoss"]["survivor"] == "kv-0"
        }
        // It is read when the node of a member is lost.
        "repair.nodeLossGraceSeconds" => seen && cluster["spec"]["repair"]["nodeLossGraceSeconds"] == 300,
        // It is read when members are compared the next time, and there is one.
        "maintenance.consistencyCheck.intervalSeconds" => {
            seen && cluster["spec"]["maintenance"]["consistencyCheck"]["intervalSeconds"] == 60
        }
        // They are read at every observation, and the database is small.
        "maintenance.defragmentation.minFragmentationPercent" => {
            seen && cluster["spec"]["maintenance"]["defragmentation"]["minFragmentationPercent"] == 60
        }
        "maintenance.defragmentation.minSizeBytes" => {
            seen && cluster["spec"]["maintenance"]["defragmentation"]["minSizeBytes"] == 1_000_000_000
        }
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
