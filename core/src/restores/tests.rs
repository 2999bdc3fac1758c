use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::agent::restoration::{Restoration, VARIABLE};
use crate::backup::inputs::{INPUTS_VARIABLE, Inputs};
use crate::names::{
    ALLOW_FROM_ANNOTATION, MEMBER_ID_LABEL, REPLACE_ANNOTATION, RESTORE_ANNOTATION, condition,
};
use crate::status::find;

pub(super) const CREATED: &str = "2026-11-19T10:00:00Z";
const COPY: &str = "20261118T020001Z-0123456789abcdef";

pub(super) fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

/// Without the fields that are null.
pub(super) fn restore(changes: Value) -> EtcdRestore {
    let mut spec = json!({"backupName": "nightly", "clusterName": "kv", "clusterTemplate": {"size": 3}});
    for (field, value) in changes.as_object().expect("an object") {
        spec[field] = value.clone();
    }
    spec.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    let metadata = json!({
        "name": "back", "namespace": "ns", "uid": "feedbeef-1234", "generation": 1, "resourceVersion": "7",
        "creationTimestamp": CREATED,
    });
    let object = json!({"apiVersion": "etcd.etcd.io/v1alpha1", "kind": "EtcdRestore", "metadata": metadata, "spec": spec});
    serde_json::from_value(object).expect("it is an EtcdRestore")
}

pub(super) fn usual() -> EtcdRestore {
    restore(json!({}))
}

fn backup(namespace: &str) -> EtcdBackup {
    let spec = json!({
        "clusterName": "old", "storageType": "S3",
        "s3": {"bucket": "b", "path": "prod/", "accessKeySecret": "keys", "secretKeySecret": "keys", "caSecret": "ca"},
    });
    let copy = json!({
        "name": COPY, "time": CREATED, "revision": 5, "size": 9, "location": format!("s3://b/prod/cdf8/data/{COPY}.db"),
    });
    let object = json!({
        "metadata": {"name": "nightly", "namespace": namespace, "uid": "b"},
        "spec": spec, "status": {"copies": [copy]},
    });
    serde_json::from_value(object).expect("it is an EtcdBackup")
}

/// What the world does with an EtcdRestore while decisions are carried out.
pub(super) struct World {
    pub restore: EtcdRestore,
    pub backup: Option<EtcdBackup>,
    pub cluster: Option<EtcdCluster>,
    pub claims: BTreeMap<Ordinal, PersistentVolumeClaim>,
    pub replaced: Vec<String>,
    pub jobs: Vec<Job>,
    pub pods: Vec<(String, Pod)>,
    pub now: Timestamp,
    /// How often data was made on each volume, by the UID of its claim.
    pub prepared: BTreeMap<String, usize>,
    pub clusters_created: usize,
    pub jobs_created: usize,
    pub claims_created: usize,
}

impl World {
    pub fn new(restore: EtcdRestore) -> Self {
        Self {
            restore,
            backup: Some(backup("ns")),
            cluster: None,
            claims: BTreeMap::new(),
            replaced: Vec::new(),
            jobs: Vec::new(),
            pods: Vec::new(),
            now: at(CREATED),
            prepared: BTreeMap::new(),
            clusters_created: 0,
            jobs_created: 0,
            claims_created: 0,
        }
    }

    pub fn runs(&self) -> Vec<Run> {
        let pod = |job: &Job| self.pods.iter().find(|(name, _)| *name == job.name_any()).map(|(_, pod)| pod);
        self.jobs.iter().filter_map(|job| Run::of(job, pod(job), self.now)).collect()
    }

    pub fn decide(&self) -> Decision {
        let runs = self.runs();
        let seen = Seen {
            restore: &self.restore,
            backup: self.backup.as_ref(),
            cluster: self.cluster.as_ref(),
            claims: &self.claims,
            replaced: &self.replaced,
            runs: &runs,
            image: "operator",
            domain: "cluster.local",
            trouble: None,
            now: self.now,
        };
        let decision = decide(&seen);
        assert_eq!(decision, decide(&seen), "the same observation has the same decision");
        decision
    }

