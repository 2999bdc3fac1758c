mod archive;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::api::{BackupPhase, EtcdCluster};
use crate::backup::inputs::{INPUTS_VARIABLE, Inputs};
use crate::names::condition;

const CREATED: &str = "2026-11-17T10:00:00Z";
const COPY: &str = "20261118T020001Z-0123456789abcdef";

fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

fn backup(changes: Value) -> EtcdBackup {
    let mut spec = json!({
        "clusterName": "kv", "storageType": "S3",
        "s3": {"bucket": "b", "path": "prod/", "accessKeySecret": "keys", "secretKeySecret": "keys"},
    });
    for (field, value) in changes.as_object().expect("an object") {
        spec[field] = value.clone();
    }
    let metadata = json!({
        "name": "nightly", "namespace": "ns", "uid": "0123abcd-4567", "generation": 1, "resourceVersion": "7",
        "creationTimestamp": CREATED,
    });
    let object = json!({"apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdBackup", "metadata": metadata, "spec": spec});
    serde_json::from_value(object).expect("it is an EtcdBackup")
}

fn nightly() -> EtcdBackup {
    backup(json!({"schedule": "0 2 * * *"}))
}

/// A cluster with TLS and one member.
fn cluster() -> Cluster {
    let metadata = json!({"name": "kv", "namespace": "ns", "uid": "u"});
    let status = json!({"clusterID": "cdf8", "readyReplicas": 1, "domain": "cluster.local"});
    let object = json!({"metadata": metadata, "spec": {"size": 1}, "status": status});
    let cluster: EtcdCluster = serde_json::from_value(object).expect("it is an EtcdCluster");
    let template = {
        let intent = crate::validate::validate(&cluster).expect("it is valid");
        let names = crate::names::Names::of(&cluster, "cluster.local");
        let desired = crate::desired::Desired {
            intent: &intent,
            names: &names,
            agent_image: "operator",
            operator: None,
        };
        desired.template(&intent.form, None)
    };
    let pod = json!({"metadata": {"name": "kv-0", "namespace": "ns"}, "spec": template.spec});
    let pod: Pod = serde_json::from_value(pod).expect("it is a pod");
    Cluster::of(&cluster, [&pod].into_iter(), "cluster.local")
}

/// What the world does with an EtcdBackup while decisions are carried out.
struct World {
    backup: EtcdBackup,
    cluster: Option<Cluster>,
    jobs: Vec<Job>,
    pods: Vec<(String, Pod)>,
    now: Timestamp,
    statuses: usize,
    /// What the archiver that runs answers.
    heard: Option<Heard>,
    tokens: usize,
}

impl World {
    fn new(backup: EtcdBackup) -> Self {
        let now = at(CREATED);
        Self {
            backup,
            cluster: Some(cluster()),
            jobs: Vec::new(),
            pods: Vec::new(),
            now,
            statuses: 0,
            heard: None,
            tokens: 0,
        }
    }

    fn runs(&self) -> Vec<Run> {
        let pod = |job: &Job| self.pods.iter().find(|(name, _)| *name == job.name_any()).map(|(_, pod)| pod);
        self.jobs.iter().filter_map(|job| Run::of(job, pod(job), self.now)).collect()
    }

    fn archivers(&self) -> Vec<Archiver> {
        let pod = |job: &Job| self.pods.iter().find(|(name, _)| *name == job.name_any()).map(|(_, pod)| pod);
        self.jobs.iter().filter_map(|job| Archiver::of(job, pod(job), self.now)).collect()
    }

    fn decide(&self) -> Decision {
        let runs = self.runs();
        let (backup, cluster) = (&self.backup, self.cluster.as_ref());
        let (archivers, heard) = (self.archivers(), self.heard.as_ref());
        let (image, now) = ("operator", self.now);
        let seen =
            Seen { backup, cluster, runs: &runs, archivers: &archivers, heard, image, trouble: None, now };
        let decision = decide(&seen);
        assert_eq!(decision, decide(&seen), "the same observation has the same decision");
        decision
    }

    /// Until nothing more is done at this time.
    fn settle(&mut self) -> &mut Self {
        for _ in 0..10 {
            let Decision { status, writes, .. } = self.decide();
            if status.is_none() && writes.is_empty() {
                return self;
            }
            self.statuses += usize::from(status.is_some());
            self.backup.status = status.or(self.backup.status.take());
            for write in writes {
                self.apply(write);
            }
            let active = self.runs().iter().filter(|run| run.is_active()).count();
            assert!(active <= 1, "two runs at once");
        }
        panic!("it never settles: {:?}", self.decide());
    }

