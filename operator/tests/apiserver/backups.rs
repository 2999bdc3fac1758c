//! Backups against a real API server and a real Job controller, with the rights that the operator ships with. Nothing runs in the
//! pods: the tests report for a kubelet what became of them.

use etcd_operator::supervisor::PlantedPanic;
use etcd_operator_core::api::{BackupPhase, EtcdBackup, EtcdCluster};
use etcd_operator_core::desired::Desired;
use etcd_operator_core::names::{BACKUP_LABEL, Names, condition, reason};
use etcd_operator_core::runs::{TOKEN_KEY, token_name};
use etcd_operator_core::validate::validate;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::installed;
use crate::operated::Workplace;

const COPY: &str = "20261118T020001Z-0123456789abcdef";

/// A namespace with a cluster that looks as if it served. Its worker panics in every round, so it changes nothing.
async fn with_cluster() -> Workplace {
    let planted = PlantedPanic::of("default/kv").expect("it names a cluster");
    let place = Workplace::alone(installed().await, planted).await;
    let cluster = place.create("kv", json!({"size": 1})).await;
    let status = json!({"status": {"clusterID": "cdf8", "readyReplicas": 1, "domain": "cluster.local"}});
    let clusters = place.all::<EtcdCluster>();
    clusters
        .patch_status("kv", &PatchParams::default(), &Patch::Merge(status))
        .await
        .expect("it is accepted");
    let intent = validate(&cluster).expect("it is valid");
    let names = Names::of(&cluster, "cluster.local");
    let desired =
        Desired { intent: &intent, names: &names, agent_image: "example.org/operator:dev", operator: None };
    let template = desired.template(&intent.form, None);
    let mut spec = json!(template.spec);
    spec["volumes"].as_array_mut().expect("it has volumes").push(json!({"name": "data", "emptyDir": {}}));
    let pod =
        json!({"metadata": {"name": "kv-0", "labels": json!(template.metadata)["labels"]}, "spec": spec});
    let pod: Pod = serde_json::from_value(pod).expect("it is a pod");
    place.all().create(&PostParams::default(), &pod).await.expect("it is accepted");
    place
}

fn backup(name: &str, spec: Value) -> EtcdBackup {
    EtcdBackup::new(name, serde_json::from_value(spec).expect("it is a spec"))
}

async fn create(place: &Workplace, name: &str, spec: Value) -> EtcdBackup {
    place.all().create(&PostParams::default(), &backup(name, spec)).await.expect("it is accepted")
}

fn to_s3() -> Value {
    json!({
        "clusterName": "kv", "storageType": "S3",
        "s3": {"bucket": "b", "accessKeySecret": "keys", "secretKeySecret": "keys"},
    })
}

/// The pods that the Job controller made for backups of the cluster.
async fn pods(place: &Workplace) -> Vec<Pod> {
    let selected = ListParams::default().labels(&format!("{BACKUP_LABEL}=kv"));
    place.all::<Pod>().list(&selected).await.expect("a list").items
}

async fn pod(place: &Workplace) -> Pod {
    loop {
        if let Some(pod) = pods(place).await.into_iter().find(|pod| !is_over(pod)) {
            return pod;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// As a kubelet reports it.
async fn report(place: &Workplace, pod: &Pod, phase: &str, take: Value) {
    let container = |name: &str, state: &Value| json!({"name": name, "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": state});
    let probed = json!({"terminated": {"exitCode": 0}});
    let status = json!({"status": {
        "phase": phase,
        "initContainerStatuses": [container("probe", &probed)],
        "containerStatuses": [container("take", &take)],
    }});
    let (pods, name) = (place.all::<Pod>(), pod.name_any());
    pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status))
        .await
        .expect("it is accepted");
}

fn taken() -> String {
    json!({
        "formatVersion": 1, "programVersion": "0.1.0", "outcome": "Succeeded", "verb": "take",
        "copy": {
            "name": COPY, "completedAt": "2026-11-18T02:00:09Z", "revision": {"lowest": 5, "highest": 6},
            "etcdVersion": "3.6.1", "bytes": 20_480, "compression": "None", "encryption": "None", "verification": "ReadBack",
        },
    })
    .to_string()
}

fn says(backup: &EtcdBackup, type_: &str, because: &str) -> bool {
    let conditions = backup.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|it| it.type_ == type_ && it.reason == because)
}