    /// Until nothing more is done at this time.
    pub fn settle(&mut self) -> &mut Self {
        for _ in 0..20 {
            let decision = self.decide();
            if decision.status.is_none() && decision.writes.is_empty() {
                return self;
            }
            self.carry_out(decision);
        }
        panic!("it never settles: {:?}", self.decide());
    }

    pub fn carry_out(&mut self, Decision { status, writes, .. }: Decision) {
        self.restore.status = status.or(self.restore.status.take());
        for write in writes {
            self.apply(write);
        }
    }

    pub fn apply(&mut self, write: Write) {
        match write {
            Write::CreateCluster(cluster) if self.cluster.is_none() => {
                let mut cluster = *cluster;
                self.clusters_created += 1;
                cluster.metadata.uid = Some(format!("cluster-{}", self.clusters_created));
                cluster.metadata.creation_timestamp = Some(Time(self.now));
                self.cluster = Some(cluster);
            }
            Write::CreateClaim(claim) if !self.claims.contains_key(&Ordinal(0)) => {
                let mut claim = *claim;
                self.claims_created += 1;
                claim.metadata.uid = Some(format!("claim-{}", self.claims_created));
                claim.metadata.resource_version = Some("1".into());
                self.claims.insert(Ordinal(0), claim);
            }
            Write::CreateJob(job) if !self.jobs.iter().any(|it| it.name_any() == job.name_any()) => {
                let mut job = *job;
                self.jobs_created += 1;
                job.metadata.uid = Some(format!("uid of {}", job.name_any()));
                job.metadata.creation_timestamp = Some(Time(self.now));
                self.jobs.push(job);
            }
            // There is one already.
            Write::CreateCluster(_) | Write::CreateClaim(_) | Write::CreateJob(_) => {}
            Write::DeleteJob { name, .. } => {
                self.jobs.retain(|job| job.name_any() != name);
                self.pods.retain(|(job, _)| *job != name);
            }
            Write::DeleteClaim { uid, .. } => {
                self.claims.retain(|_, claim| {
                    assert!(!claim.labels().contains_key(MEMBER_ID_LABEL), "data that a cluster might have");
                    claim.metadata.uid.as_ref() != Some(&uid)
                });
            }
            Write::Order { uid, version, replacement, .. } => {
                let Some(cluster) = self.cluster.as_mut() else { return };
                if cluster.metadata.uid.as_ref() != Some(&uid)
                    || cluster.metadata.resource_version.as_ref() != Some(&version)
                {
                    return;
                }
                cluster.metadata.resource_version = Some(format!("{version}1"));
                let text = replacement.map(|it| serde_json::to_string(&it).expect("it is JSON"));
                let annotations = cluster.annotations_mut();
                annotations.remove(REPLACE_ANNOTATION);
                annotations.extend(text.map(|text| (REPLACE_ANNOTATION.to_owned(), text)));
            }
            Write::Label { uid, version, member, keeps_owner, .. } => {
                let Some(claim) = self.claims.get_mut(&Ordinal(0)) else { return };
                if claim.metadata.uid.as_ref() != Some(&uid)
                    || claim.metadata.resource_version.as_ref() != Some(&version)
                {
                    return;
                }
                assert!(self.jobs.is_empty(), "a Job uses the volume of a member that starts");
                assert!(self.prepared.contains_key(&uid), "a member starts without data");
                if !keeps_owner {
                    claim.metadata.owner_references = None;
                }
                let labels = claim.metadata.labels.get_or_insert_default();
                labels.insert(MEMBER_ID_LABEL.into(), member.to_string());
            }
        }
    }

    /// What the worker of the cluster does first.
    pub fn cluster_is_prepared(&mut self) -> &mut Self {
        let cluster = self.cluster.as_mut().expect("it is there");
        cluster.metadata.finalizers = Some(vec![FINALIZER.into()]);
        let status = json!({"domain": "cluster.local"});
        cluster.status = Some(serde_json::from_value(status).expect("a status"));
        self.settle()
    }

    pub fn cluster_serves(&mut self) -> &mut Self {
        let cluster = self.cluster.as_mut().expect("it is there");
        let status = json!({"domain": "cluster.local", "clusterID": "abc", "readyReplicas": 1});
        cluster.status = Some(serde_json::from_value(status).expect("a status"));
        self.settle()
    }