    fn apply(&mut self, write: Write) {
        match write {
            Write::Create(mut job) => {
                assert!(!self.jobs.iter().any(|it| it.name_any() == job.name_any()), "created twice");
                job.metadata.uid = Some(format!("uid of {}", job.name_any()));
                job.metadata.creation_timestamp =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now));
                self.jobs.push(*job);
            }
            Write::Token(_) => self.tokens += 1,
            Write::Delete { name, .. } => self.jobs.retain(|job| job.name_any() != name),
        }
    }

    fn at(&mut self, time: &str) -> &mut Self {
        self.now = at(time);
        self
    }

    /// The newest Job ends like this, with these containers.
    fn end(&mut self, type_: &str, containers: Value) -> &mut Self {
        let name = self.jobs.iter().rfind(|job| Mark::on(*job).is_some()).map(ResourceExt::name_any);
        self.end_of(&name.expect("there is a Job"), type_, containers)
    }

    fn end_of(&mut self, name: &str, type_: &str, containers: Value) -> &mut Self {
        let job = self.jobs.iter_mut().find(|job| job.name_any() == name).expect("it is there");
        let condition = json!({"type": type_, "status": "True", "lastTransitionTime": self.now.to_string()});
        job.status = serde_json::from_value(json!({"conditions": [condition]})).expect("a status");
        let phase = if type_ == "Complete" { "Succeeded" } else { "Failed" };
        let pod = json!({"metadata": {"name": "p"}, "status": {"phase": phase, "initContainerStatuses": containers}});
        let name = job.name_any();
        self.pods.retain(|(it, _)| *it != name);
        self.pods.push((name, serde_json::from_value(pod).expect("it is a pod")));
        self
    }

    fn succeed(&mut self) -> &mut Self {
        self.end("Complete", json!([ended("take", 0, &taken().to_string())]))
    }

    fn fail(&mut self, reason: &str) -> &mut Self {
        self.end("Failed", json!([ended("take", 1, &failed(reason).to_string())]))
    }

    fn status(&self) -> EtcdBackupStatus {
        self.backup.status.clone().unwrap_or_default()
    }

    fn condition(&self, type_: &str) -> (String, String, String) {
        let status = self.status();
        let it = find(&status.conditions, type_).expect("it is there");
        (it.status.clone(), it.reason.clone(), it.message.clone())
    }

    fn reconciling(&self) -> String {
        self.condition(condition::RECONCILING).1
    }
}

fn ended(name: &str, code: i32, message: &str) -> Value {
    json!({
        "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "message": message}},
    })
}

fn taken() -> Value {
    json!({
        "formatVersion": 1, "programVersion": "0.1.0", "outcome": "Succeeded", "verb": "take",
        "copy": {
            "name": COPY, "completedAt": "2026-11-18T02:00:09Z", "revision": {"lowest": 5, "highest": 6},
            "etcdVersion": "3.6.1", "bytes": 20_480, "compression": "Zstd", "encryption": "Age", "verification": "ReadBack",
        },
    })
}

fn failed(reason: &str) -> Value {
    json!({
        "formatVersion": 1, "programVersion": "0.1.0", "outcome": "Failed", "reason": reason,
        "message": "the store responded 403",
    })
}

#[test]
fn a_backup_on_demand_takes_one_copy_and_never_another() {
    let mut world = World::new(backup(json!({})));
    world.settle();
    assert_eq!(world.jobs.len(), 1);
    assert_eq!(world.jobs[0].name_any(), "nightly-0123abcd-g1-0");
    assert_eq!(
        (world.status().phase, world.reconciling()),
        (Some(BackupPhase::Running), "BackupRunning".into())
    );
    world.at("2026-11-18T02:00:10Z").succeed().settle();
    let status = world.status();
    assert_eq!(status.phase, Some(BackupPhase::Completed));
    assert_eq!((status.backup_size, status.etcd_revision), (Some(20_480), Some(5)));
    let path = format!("s3://b/prod/cdf8/data/{COPY}.db.zst.age");
    assert_eq!(status.storage_path, Some(path.clone()));
    assert_eq!((status.copies.len(), status.copies[0].location.clone()), (1, path));
    assert_eq!(world.condition(condition::READY).1, "BackupCompleted");

    let written = world.statuses;
    world.jobs.clear();
    world.at("2027-11-18T02:00:10Z").settle();
    world.backup.metadata.generation = Some(2);
    world.settle();
    assert_eq!(world.jobs.len(), 0, "neither without its Job nor after an edit");
    assert!(world.statuses <= written + 1, "the generation is the only news");
}