pub async fn a_backup_is_one_job_that_no_second_one_follows_and_it_goes_with_its_backup() {
    let place = with_cluster().await;
    // Its rounds panic, too, and no other notices.
    create(&place, "kv", to_s3()).await;
    create(&place, "once", to_s3()).await;
    let running =
        |it: &EtcdBackup| it.status.as_ref().is_some_and(|it| it.phase == Some(BackupPhase::Running));
    place.until("once", "it runs", running).await;
    // Another one of the same cluster waits for it.
    create(&place, "another", to_s3()).await;
    let waits = |it: &EtcdBackup| says(it, condition::RECONCILING, reason::OTHER_BACKUP_RUNNING);
    place.until("another", "it waits", waits).await;
    let first = pod(&place).await;
    report(&place, &first, "Succeeded", json!({"terminated": {"exitCode": 0, "message": taken()}})).await;
    let completed =
        |it: &EtcdBackup| it.status.as_ref().is_some_and(|it| it.phase == Some(BackupPhase::Completed));
    let once = place.until("once", "it completed", completed).await;
    let status = once.status.clone().expect("it was just seen");
    assert_eq!(status.storage_path, Some(format!("s3://b/cdf8/data/{COPY}.db")));
    assert!(says(&once, condition::READY, reason::BACKUP_COMPLETED));

    // Then it is the turn of the other one, whose Secret lacks a key.
    let second = pod(&place).await;
    let message = "couldn't find key AWS_ACCESS_KEY_ID in Secret default/keys";
    let waiting = json!({"waiting": {"reason": "CreateContainerConfigError", "message": message}});
    report_probe(&place, &second, waiting).await;
    let blocked = |it: &EtcdBackup| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions);
        says(it, condition::RECONCILING, reason::POD_START_FAILED)
            && conditions.into_iter().any(|it| it.message.contains(message))
    };
    place.until("another", "the missing key is named", blocked).await;
    place.all::<EtcdBackup>().delete("another", &DeleteParams::default()).await.expect("it is there");
    let job = second.owner_references()[0].name.clone();
    place.until_gone::<Job>(&job).await;

    // A new operator does not repeat what has completed, and writes nothing.
    let version = place.all::<EtcdBackup>().get("once").await.expect("it is there").resource_version();
    let place = place.restart().await;
    let next = create(&place, "third", to_s3()).await.name_any();
    place.until(&next, "the new operator works", running).await;
    let after = place.all::<EtcdBackup>().get("once").await.expect("it is there").resource_version();
    assert_eq!(after, version);
    let jobs = place.all::<Job>().list(&ListParams::default()).await.expect("a list").items;
    let of_once = jobs.iter().filter(|job| job.name_any().starts_with("once-")).count();
    assert_eq!(of_once, 1);
    drop(place.stop().await);
}

/// In a namespace whose pods are restricted.
pub async fn an_archiver_follows_the_first_copy_and_ends_when_it_is_suspended() {
    let place = with_cluster().await;
    let level = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces = Api::<Namespace>::all(place.on.admin.clone());
    let named = namespaces.patch(&place.namespace, &PatchParams::default(), &Patch::Merge(level)).await;
    named.expect("it is accepted");
    let mut spec = to_s3();
    spec["continuous"] = json!({});
    create(&place, "every", spec).await;
    let taking = pod(&place).await;
    report(&place, &taking, "Succeeded", json!({"terminated": {"exitCode": 0, "message": taken()}})).await;
    let starts = |it: &EtcdBackup| says(it, condition::ARCHIVING, reason::ARCHIVER_STARTING);
    let every = place.until("every", "its archiver starts", starts).await;
    let archiver = pod(&place).await;
    let job = archiver.owner_references()[0].name.clone();
    assert!(job.contains("-archive-0-"), "{job}");
    let spec = archiver.spec.clone().expect("a spec");
    assert_eq!(spec.automount_service_account_token, Some(false));
    assert!(spec.volumes.iter().flatten().all(|it| it.projected.is_none()), "it has a token of Kubernetes");
    let token = place.all::<Secret>().get(&token_name(&every)).await.expect("it is there");
    assert_eq!(token.owner_references()[0].name, "every");
    assert_eq!(token.data.and_then(|data| data.get(TOKEN_KEY).map(|it| it.0.len())), Some(64));

    let suspended = Patch::Merge(json!({"spec": {"suspend": true}}));
    let backups = place.all::<EtcdBackup>();
    backups.patch("every", &PatchParams::default(), &suspended).await.expect("it is accepted");
    place.until_gone::<Job>(&job).await;
    let suspended = |it: &EtcdBackup| says(it, condition::ARCHIVING, reason::SUSPENDED);
    place.until("every", "it is suspended", suspended).await;
    drop(place.stop().await);
}

async fn report_probe(place: &Workplace, pod: &Pod, state: Value) {
    let container = json!({"name": "probe", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    let status = json!({"status": {"phase": "Pending", "initContainerStatuses": [container]}});
    let (pods, name) = (place.all::<Pod>(), pod.name_any());
    pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status))
        .await
        .expect("it is accepted");
}

pub async fn what_a_backup_lacks_is_named_and_noticed_when_it_is_there() {
    let place = Workplace::new().await;
    create(&place, "early", to_s3()).await;
    let missing = |it: &EtcdBackup| says(it, condition::RECONCILING, reason::CLUSTER_NOT_FOUND);
    place.until("early", "the missing cluster is named", missing).await;
    place.create("kv", json!({"size": 1})).await;
    let there = |it: &EtcdBackup| says(it, condition::RECONCILING, reason::NOT_BOOTSTRAPPED);
    place.until("early", "the cluster is found", there).await;

    // Objects of earlier versions can lack it.
    create(&place, "local", json!({"clusterName": "kv", "storageType": "Local"})).await;
    let refused = |it: &EtcdBackup| says(it, condition::STALLED, reason::INVALID_SPEC);
    let local = place.until("local", "the spec is refused", refused).await;
    let message = &local.status.expect("it was just seen").conditions[0].message;
    assert!(message.contains("local.claimName"), "{message}");
}