    /// The newest Job ends like this, with these containers.
    pub fn end(&mut self, type_: &str, containers: Value) -> &mut Self {
        let job = self.jobs.last_mut().expect("there is a Job");
        let condition = json!({"type": type_, "status": "True", "lastTransitionTime": self.now.to_string()});
        job.status = serde_json::from_value(json!({"conditions": [condition]})).expect("a status");
        let phase = if type_ == "Complete" { "Succeeded" } else { "Failed" };
        let pod = json!({"metadata": {"name": "p"}, "status": {"phase": phase, "initContainerStatuses": containers}});
        let name = job.name_any();
        self.pods.push((name, serde_json::from_value(pod).expect("it is a pod")));
        self
    }

    pub fn prepare(&mut self) {
        let run = self.runs().pop().expect("there is a Job");
        *self.prepared.entry(run.attempt.claim_uid).or_default() += 1;
    }

    pub fn succeed(&mut self) -> &mut Self {
        self.prepare();
        let restored = json!({"restoreUid": "feedbeef-1234", "revision": 41, "servedRevision": 1_000_000_041, "bytes": 24_576});
        self.end(
            "Complete",
            json!([ended("fetch", 0, &fetched().to_string()), ended("restore", 0, &restored.to_string())]),
        )
    }

    pub fn fail(&mut self, reason: &str) -> &mut Self {
        self.end("Failed", json!([ended("fetch", 1, &failed(reason).to_string())]))
    }

    fn at(&mut self, time: &str) -> &mut Self {
        self.now = at(time);
        self
    }

    pub fn status(&self) -> EtcdRestoreStatus {
        self.restore.status.clone().unwrap_or_default()
    }

    fn condition(&self, type_: &str) -> (String, String, String) {
        let status = self.status();
        let it = find(&status.conditions, type_).expect("it is there");
        (it.status.clone(), it.reason.clone(), it.message.clone())
    }

    fn stalled(&self) -> (String, String) {
        let (status, reason, message) = self.condition(condition::STALLED);
        assert_eq!(status, "True");
        (reason, message)
    }
}

fn ended(name: &str, code: i32, message: &str) -> Value {
    json!({
        "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "message": message}},
    })
}

fn fetched() -> Value {
    json!({
        "formatVersion": 1, "programVersion": "0.1.0", "outcome": "Succeeded", "verb": "fetch",
        "copy": {
            "name": COPY, "completedAt": "2026-11-18T02:00:09Z", "revision": {"lowest": 41, "highest": 41},
            "etcdVersion": "3.5.21", "bytes": 20_480, "compression": "Zstd", "encryption": "None", "verification": "ReadBack",
        },
    })
}

fn failed(reason: &str) -> Value {
    json!({
        "formatVersion": 1, "programVersion": "0.1.0", "outcome": "Failed", "reason": reason,
        "message": "the store responded 403",
    })
}

fn phase(world: &World) -> Option<RestorePhase> {
    world.status().phase
}

