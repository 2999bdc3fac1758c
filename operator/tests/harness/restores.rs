//! A cluster that is deleted with its volumes comes back from a copy: with the real programs, `etcdutl` and a real S3 server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use etcd_client::{GetOptions, WatchOptions};
use etcd_operator_core::api::{
    BackupPhase, EtcdBackup, EtcdCluster, EtcdRestore, EtcdRestoreStatus, RestorePhase,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::store::{Options, S3};

use crate::access::Member;
use crate::backups::{create_secrets, to_s3};
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, address_in, world};

const LIMIT: Duration = Duration::from_secs(120);
/// The last part of an address that no pod has.
const OF_THE_STORE: u8 = 252;
const KEYS: usize = 500;

pub type Keys = BTreeMap<Vec<u8>, (Vec<u8>, i64, i64, i64)>;

pub async fn all_keys(stage: &Stage, ordinal: u8) -> (Keys, i64) {
    let member = Member::new(&stage.namespace, ordinal);
    let mut client = member.client(&stage.recorder).await.expect("it serves");
    let found = client.get("", Some(GetOptions::new().with_all_keys())).await.expect("it serves");
    let revision = found.header().expect("it has one").revision();
    let keys = found.kvs().iter().map(|it| {
        let versions = (it.value().to_vec(), it.create_revision(), it.mod_revision(), it.version());
        (it.key().to_vec(), versions)
    });
    (keys.collect(), revision)
}

pub async fn fill(stage: &Stage) {
    let member = Member::new(&stage.namespace, 0);
    let mut client = member.client(&stage.recorder).await.expect("it serves");
    for number in 0..KEYS {
        client.put(format!("key-{number:04}"), format!("value {number}"), None).await.expect("it serves");
    }
    for number in (0..KEYS).step_by(7) {
        client.delete(format!("key-{number:04}"), None).await.expect("it serves");
    }
}