#[test]
fn a_schedule_runs_at_its_times_and_makes_up_for_missed_ones_once() {
    let mut world = World::new(nightly());
    world.settle();
    assert_eq!((world.jobs.len(), world.status().phase), (0, None));
    assert_eq!(world.status().next_run_time.map(|it| it.0), Some(at("2026-11-18T02:00:00Z")));
    let written = world.statuses;
    world.at("2026-11-18T01:59:59Z").settle();
    assert_eq!((world.jobs.len(), world.statuses), (0, written), "nothing changed, so nothing is written");
    world.at("2026-11-18T02:00:00Z").settle();
    assert_eq!(world.jobs.len(), 1);
    world.at("2026-11-18T02:00:10Z").succeed().settle();
    assert_eq!(world.jobs.len(), 1);
    // The operator was down for four nights.
    world.at("2026-11-22T12:00:00Z").settle();
    assert_eq!(world.jobs.len(), 2);
    assert_eq!(world.status().last_schedule_time.map(|it| it.0), Some(at("2026-11-22T02:00:00Z")));
    world.succeed().settle();
    assert_eq!(world.jobs.len(), 2);
    for day in 23..29 {
        world.at(&format!("2026-11-{day}T02:00:00Z")).settle().succeed().settle();
    }
    assert_eq!(world.jobs.len(), KEPT_JOBS);
}

#[test]
fn no_time_of_the_schedule_has_two_runs_although_the_run_takes_longer_than_until_the_next() {
    let mut world = World::new(backup(json!({"schedule": "* * * * *"})));
    world.at("2026-11-17T10:01:00Z").settle();
    world.at("2026-11-17T10:05:30Z").settle();
    assert_eq!(world.jobs.len(), 1);
    world.succeed().settle();
    assert_eq!(world.jobs.len(), 2, "those that passed meanwhile have one run together");
    world.succeed().settle();
    assert_eq!(world.jobs.len(), 2);
}

#[test]
fn a_passing_failure_is_retried_a_few_times_and_then_reported() {
    let mut world = World::new(backup(json!({})));
    world.settle();
    for (retry, seconds) in [30, 120, 480].into_iter().enumerate() {
        world.fail("StoreUnreachable").settle();
        assert_eq!(world.reconciling(), "RetryPending");
        assert_eq!(world.status().phase, Some(BackupPhase::Running));
        world.now += SignedDuration::from_secs(seconds - 1);
        assert_eq!(world.settle().jobs.len(), (retry + 1).min(KEPT_JOBS), "it is too early");
        world.now += SignedDuration::from_secs(1);
        world.settle();
        assert_eq!(
            world.jobs.last().map(ResourceExt::name_any),
            Some(format!("nightly-0123abcd-g1-{}", retry + 1))
        );
    }
    world.fail("StoreUnreachable").settle();
    assert_eq!(
        (world.status().phase, world.status().consecutive_failures),
        (Some(BackupPhase::Failed), Some(4))
    );
    let (status, reason, message) = world.condition(condition::STALLED);
    assert_eq!((status.as_str(), reason.as_str()), ("True", "StoreUnreachable"));
    assert_eq!(message, "take: the store responded 403");
    let last = world.jobs.last().map(ResourceExt::name_any);
    world.now += SignedDuration::from_hours(24);
    assert_eq!(world.settle().jobs.last().map(ResourceExt::name_any), last);
}

#[test]
fn another_failure_waits_for_an_edit_or_for_the_next_time() {
    let mut world = World::new(backup(json!({})));
    world.settle().fail("StoreDenied").settle();
    assert_eq!(world.condition(condition::STALLED).1, "StoreDenied");
    world.now += SignedDuration::from_hours(24);
    assert_eq!(world.settle().jobs.len(), 1);
    world.backup.metadata.generation = Some(2);
    assert_eq!(world.settle().jobs.len(), 2);

    let mut world = World::new(nightly());
    world.at("2026-11-18T02:00:00Z").settle().fail("StoreRejected").settle();
    assert_eq!(world.condition(condition::STALLED).1, "NotStalled", "the next night tries again");
    assert_eq!(world.condition(condition::READY).1, "StoreRejected");
    world.at("2026-11-18T03:00:00Z").settle();
    assert_eq!(world.jobs.len(), 1);
    world.at("2026-11-19T02:00:00Z").settle().succeed().settle();
    assert_eq!((world.jobs.len(), world.status().consecutive_failures), (2, None));
}