#[test]
fn a_restore_creates_a_cluster_its_first_volume_and_a_job_and_the_cluster_starts_when_the_job_is_gone() {
    let mut world = World::new(usual());
    world.settle();
    let cluster = world.cluster.clone().expect("it is created");
    assert_eq!(cluster.spec.size, 3);
    // Nothing bootstraps it by accident: the mark is in the request that creates it.
    let mark = json!({"name": "back", "uid": "feedbeef-1234"}).to_string();
    assert_eq!(cluster.annotations().get(RESTORE_ANNOTATION), Some(&mark));
    assert_eq!((world.claims.len(), world.jobs.len()), (0, 0), "its worker comes first");
    let status = world.status();
    assert_eq!(
        (status.incarnation.as_deref(), status.restored_cluster.as_deref()),
        (Some("cluster-1"), Some("kv"))
    );
    world.cluster_is_prepared();
    let claim = world.claims.get(&Ordinal(0)).expect("it is created");
    assert_eq!(claim.name_any(), "data-kv-0");
    assert_eq!(claim.labels().get(CLUSTER_UID_LABEL).map(String::as_str), Some("cluster-1"));
    assert_eq!(claim.labels().get(MEMBER_ID_LABEL), None);
    assert_eq!(world.jobs.len(), 1);
    assert_eq!(world.jobs[0].name_any(), "back-feedbeef-restore-0");

    // The outcome is in the status before the Job goes, and the Job is gone before the claim has its label.
    world.at("2026-11-19T10:01:00Z").succeed();
    let decision = world.decide();
    assert!(decision.writes.is_empty());
    world.carry_out(decision);
    let status = world.status();
    assert_eq!(
        (status.restored_revision, status.served_revision, status.restored_size, status.copy_name.as_deref()),
        (Some(41), Some(1_000_000_041), Some(24_576), Some(COPY))
    );
    assert_eq!(status.restored_volume_uid.as_deref(), Some("claim-1"));
    let decision = world.decide();
    assert!(matches!(&decision.writes[..], [Write::DeleteJob { .. }]), "{decision:?}");
    world.settle();
    assert!(world.claims[&Ordinal(0)].labels().contains_key(MEMBER_ID_LABEL));
    assert_eq!(phase(&world), Some(RestorePhase::Running));
    assert_eq!(world.condition(condition::RECONCILING).1, "RestoreRunning");

    world.at("2026-11-19T10:02:00Z").cluster_serves();
    assert_eq!(phase(&world), Some(RestorePhase::Completed));
    assert_eq!(
        world.condition(condition::READY),
        (
            "True".into(),
            "RestoreCompleted".into(),
            format!(
                "EtcdCluster kv serves copy {COPY}, which has revision 41; its own revisions begin at 1000000041"
            )
        )
    );
    assert_eq!(world.status().completion_time, Some(Time(at("2026-11-19T10:02:00Z"))));
    // Whatever becomes of the cluster or of the spec, it is never carried out again.
    world.cluster = None;
    world.claims.clear();
    world.restore.metadata.generation = Some(2);
    world.settle();
    assert_eq!((world.clusters_created, world.jobs_created), (1, 1));
    assert_eq!(phase(&world), Some(RestorePhase::Completed));
}

#[test]
fn the_job_has_the_volume_and_no_token_and_each_container_has_what_it_needs() {
    let mut world = World::new(restore(json!({
        "copyName": COPY, "identitySecret": "age",
        "clusterTemplate": {"version": "v3.5.5", "podTemplate": {
            "nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "etcd", "operator": "Exists"}],
        }},
    })));
    world.settle().cluster_is_prepared();
    let pod = world.jobs[0].spec.as_ref().and_then(|it| it.template.spec.clone()).expect("it has a pod");
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.node_selector.as_ref().and_then(|it| it.get("disk")).map(String::as_str), Some("fast"));
    assert_eq!(pod.tolerations.as_ref().map(Vec::len), Some(1), "those of lost nodes are for members");
    let security = pod.security_context.clone().expect("it is restricted");
    assert_eq!((security.run_as_non_root, security.fs_group), (Some(true), Some(65532)));
    let init = pod.init_containers.clone().unwrap_or_default();
    let names: Vec<_> = init.iter().chain(&pod.containers).map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["install-agent", "fetch", "restore"]);
    for container in init.iter().chain(&pod.containers) {
        let security = container.security_context.as_ref().expect("it is restricted");
        assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
    }
    let command = |at: usize| init[at].command.clone().unwrap_or_default().join(" ");
    assert_eq!(
        command(1),
        format!(
            "/etcd-backup fetch --output=/var/lib/etcd/restore/snapshot.db --for-etcd=3.5.5 \
             --unless-exists=/var/lib/etcd/restored.json --highest=/var/lib/etcd/restore/highest-revision \
             --identity=/etc/etcd-backup/identity/identity {COPY}"
        )
    );
    let variables = init[1].env.clone().unwrap_or_default();
    let inputs = variables.iter().find(|it| it.name == INPUTS_VARIABLE).and_then(|it| it.value.clone());
    let inputs: Inputs = serde_json::from_str(&inputs.expect("it is given")).expect("inputs");
    assert_eq!((inputs.problem(), inputs.cluster_id.as_deref()), (None, Some("cdf8")));
    let secret = |it: &k8s_openapi::api::core::v1::EnvVar| it.value_from.as_ref()?.secret_key_ref.clone();
    assert!(variables.iter().any(|it| secret(it).is_some_and(|it| it.name == "keys")));
    // An etcdutl before 3.5.10 cannot raise revisions.
    assert_eq!(pod.containers[0].image.as_deref(), Some("quay.io/coreos/etcd:v3.5.35"));
    let variable = pod.containers[0].env.as_ref().and_then(|it| it.first()).expect("it is given");
    assert_eq!(variable.name, VARIABLE);
    let restoration: Restoration =
        serde_json::from_str(variable.value.as_deref().unwrap_or_default()).expect("it can be read");
    assert_eq!(restoration.token(), "cluster-1-feedbeef-1234");
    assert_eq!(restoration.peer_url, "https://kv-0.kv-peer.ns.svc.cluster.local:2380");
    assert_eq!(restoration.bump_revision, Some(1_000_000_000));
    let claims: Vec<_> = pod
        .volumes
        .iter()
        .flatten()
        .filter_map(|it| Some(it.persistent_volume_claim.as_ref()?.claim_name.as_str()))
        .collect();
    assert_eq!(claims, ["data-kv-0"]);
    // The label is that of the member which etcdutl creates.
    world.succeed().settle();
    let label = world.claims[&Ordinal(0)].labels().get(MEMBER_ID_LABEL).cloned();
    assert_eq!(label, Some(restoration.member_id().to_string()));
}

