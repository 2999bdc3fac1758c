//! A backup with the real program and a real S3 server; the Job controller is Kubernetes' own.

use std::time::{Duration, Instant};

use etcd_operator_core::api::{BackupPhase, EtcdBackup, EtcdClusterStatus};
use etcd_operator_core::backup::manifest::Manifest;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use testbed::store::{Options, S3};

use crate::inside::{PATCHED, TWO_LEARNERS};
use crate::stage::Stage;
use crate::world::{CLUSTER, address_in, world};

const LIMIT: Duration = Duration::from_secs(90);
const BACKUP: &str = "once";
/// The last part of an address that no pod has.
pub const OF_THE_STORE: u8 = 252;

struct Backups {
    backups: Api<EtcdBackup>,
    jobs: Api<Job>,
    pods: Api<Pod>,
}

impl Backups {
    fn of(stage: &Stage) -> Self {
        let (world, namespace) = (stage.world, &stage.namespace);
        Self { backups: world.all(namespace), jobs: world.all(namespace), pods: world.all(namespace) }
    }

    async fn all_jobs(&self) -> Vec<Job> {
        self.jobs.list(&ListParams::default()).await.expect("a list").items
    }

    async fn backup(&self) -> EtcdBackup {
        self.backups.get(BACKUP).await.expect("it is there")
    }

    async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self).await {
            if begun.elapsed() > LIMIT {
                let pods = self.pods.list(&ListParams::default().labels("etcd.etcd.io/backup-of")).await;
                panic!("{what}: {:#?}\n{:#?}", self.backup().await.status, pods.map(|it| it.items));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The operator is replaced while the Job runs, and the version changes after it has completed.
pub fn precedes_another_version() {
    let world = world();
    world.runtime.block_on(async {
        let mut stage = Stage::start(world).await;
        stage.create(json!({"size": 1, "version": PATCHED})).await;
        let address = address_in(&stage.namespace, OF_THE_STORE).expect("an address");
        let store =
            S3::start_at(address, Options { tls: true, ..Options::default() }).await.expect("a store");
        let mut spec = to_s3(&store);
        spec["schedule"] = json!("0 0 1 1 *");
        let spec = serde_json::from_value(spec).expect("it is a spec");
        let all = Backups::of(&stage);
        all.backups
            .create(&PostParams::default(), &EtcdBackup::new(BACKUP, spec))
            .await
            .expect("it is valid");
        let uid = async |all: &Backups| {
            all.pods.get_opt("kv-0").await.expect("a pod").and_then(|it| it.metadata.uid)
        };
        let before = uid(&all).await;
        stage.edit(&json!({"version": TWO_LEARNERS})).await.expect("it is valid");
        // Without the Secret, the Job does not start.
        all.until("no Job", async |all| !all.all_jobs().await.is_empty()).await;
        assert_eq!(cluster_status(&stage).await.awaited_backup.map(|it| it.name).as_deref(), Some(BACKUP));
        stage.end_operator().await;
        create_secrets(&stage, &store).await;
        stage.start_operator();
        all.until("the version does not change", async |_| {
            cluster_status(&stage).await.version.as_deref() == Some(TWO_LEARNERS)
        })
        .await;

        let jobs = all.all_jobs().await;
        let ended = jobs[0].status.as_ref().and_then(|status| status.completion_time.clone());
        let pod = all.pods.get("kv-0").await.expect("it is there");
        assert_eq!(jobs.len(), 1);
        assert_ne!(pod.metadata.uid, before);
        assert!(ended.is_some() && ended <= pod.metadata.creation_timestamp, "{ended:?}: {:?}", pod.metadata);
        let status = all.backup().await.status.expect("it has one");
        assert_eq!(status.etcd_version.as_deref(), Some(PATCHED), "the copy is of the previous version");
        assert!(status.last_requested_run.is_some_and(|run| run.failure.is_none()));
        assert_eq!(cluster_status(&stage).await.awaited_backup, None);
        stage.end().await;
    });
}

async fn cluster_status(stage: &Stage) -> EtcdClusterStatus {
    stage.clusters.get(CLUSTER).await.expect("it is there").status.unwrap_or_default()
}

fn is(job: &Job, type_: &str) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == type_ && it.status == "True")
}