pub async fn until<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
    state: impl AsyncFn() -> String,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        if begun.elapsed() > LIMIT {
            panic!("{what}: {}", state().await);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub struct Restores {
    pub restores: Api<EtcdRestore>,
    pub jobs: Api<Job>,
}

impl Restores {
    pub async fn create(&self, name: &str, spec: Value) {
        let spec = serde_json::from_value(spec).expect("it is a spec");
        let restore = EtcdRestore::new(name, spec);
        self.restores.create(&PostParams::default(), &restore).await.expect("it is valid");
    }

    pub async fn status(&self, name: &str) -> EtcdRestoreStatus {
        self.restores.get(name).await.expect("it is there").status.unwrap_or_default()
    }

    pub async fn over(&self, name: &str) -> EtcdRestoreStatus {
        let over = async || Some(self.status(name).await).filter(|it| it.completion_time.is_some());
        until("not over", over, async || format!("{:#?}", self.status(name).await)).await
    }

    pub fn stalled(status: &EtcdRestoreStatus) -> (String, String) {
        let found = status.conditions.iter().find(|it| it.type_ == "Stalled").expect("it is there");
        (found.reason.clone(), found.message.clone())
    }
}

pub async fn back_up(stage: &Stage, store: &S3) -> String {
    let backups = stage.world.all::<EtcdBackup>(&stage.namespace);
    let spec = serde_json::from_value(to_s3(store)).expect("it is a spec");
    backups.create(&PostParams::default(), &EtcdBackup::new("once", spec)).await.expect("it is valid");
    let get = async || backups.get("once").await.expect("it is there").status.unwrap_or_default();
    let completed = async || Some(get().await).filter(|it| it.phase == Some(BackupPhase::Completed));
    let status = until("no copy", completed, async || format!("{:#?}", get().await)).await;
    status.copies[0].name.clone()
}

pub async fn delete_with_volumes(stage: &Stage) {
    stage.clusters.delete(CLUSTER, &DeleteParams::default()).await.expect("it is there");
    let cluster_gone =
        async || stage.clusters.get_opt(CLUSTER).await.expect("an answer").is_none().then_some(());
    until("the cluster is left", cluster_gone, async || String::new()).await;
    let claims = stage.world.all::<PersistentVolumeClaim>(&stage.namespace);
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("they are there");
    let gone = async || {
        let left = claims.list(&ListParams::default()).await.expect("a list").items;
        left.is_empty().then_some(())
    };
    until("volumes are left", gone, async || String::new()).await;
}

/// The file of a copy in the store.
pub fn data_of(store: &S3, cluster: &EtcdCluster, copy: &str) -> PathBuf {
    let id = cluster.status.as_ref().and_then(|it| it.cluster_id.clone()).expect("it has bootstrapped");
    let folder = store.bucket().join("harness").join(id).join("data");
    let mut files = std::fs::read_dir(folder).expect("a directory").flatten().map(|it| it.path());
    files.find(|it| it.display().to_string().contains(copy)).expect("it has data")
}

pub fn with_all_its_keys() {
    let world = world();
    world.runtime.block_on(async {
        let mut stage = Stage::start(world).await;
        stage.create(json!({"size": 1})).await;
        let address = address_in(&stage.namespace, OF_THE_STORE).expect("an address");
        let store =
            S3::start_at(address, Options { tls: true, ..Options::default() }).await.expect("a store");
        create_secrets(&stage, &store).await;
        fill(&stage).await;
        let (before, last) = all_keys(&stage, 0).await;
        let copy = back_up(&stage, &store).await;
        let old = stage.clusters.get(CLUSTER).await.expect("it is there");
        let all =
            Restores { restores: stage.world.all(&stage.namespace), jobs: stage.world.all(&stage.namespace) };
        let template = json!({"size": 3, "version": old.spec.version});
        let from_backup = json!({"backupName": "once", "clusterName": CLUSTER, "clusterTemplate": template});

        // What exists is not touched.
        all.create("existing", from_backup.clone()).await;
        assert_eq!(Restores::stalled(&all.over("existing").await).0, "ClusterExists");
        assert_eq!(stage.clusters.get(CLUSTER).await.expect("it is there").uid(), old.uid());
        delete_with_volumes(&stage).await;

        // A copy that does not exist leaves a cluster that never bootstraps.
        let mut unknown = from_backup.clone();
        unknown["copyName"] = json!("20261118T020001Z-0123456789abcdef");
        all.create("unknown", unknown).await;
        let failed = all.over("unknown").await;
        let (reason, message) = Restores::stalled(&failed);
        assert_eq!(
            (failed.phase, reason.as_str()),
            (Some(RestorePhase::Failed), "CopyNotFound"),
            "{message}"
        );
        let waiting = stage.clusters.get(CLUSTER).await.expect("it is there").status.unwrap_or_default();
        assert_eq!(waiting.cluster_id, None);
        delete_with_volumes(&stage).await;

        // So does one whose data is truncated in the store.
        let data = data_of(&store, &old, &copy);
        let whole = std::fs::read(&data).expect("it is there");
        std::fs::write(&data, &whole[..whole.len() / 2]).expect("it can be written");
        all.create("truncated", from_backup.clone()).await;
        let (reason, message) = Restores::stalled(&all.over("truncated").await);
        assert_eq!(reason, "CopyDamaged", "{message}");
        std::fs::write(&data, &whole).expect("it can be written");
        delete_with_volumes(&stage).await;

        // The operator ends when the Job is there, and another one when the claim is labelled.
        all.create("back", from_backup).await;
        let exists = async || {
            let jobs = all.jobs.list(&ListParams::default()).await.expect("a list").items;
            jobs.iter().any(|job| job.name_any().starts_with("back-")).then_some(())
        };
        let state = async || format!("{:#?}", all.status("back").await);
        until("no Job", exists, &state).await;
        stage.end_operator().await;
        stage.start_operator();
        let prepared = async || all.status("back").await.restored_volume_uid;
        until("no data", prepared, &state).await;
        stage.end_operator().await;
        stage.start_operator();
        let status = all.over("back").await;
        assert_eq!(status.phase, Some(RestorePhase::Completed), "{:?}", Restores::stalled(&status));
        assert_eq!(
            (status.copy_name.as_deref(), status.restored_revision),
            (Some(copy.as_str()), Some(last))
        );
        stage.until("it has three members", |it| Until::Ready(3).holds(it)).await;

        let new = stage.clusters.get(CLUSTER).await.expect("it is there");
        assert_ne!(
            new.status.as_ref().and_then(|it| it.cluster_id.clone()),
            old.status.and_then(|it| it.cluster_id)
        );
        for ordinal in 0..3 {
            let (after, revision) = all_keys(&stage, ordinal).await;
            assert_eq!(after, before, "kv-{ordinal}");
            assert_eq!(Some(revision), status.served_revision, "kv-{ordinal}");
        }
        // A client that watches from where it was notices.
        let mut client = Member::new(&stage.namespace, 0).client(&stage.recorder).await.expect("it serves");
        let from_before = WatchOptions::new().with_start_revision(last);
        let mut watch = client.watch("key-0001", Some(from_before)).await.expect("it serves");
        let mut cancelled = false;
        while let Ok(Ok(Some(response))) = tokio::time::timeout(Duration::from_secs(5), watch.message()).await
        {
            if response.canceled() || response.compact_revision() > 0 {
                cancelled = true;
                break;
            }
        }
        assert!(cancelled, "the watch goes on as if nothing had happened");
        // The label of the first claim is that of its member.
        let claims = stage.world.all::<PersistentVolumeClaim>(&stage.namespace);
        let claim = claims.get(&format!("data-{CLUSTER}-0")).await.expect("it is there");
        let members = new.status.map(|it| it.members).unwrap_or_default();
        let first = format!("{CLUSTER}-0");
        let member = members.iter().find(|it| it.name.as_ref() == Some(&first)).and_then(|it| it.id.clone());
        assert_eq!(claim.labels().get("etcd.etcd.io/member-id").cloned(), member);
        let jobs = all.jobs.list(&ListParams::default()).await.expect("a list").items;
        assert!(!jobs.iter().any(|job| job.name_any().starts_with("back-")), "a Job keeps the volume");
        stage.end().await;
    });
}