#[test]
fn revisions_stay_as_they_are_only_on_request() {
    let mut world = World::new(restore(json!({"revisionBump": "Disabled"})));
    world.settle().cluster_is_prepared();
    let pod = world.jobs[0].spec.as_ref().and_then(|it| it.template.spec.clone()).expect("it has a pod");
    let text = pod.containers[0].env.as_ref().and_then(|it| it[0].value.clone()).unwrap_or_default();
    let restoration: Restoration = serde_json::from_str(&text).expect("it can be read");
    assert_eq!(restoration.bump_revision, None);
}

/// etcd is in its own image, and the program is brought there.
#[test]
fn a_revision_and_a_moment_are_replayed_in_the_image_of_etcd() {
    let moment = "2026-11-18T02:00:00.5Z";
    for (field, value, target) in [
        ("toRevision", json!(7), "--to-revision=7".to_owned()),
        ("toTime", json!(moment), format!("--to-time={moment}")),
    ] {
        let template = json!({"size": 1, "version": "3.5.5", "resources": {"limits": {"memory": "1Gi"}}});
        let mut world =
            World::new(restore(json!({field: value, "clusterTemplate": template, "identitySecret": "age"})));
        world.settle().cluster_is_prepared();
        let pod = world.jobs[0].spec.as_ref().and_then(|it| it.template.spec.clone()).expect("it has a pod");
        let init = pod.init_containers.unwrap_or_default();
        let names: Vec<_> = init.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["install-agent", "install-replay", "replay"]);
        assert_eq!(
            init[1].command.clone().unwrap_or_default().join(" "),
            "/etcd-backup install /run/etcd-agent"
        );
        assert_eq!(
            (init[1].image.as_deref(), init[2].image.as_deref()),
            (Some("operator"), Some("quay.io/coreos/etcd:v3.5.35"))
        );
        assert_eq!(
            init[2].command.clone().unwrap_or_default().join(" "),
            format!(
                "/run/etcd-agent/etcd-backup replay --output=/var/lib/etcd/restore/snapshot.db --for-etcd=3.5.5 \
                 --unless-exists=/var/lib/etcd/restored.json --highest=/var/lib/etcd/restore/highest-revision \
                 --identity=/etc/etcd-backup/identity/identity {target} --scratch=/var/lib/etcd/restore/scratch --etcd=etcd \
                 --etcdutl=etcdutl"
            )
        );
        let limits = init[2].resources.as_ref().and_then(|it| it.limits.clone()).unwrap_or_default();
        assert_eq!(limits["memory"].0, "1280Mi");
        let mounted: Vec<_> = init[2].volume_mounts.iter().flatten().map(|it| it.name.as_str()).collect();
        assert_eq!(mounted, ["data", "store-ca", "identity", "run"]);
        for container in &init {
            let security = container.security_context.as_ref().expect("it is restricted");
            assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
        }
    }
}