pub async fn create_secrets(stage: &Stage, store: &S3) {
    let authority = std::fs::read_to_string(store.authority()).expect("it is a file");
    let keys = json!({"AWS_ACCESS_KEY_ID": S3::ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": S3::SECRET_KEY});
    let secrets = stage.world.all::<Secret>(&stage.namespace);
    for (name, content) in [("keys", keys), ("authority", json!({"ca.crt": authority}))] {
        let secret = json!({"metadata": {"name": name}, "stringData": content});
        let secret: Secret = serde_json::from_value(secret).expect("it is a Secret");
        secrets.create(&PostParams::default(), &secret).await.expect("it is new");
    }
}

pub fn to_s3(store: &S3) -> Value {
    json!({
        "clusterName": CLUSTER, "storageType": "S3", "compression": true, "retentionPolicy": {"maxBackups": 2},
        "s3": {
            "bucket": S3::BUCKET, "region": S3::REGION, "endpoint": store.endpoint(), "caSecret": "authority",
            "path": "harness", "accessKeySecret": "keys", "secretKeySecret": "keys",
        },
    })
}

/// The operator ends when the Job is there, and another one starts when the Job has completed: there is one copy.
pub fn taken_while_no_operator_runs() {
    let world = world();
    world.runtime.block_on(async {
        let mut stage = Stage::start(world).await;
        stage.create(json!({"size": 1})).await;
        let address = address_in(&stage.namespace, OF_THE_STORE).expect("an address");
        let store =
            S3::start_at(address, Options { tls: true, ..Options::default() }).await.expect("a store");
        create_secrets(&stage, &store).await;
        let spec = serde_json::from_value(to_s3(&store)).expect("it is a spec");
        let all = Backups::of(&stage);
        all.backups
            .create(&PostParams::default(), &EtcdBackup::new(BACKUP, spec))
            .await
            .expect("it is valid");
        all.until("no Job", async |all| !all.all_jobs().await.is_empty()).await;
        stage.end_operator().await;
        all.until("the Job does not complete", async |all| {
            all.all_jobs().await.iter().all(|job| is(job, "Complete"))
        })
        .await;
        stage.start_operator();
        let phase = async |all: &Backups| all.backup().await.status.and_then(|status| status.phase);
        all.until("not completed", async |all| phase(all).await == Some(BackupPhase::Completed)).await;

        assert_eq!(all.all_jobs().await.len(), 1);
        let status = all.backup().await.status.expect("it was just seen");
        let copy = &status.copies[0];
        let cluster = stage.clusters.get(CLUSTER).await.expect("it is there");
        let id = cluster.status.and_then(|status| status.cluster_id).expect("it has bootstrapped");
        let folder = store.bucket().join("harness").join(&id);
        let manifest =
            std::fs::read(folder.join("copies").join(format!("{}.json", copy.name))).expect("a manifest");
        let manifest: Manifest = serde_json::from_slice(&manifest).expect("it can be read");
        let data = std::fs::metadata(folder.join("data").join(&manifest.data.file)).expect("it has data");
        assert_eq!(i64::try_from(data.len()).ok(), status.backup_size);
        assert_eq!(manifest.revision.lowest, copy.revision);
        let healthy = async |_: &Backups| {
            let status = stage.clusters.get(CLUSTER).await.expect("it is there").status.unwrap_or_default();
            let is_healthy =
                status.conditions.iter().any(|it| it.type_ == "BackupHealthy" && it.status == "True");
            is_healthy && status.last_backup_time == Some(copy.time.clone())
        };
        all.until("the cluster does not report its backup", healthy).await;
        all.backups.delete(BACKUP, &Default::default()).await.expect("it is there");
        all.until("the Job outlives its EtcdBackup", async |all| all.all_jobs().await.is_empty()).await;
        stage.end().await;
    });
}