#[test]
fn a_pod_that_is_lost_is_told_from_one_that_runs_out_of_memory_and_from_a_run_without_end() {
    let outcome = |containers: Value, pod_status: Value, job_reason: Option<&str>| {
        let mut world = World::new(backup(json!({})));
        world.settle().end("Failed", containers);
        let (_, pod) = world.pods.last_mut().expect("there is one");
        let status = pod.status.get_or_insert_default();
        status.reason = pod_status["reason"].as_str().map(str::to_owned);
        let conditions =
            world.jobs[0].status.as_mut().and_then(|it| it.conditions.as_mut()).expect("it ended");
        conditions[0].reason = job_reason.map(str::to_owned);
        world.settle();
        world.status().last_run.and_then(|run| run.failure).unwrap_or_default()
    };
    assert_eq!(outcome(json!([]), json!({"reason": "Evicted"}), None), "RunLost");
    assert_eq!(outcome(json!([]), json!({}), None), "RunLost");
    assert_eq!(outcome(json!([ended("take", 137, "")]), json!({}), None), "RunLost");
    let mut killed = ended("take", 137, "");
    killed["state"]["terminated"]["reason"] = "OOMKilled".into();
    assert_eq!(outcome(json!([killed]), json!({}), None), "OutOfMemory");
    assert_eq!(outcome(json!([]), json!({}), Some("DeadlineExceeded")), "RunTimedOut");
    assert_eq!(outcome(json!([ended("probe", 101, "panicked")]), json!({}), None), "RunFailed");
    assert_eq!(
        outcome(json!([ended("probe", 9, &failed("OfALaterVersion").to_string())]), json!({}), None),
        "RunFailed"
    );
}

#[test]
fn a_copy_counts_although_outdated_ones_could_not_be_deleted() {
    let mut world = World::new(backup(json!({"retentionPolicy": {"maxBackups": 2}})));
    world.settle();
    let containers = json!([
        ended("take", 0, &taken().to_string()),
        ended("prune", 4, &failed("StoreDenied").to_string())
    ]);
    world.end("Failed", containers).settle();
    assert_eq!((world.status().phase, world.status().copies.len()), (Some(BackupPhase::Completed), 1));
    let (status, reason, message) = world.condition(condition::READY);
    assert_eq!((status.as_str(), reason.as_str()), ("True", "RetentionFailed"));
    assert!(
        message.ends_with("outdated copies were not deleted: prune: the store responded 403"),
        "{message}"
    );
}

#[test]
fn what_the_retention_deleted_is_not_listed_any_more() {
    let mut world =
        World::new(backup(json!({"schedule": "* * * * *", "retentionPolicy": {"maxBackups": 2}})));
    world.at("2026-11-17T10:01:00Z").settle().succeed().settle();
    let mut second = taken();
    second["copy"]["name"] = "20261118T020101Z-0123456789abcdef".into();
    let pruned = json!({
        "formatVersion": 1, "programVersion": "0.1.0", "outcome": "Succeeded", "verb": "prune",
        "deleted": [COPY], "deletedCount": 1, "kept": 1, "unreadable": 0, "withoutManifest": 0,
    });
    let containers = json!([ended("take", 0, &second.to_string()), ended("prune", 0, &pruned.to_string())]);
    world.at("2026-11-17T10:02:00Z").settle().end("Complete", containers).settle();
    let names: Vec<_> = world.status().copies.into_iter().map(|copy| copy.name).collect();
    assert_eq!(names, ["20261118T020101Z-0123456789abcdef"]);
}