#[test]
fn what_was_replayed_is_in_the_status_with_what_it_cannot_have() {
    let mut world = World::new(restore(json!({"toRevision": 12})));
    world.settle().cluster_is_prepared();
    let mut replayed = fetched();
    (replayed["verb"], replayed["revision"], replayed["replayed"]) = (json!("replay"), json!(12), json!(7));
    world.succeed();
    let (_, pod) = world.pods.last_mut().expect("it is there");
    let statuses =
        pod.status.as_mut().and_then(|it| it.init_container_statuses.as_mut()).expect("they are there");
    statuses[0] = serde_json::from_value(ended("replay", 0, &replayed.to_string())).expect("a status");
    world.settle().cluster_serves();
    let status = world.status();
    assert_eq!((status.phase, status.replayed_revisions), (Some(RestorePhase::Completed), Some(7)));
    assert_eq!(status.copy_name.as_deref(), Some(COPY));
    let ready = find(&status.conditions, condition::READY).expect("it is there");
    assert!(
        ready.message.contains("7 revisions of the archive") && ready.message.contains("users, roles"),
        "{}",
        ready.message
    );
}

#[test]
fn a_store_alone_is_enough() {
    let source = json!({"storageType": "S3", "s3": {"bucket": "b"}, "clusterID": "cdf8"});
    let mut world = World::new(restore(json!({"backupName": null, "source": source})));
    world.backup = None;
    world.settle().cluster_is_prepared().succeed().settle().cluster_serves();
    assert_eq!(phase(&world), Some(RestorePhase::Completed));
}

#[test]
fn what_is_wrong_with_a_restore_is_named_before_anything_is_created() {
    for (changes, reason, part) in [
        (
            json!({"source": {"storageType": "S3", "s3": {"bucket": "b"}}}),
            "InvalidSpec",
            "set either backupName",
        ),
        (json!({"clusterTemplate": null}), "InvalidSpec", "set clusterTemplate"),
        (json!({"clusterTemplate": {"size": 0}}), "InvalidSpec", "must be at least 1"),
        (json!({"clusterTemplate": {"version": "3.5.1"}}), "InvalidSpec", "spec.clusterTemplate.version"),
        (json!({"clusterName": "1kv"}), "InvalidSpec", "spec.clusterName"),
        (json!({"dataDir": "/var/lib/etcd"}), "InvalidSpec", "spec.dataDir: cannot be chosen"),
        (json!({"walDir": "/wal"}), "InvalidSpec", "spec.walDir: cannot be chosen"),
        (json!({"skipHashCheck": true}), "InvalidSpec", "spec.skipHashCheck: is refused"),
        (json!({"copyName": "x"}), "InvalidSpec", "spec.copyName: x is not the name of a copy"),
        (json!({"copyName": COPY, "toRevision": 5}), "InvalidSpec", "at most one of copyName"),
        (json!({"identitySecret": "A"}), "InvalidSpec", "names of Kubernetes objects"),
        (
            json!({"backupName": null, "source": {"storageType": "S3"}}),
            "InvalidSpec",
            "spec.source: storageType S3 requires a bucket",
        ),
        (
            json!({"backupName": null, "source": {"storageType": "S3", "s3": {"bucket": "b"}, "clusterID": "kv"}}),
            "InvalidSpec",
            "spec.source.clusterID",
        ),
        (json!({"restoreType": "Replace", "clusterTemplate": null}), "InvalidSpec", "requires consent"),
        (json!({"replace": {"clusterID": "c1"}}), "InvalidSpec", "which only restoreType Replace needs"),
        (
            json!({"restoreType": "Replace", "clusterTemplate": null, "replace": {"clusterID": "C1"}}),
            "InvalidSpec",
            "must be status.clusterID",
        ),
        (
            json!({"restoreType": "Replace", "replace": {"clusterID": "c1"}}),
            "InvalidSpec",
            "would have no effect",
        ),
    ] {
        let mut world = World::new(restore(changes.clone()));
        world.settle();
        let (found, message) = world.stalled();
        assert!(found == reason && message.contains(part), "{changes}: {found}: {message}");
        assert_eq!(world.clusters_created, 0, "{changes}");
        // It is not over: an edit can correct it.
        assert_eq!(world.status().completion_time, None, "{changes}");
        world.restore = EtcdRestore { status: world.restore.status.clone(), ..usual() };
        world.restore.metadata.generation = Some(2);
        world.settle();
        assert_eq!(world.clusters_created, 1, "{changes}");
    }
}

#[test]
fn a_backup_of_another_namespace_has_to_allow_it() {
    let mut world = World::new(restore(json!({"backupNamespace": "other"})));
    world.backup = Some(backup("other"));
    world.settle();
    let (reason, message) = world.stalled();
    assert_eq!(reason, "NamespaceNotAllowed");
    assert!(
        message
            .ends_with("kubectl annotate -n other etcdbackup nightly etcd.etcd.io/allow-from-namespaces=ns")
    );
    assert_eq!(world.clusters_created, 0);
    let annotations = world.backup.as_mut().expect("it is there").annotations_mut();
    annotations.insert(ALLOW_FROM_ANNOTATION.into(), "a, ns".into());
    world.settle();
    assert_eq!(world.clusters_created, 1);
}

#[test]
fn a_missing_backup_is_awaited() {
    let mut world = World::new(usual());
    world.backup = None;
    world.settle();
    assert_eq!(world.condition(condition::RECONCILING).1, "BackupNotFound");
    world.backup = Some(backup("ns"));
    world.settle();
    assert_eq!(world.clusters_created, 1);
}

#[test]
fn a_cluster_that_exists_and_volumes_of_a_previous_one_are_never_touched() {
    let mut world = World::new(usual());
    let mut other = EtcdCluster::new("kv", Default::default());
    other.metadata.uid = Some("other".into());
    world.cluster = Some(other);
    world.settle();
    assert_eq!(world.stalled().0, "ClusterExists");
    // Not later either, when it is gone.
    world.cluster = None;
    world.settle();
    assert_eq!((phase(&world), world.clusters_created), (Some(RestorePhase::Failed), 0));

    let mut world = World::new(usual());
    let claim = json!({"metadata": {"name": "data-kv-1", "labels": {CLUSTER_UID_LABEL: "previous"}}});
    world.claims.insert(Ordinal(1), serde_json::from_value(claim).expect("a claim"));
    world.settle();
    let (reason, message) = world.stalled();
    assert!(reason == "ForeignVolumes" && message.contains("data-kv-1"), "{message}");
    assert_eq!(world.clusters_created, 0);
}

#[test]
fn a_passing_failure_is_repeated_a_few_times_and_any_other_is_the_end() {
    let mut world = World::new(usual());
    world.settle().cluster_is_prepared().fail("StoreUnreachable").settle();
    assert_eq!((phase(&world), world.jobs.len()), (Some(RestorePhase::Running), 0));
    assert_eq!(world.condition(condition::RECONCILING).1, "RetryPending");
    for (time, job) in [
        ("2026-11-19T10:00:30Z", "back-feedbeef-restore-1"),
        ("2026-11-19T10:02:30Z", "back-feedbeef-restore-2"),
        ("2026-11-19T10:10:30Z", "back-feedbeef-restore-3"),
    ] {
        let before = at(time).saturating_sub(jiff::SignedDuration::from_secs(1)).expect("a time");
        world.now = before;
        world.settle();
        assert_eq!(world.jobs.len(), 0, "{time}");
        world.at(time).settle();
        assert_eq!(world.jobs[0].name_any(), job);
        world.fail("StoreUnreachable").settle();
    }
    assert_eq!(phase(&world), Some(RestorePhase::Failed));
    assert_eq!((world.stalled().0.as_str(), world.jobs_created), ("StoreUnreachable", 4));

    for reason in ["CopyNotFound", "CopyUnusable", "CopyDamaged", "OutputFailed", "StoreDenied"] {
        let mut world = World::new(usual());
        world.settle().cluster_is_prepared().fail(reason).settle();
        assert_eq!((phase(&world), world.stalled().0.as_str()), (Some(RestorePhase::Failed), reason));
        assert!(world.stalled().1.contains("delete it with its volumes, and create another EtcdRestore"));
        // An edit does not revive it.
        world.restore.metadata.generation = Some(2);
        world.at("2026-11-20T10:00:00Z").settle();
        assert_eq!(world.jobs_created, 1, "{reason}");
        assert_eq!(world.jobs.len(), 0, "its pod would keep the volume from being deleted");
    }
}