#[test]
fn what_a_run_needs_is_awaited_by_name() {
    let waits = |change: fn(&mut World)| {
        let mut world = World::new(backup(json!({})));
        change(&mut world);
        world.settle();
        assert!(world.jobs.iter().all(|job| !job.name_any().starts_with("nightly")));
        world.reconciling()
    };
    let of =
        |world: &mut World, change: fn(&mut Cluster)| change(world.cluster.as_mut().expect("it is there"));
    assert_eq!(waits(|world| world.cluster = None), "ClusterNotFound");
    type ChangeOf = fn(&mut Cluster);
    let cases: [(ChangeOf, &str); 4] = [
        (|cluster| cluster.id = None, "NotBootstrapped"),
        (|cluster| cluster.is_stopped = true, "Stopped"),
        (|cluster| cluster.is_deleting = true, "Deleting"),
        (|cluster| cluster.serving = 0, "MembersNotServing"),
    ];
    for (change, reason) in cases {
        let mut world = World::new(backup(json!({})));
        of(&mut world, change);
        world.settle();
        assert_eq!((world.jobs.len(), world.reconciling().as_str()), (0, reason));
        assert!(world.decide().again_at.is_some());
        world.cluster = Some(cluster());
        assert_eq!(world.settle().jobs.len(), 1, "{reason}");
    }
    assert_eq!(
        waits(|world| {
            let mut other = World::new(backup(json!({})));
            other.backup.metadata.uid = Some("another".into());
            other.backup.metadata.name = Some("other".into());
            world.jobs = std::mem::take(&mut other.settle().jobs);
        }),
        "OtherBackupRunning"
    );
}

#[test]
fn a_suspended_backup_starts_no_run_and_makes_up_for_them_once() {
    let mut world = World::new(backup(json!({"schedule": "0 2 * * *", "suspend": true})));
    world.at("2026-11-20T12:00:00Z").settle();
    assert_eq!((world.jobs.len(), world.reconciling()), (0, "Suspended".into()));
    assert_eq!(world.status().next_run_time, None);
    world.backup.spec.suspend = false;
    assert_eq!(world.settle().jobs.len(), 1);
}

#[test]
fn an_invalid_spec_is_reported_with_its_fields_and_an_older_mark_waits_for_an_edit() {
    let mut world = World::new(backup(json!({"s3": null})));
    world.settle();
    let (_, reason, message) = world.condition(condition::STALLED);
    assert_eq!(reason, "InvalidSpec");
    assert_eq!(message, "spec: storageType S3 requires a bucket: set s3.bucket");
    assert_eq!(world.jobs.len(), 0);

    let mut world = World::new(backup(json!({})));
    let mark = json!({"phase": "Failed", "observedGeneration": 1, "conditions": [{
        "type": "Stalled", "status": "True", "reason": "NotImplemented", "message": "", "observedGeneration": 1,
        "lastTransitionTime": CREATED,
    }]});
    world.backup.status = Some(serde_json::from_value(mark).expect("a status"));
    world.settle();
    assert_eq!((world.jobs.len(), world.condition(condition::STALLED).1), (0, "AwaitingEdit".into()));
    world.backup.metadata.generation = Some(2);
    assert_eq!(world.settle().jobs.len(), 1);
}

#[test]
fn a_cluster_of_another_namespace_has_to_allow_it() {
    let mut world = World::new(backup(json!({"clusterNamespace": "prod"})));
    world.settle();
    let (_, reason, message) = world.condition(condition::STALLED);
    assert_eq!((world.jobs.len(), reason.as_str()), (0, "NamespaceNotAllowed"));
    let command = "kubectl annotate -n prod etcd kv etcd.etcd.io/allow-from-namespaces=ns";
    assert!(message.ends_with(command), "{message}");
    let cluster = world.cluster.as_mut().expect("it is there");
    cluster.names.namespace = "prod".into();
    cluster.allowed = vec!["other".into(), "ns".into()];
    world.settle();
    assert_eq!(world.jobs.len(), 1);
    assert_eq!(world.jobs[0].metadata.owner_references, None);
}

#[test]
fn a_pod_that_cannot_start_is_reported_and_replaced_after_an_edit() {
    let mut world = World::new(backup(json!({})));
    world.settle();
    let message = "couldn't find key AWS_ACCESS_KEY_ID in Secret ns/keys";
    let waiting = json!({
        "name": "probe", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}},
    });
    let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending", "initContainerStatuses": [waiting]}});
    world.pods.push((world.jobs[0].name_any(), serde_json::from_value(pod).expect("it is a pod")));
    world.settle();
    let (_, reason, reported) = world.condition(condition::RECONCILING);
    assert_eq!(reason, "PodStartFailed");
    assert!(reported.ends_with(message), "{reported}");
    world.backup.metadata.generation = Some(2);
    world.settle();
    assert_eq!(world.jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["nightly-0123abcd-g2-0"]);
}