#[test]
fn a_cluster_that_is_deleted_meanwhile_is_not_created_again() {
    let mut world = World::new(usual());
    world.settle().cluster_is_prepared();
    assert_eq!(world.jobs.len(), 1);
    world.cluster = None;
    world.settle();
    assert_eq!((world.stalled().0.as_str(), world.clusters_created), ("ClusterGone", 1));
    assert_eq!(world.jobs.len(), 0);
}

#[test]
fn a_volume_that_is_lost_after_the_job_is_the_end() {
    let mut world = World::new(usual());
    world.settle().cluster_is_prepared().succeed();
    let decision = world.decide();
    world.carry_out(decision);
    world.claims.clear();
    world.settle();
    assert_eq!((world.stalled().0.as_str(), world.claims_created), ("DataLost", 1));
}

#[test]
fn a_lost_result_of_a_complete_volume_is_read_by_the_next_attempt() {
    let mut world = World::new(usual());
    world.settle().cluster_is_prepared();
    world.prepare();
    world.end("Complete", json!([])).settle();
    assert_eq!(world.status().last_run.and_then(|it| it.failure).as_deref(), Some("RunLost"));
    world.at("2026-11-19T10:05:00Z").settle().succeed().settle().cluster_serves();
    assert_eq!(phase(&world), Some(RestorePhase::Completed));
}

#[test]
fn what_an_earlier_version_parked_waits_for_an_edit() {
    let condition = json!({
        "type": "Stalled", "status": "True", "reason": "NotImplemented", "message": "m", "observedGeneration": 1,
        "lastTransitionTime": CREATED,
    });
    for status in [
        json!({"phase": "Failed", "observedGeneration": 1, "conditions": [condition]}),
        json!({"phase": "Failed", "observedGeneration": 1}),
        json!({"phase": "Completed", "observedGeneration": 1}),
    ] {
        let mut world = World::new(usual());
        let is_completed = status["phase"] == "Completed";
        world.restore.status = Some(serde_json::from_value(status).expect("a status"));
        world.settle();
        assert_eq!(world.clusters_created, 0);
        // Also after another round of this version, and after a restart.
        world.settle();
        assert_eq!(world.clusters_created, 0);
        world.restore.metadata.generation = Some(2);
        world.settle();
        assert_eq!(world.clusters_created, usize::from(!is_completed));
    }
}

#[test]
fn events_are_about_the_beginning_failures_and_the_end() {
    let mut world = World::new(usual());
    let mut all = Vec::new();
    let mut step = |world: &mut World| {
        for _ in 0..10 {
            let before = world.restore.status.clone();
            let decision = world.decide();
            world.carry_out(decision);
            let after = world.status();
            all.extend(events::of_change(before.as_ref(), &after).into_iter().map(|it| it.reason));
        }
    };
    step(&mut world);
    world.cluster_is_prepared().fail("StoreUnreachable");
    step(&mut world);
    world.at("2026-11-19T10:00:30Z");
    step(&mut world);
    world.succeed();
    step(&mut world);
    let cluster = world.cluster.as_mut().expect("it is there");
    let status = json!({"domain": "cluster.local", "clusterID": "abc", "readyReplicas": 1});
    cluster.status = Some(serde_json::from_value(status).expect("a status"));
    step(&mut world);
    assert_eq!(all, ["RestoreStarted", "StoreUnreachable", "RestoreCompleted"]);
}