#[test]
fn the_pod_of_a_run_has_no_token_no_secret_in_it_and_few_rights() {
    let mut world = World::new(backup(json!({
        "compression": true, "retentionPolicy": {"maxBackups": 2, "maxAge": "30d"},
        "encryption": {"recipients": [format!("age1{}", "q".repeat(58))]},
    })));
    world.settle();
    let job = &world.jobs[0];
    let spec = job.spec.as_ref().and_then(|spec| spec.template.spec.clone()).expect("it has a pod");
    assert_eq!(spec.automount_service_account_token, Some(false));
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    let security = spec.security_context.clone().expect("it is restricted");
    assert_eq!(security.run_as_non_root, Some(true));
    let all: Vec<_> = spec.init_containers.iter().flatten().chain(&spec.containers).collect();
    let commands: Vec<_> = all.iter().map(|it| it.command.clone().unwrap_or_default().join(" ")).collect();
    assert_eq!(commands, ["/etcd-backup probe", "/etcd-backup take", "/etcd-backup prune"]);
    for container in all {
        let own = container.security_context.clone().expect("it is restricted");
        assert_eq!(
            (own.read_only_root_filesystem, own.allow_privilege_escalation),
            (Some(true), Some(false))
        );
        let environment = container.env.clone().unwrap_or_default();
        let inputs = environment.iter().find(|it| it.name == INPUTS_VARIABLE).and_then(|it| it.value.clone());
        let inputs: Inputs =
            serde_json::from_str(&inputs.unwrap_or_default()).expect("the program can read them");
        assert_eq!(inputs.problem(), None);
        let etcd = inputs.etcd.expect("it has endpoints");
        assert_eq!(etcd.endpoints, ["https://kv-0.kv-peer.ns.svc.cluster.local:2379"]);
        assert_eq!(inputs.retention.max_age_seconds, Some(30 * 86_400));
        let references = environment.iter().filter(|it| it.name.starts_with("AWS_"));
        assert!(references.clone().all(|it| it.value.is_none()) && references.count() == 3);
    }
    let secrets: Vec<_> =
        spec.volumes.iter().flatten().filter_map(|it| it.secret.as_ref()?.secret_name.clone()).collect();
    assert_eq!(secrets, ["kv-operator-tls"]);
}

#[test]
fn each_run_has_an_event_for_its_start_and_one_for_its_end() {
    let mut world = World::new(backup(json!({})));
    let mut told = Vec::new();
    let mut settle = |world: &mut World| {
        let before = world.backup.status.clone();
        world.settle();
        let events = events::of_change(before.as_ref(), &world.status());
        told.extend(events.into_iter().map(|event| (event.reason, event.warning)));
    };
    world.cluster = None;
    settle(&mut world);
    world.cluster = Some(cluster());
    settle(&mut world);
    settle(world.fail("Interrupted"));
    world.now += SignedDuration::from_mins(1);
    settle(&mut world);
    settle(world.fail("StoreDenied"));
    world.backup.metadata.generation = Some(2);
    settle(&mut world);
    settle(world.succeed());
    settle(&mut world);
    let expected = [
        ("ClusterNotFound", true),
        ("BackupStarted", false),
        ("Interrupted", true),
        ("BackupStarted", false),
        ("StoreDenied", true),
        ("BackupStarted", false),
        ("BackupCompleted", false),
    ];
    assert_eq!(told, expected.map(|(reason, warning)| (reason.to_owned(), warning)));
}

#[test]
fn a_backup_that_is_being_deleted_starts_nothing() {
    let mut world = World::new(backup(json!({})));
    world.backup.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    assert_eq!(world.settle().jobs.len(), 0);
}

#[test]
fn jobs_of_a_previous_object_of_the_name_are_deleted_and_others_are_not() {
    let mut world = World::new(backup(json!({})));
    world.settle();
    assert_eq!(orphans(world.jobs.iter(), Some("0123abcd-4567")), []);
    assert_eq!(orphans(world.jobs.iter(), Some("another")).len(), 1);
    assert_eq!(orphans(world.jobs.iter(), None).len(), 1);
}

#[path = "properties.rs"]
mod properties;

#[path = "requested/tests.rs"]
mod requested;
