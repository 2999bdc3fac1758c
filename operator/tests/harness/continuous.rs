//! The continuous archive of an EtcdBackup, and restores of what lies between its copies: with the real programs and a real S3 server.

use std::time::Duration;

use etcd_client::{Client, Txn, TxnOp};
use etcd_operator_core::api::{EtcdBackup, EtcdBackupStatus, RestorePhase};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::store::{Options, S3};

use crate::access::Member;
use crate::backups::{OF_THE_STORE, create_secrets, to_s3};
use crate::restores::{Keys, Restores, all_keys, delete_with_volumes, until};
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, address_in, world};

const BACKUP: &str = "follow";
/// In which nothing is written, and the archive confirms it.
const REST: Duration = Duration::from_secs(4);

/// What a client wrote, and what every key was after each revision.
struct Ledger {
    client: Client,
    keys: Keys,
    after: Vec<(i64, Keys)>,
}

impl Ledger {
    async fn new(stage: &Stage) -> Self {
        let client = Member::new(&stage.namespace, 0).client(&stage.recorder).await.expect("it serves");
        Self { client, keys: Keys::new(), after: Vec::new() }
    }

    /// Puts, transactions with two keys, and deletes.
    async fn write(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.after.len();
            let name = |number: usize| format!("key-{:03}", number % 17);
            let (key, other, value) = (name(number), name(number + 5), format!("value {number}"));
            let operations = match number % 5 {
                3 => vec![TxnOp::delete(key.clone(), None)],
                4 => vec![
                    TxnOp::put(key.clone(), value.clone(), None),
                    TxnOp::put(other.clone(), value.clone(), None),
                ],
                _ => vec![TxnOp::put(key.clone(), value.clone(), None)],
            };
            let is_there = self.keys.contains_key(key.as_bytes());
            let response = self.client.txn(Txn::new().and_then(operations)).await.expect("it serves");
            let revision = response.header().expect("it has one").revision();
            match number % 5 {
                // A delete of nothing has no revision of its own.
                3 if !is_there => {}
                3 => drop(self.keys.remove(key.as_bytes())),
                4 => [key, other].into_iter().for_each(|it| self.put(it, &value, revision)),
                _ => self.put(key, &value, revision),
            }
            self.after.push((revision, self.keys.clone()));
        }
    }

    fn put(&mut self, key: String, value: &str, revision: i64) {
        let before = self.keys.get(key.as_bytes()).map(|(_, created, _, version)| (*created, *version));
        let (created, version) = before.unwrap_or((revision, 0));
        self.keys.insert(key.into_bytes(), (value.into(), created, revision, version + 1));
    }

    fn last(&self) -> (i64, Keys) {
        self.after.last().cloned().expect("something was written")
    }
}

struct Archive<'a> {
    stage: &'a Stage,
    backups: Api<EtcdBackup>,
}

impl Archive<'_> {
    async fn status(&self) -> EtcdBackupStatus {
        self.backups.get(BACKUP).await.expect("it is there").status.unwrap_or_default()
    }

    async fn until(&self, what: &str, holds: impl Fn(&EtcdBackupStatus) -> bool) -> EtcdBackupStatus {
        let look = async || Some(self.status().await).filter(|status| holds(status));
        let state = async || {
            let pods = self.stage.world.all::<Pod>(&self.stage.namespace);
            let pods = pods.list(&ListParams::default().labels("etcd.etcd.io/backup-of")).await;
            let pods = pods
                .map(|it| it.items.into_iter().map(|pod| (pod.name_any(), pod.status)).collect::<Vec<_>>());
            format!("{:#?}\n{pods:#?}", self.status().await)
        };
        until(what, look, state).await
    }

    async fn archivers(&self) -> Vec<Job> {
        let jobs = self.stage.world.all::<Job>(&self.stage.namespace);
        let jobs = jobs.list(&ListParams::default()).await.expect("a list").items;
        jobs.into_iter().filter(|job| job.annotations().contains_key("etcd.etcd.io/archive")).collect()
    }

    async fn suspend(&self, suspend: bool) {
        let change = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        self.backups.patch(BACKUP, &PatchParams::default(), &change).await.expect("it is there");
    }

    /// Its pod is deleted without a grace.
    async fn kill(&self) {
        let pods = self.stage.world.all::<Pod>(&self.stage.namespace);
        let labels = ListParams::default().labels("etcd.etcd.io/backup-of");
        let all = pods.list(&labels).await.expect("a list").items;
        for pod in all.iter().filter(|it| it.annotations().contains_key("etcd.etcd.io/archive")) {
            let now = DeleteParams::default().grace_period(0);
            pods.delete(&pod.name_any(), &now).await.expect("it is there");
        }
    }
}

fn archives(status: &EtcdBackupStatus) -> bool {
    status.conditions.iter().any(|it| it.type_ == "Archiving" && it.status == "True")
}

fn archived(status: &EtcdBackupStatus) -> i64 {
    status.archive.as_ref().and_then(|it| it.archived_revision).unwrap_or_default()
}

pub fn restores_every_revision_and_moment() {
    let world = world();
    world.runtime.block_on(async {
        let mut stage = Stage::start(world).await;
        stage.create(json!({"size": 1})).await;
        let address = address_in(&stage.namespace, OF_THE_STORE).expect("an address");
        let store =
            S3::start_at(address, Options { tls: true, ..Options::default() }).await.expect("a store");
        create_secrets(&stage, &store).await;
        let mut ledger = Ledger::new(&stage).await;
        let mut spec = to_s3(&store);
        spec["continuous"] = json!({"flushIntervalSeconds": 1});
        let spec = serde_json::from_value(spec).expect("it is a spec");
        let backups = stage.world.all::<EtcdBackup>(&stage.namespace);
        backups.create(&PostParams::default(), &EtcdBackup::new(BACKUP, spec)).await.expect("it is valid");
        let archive = Archive { stage: &stage, backups };
        archive.until("the archive does not begin", archives).await;

        ledger.write(30).await;
        tokio::time::sleep(REST).await;
        let (moment, at_moment) = (Timestamp::now(), ledger.last());
        tokio::time::sleep(REST).await;
        ledger.write(30).await;
        tokio::time::sleep(REST).await;

        // What is written while no archiver runs has no exact times.
        archive.kill().await;
        ledger.write(20).await;
        let inexact = Timestamp::now();
        let (within, at_within) = ledger.last();
        ledger.write(20).await;
        archive
            .until("the end of the archiver is not recorded", |status| {
                status.archive.as_ref().is_some_and(|it| it.ended > 0)
            })
            .await;
        let begun = Timestamp::now();
        archive
            .until("the next archiver does not follow", |status| {
                let confirmed = status.archive.as_ref().and_then(|it| it.recovery_point.clone());
                archives(status) && confirmed.is_some_and(|it| it.0 > begun)
            })
            .await;
        ledger.write(20).await;
        let (last, _) = ledger.last();
        archive.until("the last revision is not archived", |status| archived(status) >= last).await;
        let secrets = stage.world.all::<Secret>(&stage.namespace).list(&ListParams::default()).await;
        let secrets = secrets.expect("a list").items;
        assert!(secrets.iter().any(|it| it.name_any().ends_with("-archive")));
        archive.suspend(true).await;
        let gone = async || archive.archivers().await.is_empty().then_some(());
        until("the archiver is left", gone, async || String::new()).await;
        let version = stage.clusters.get(CLUSTER).await.expect("it is there").spec.version;
        drop(archive);

        let all =
            Restores { restores: stage.world.all(&stage.namespace), jobs: stage.world.all(&stage.namespace) };
        let template = json!({"size": 1, "version": version});
        let to = |field: &str, value: serde_json::Value| {
            let mut spec = json!({"backupName": BACKUP, "clusterName": CLUSTER, "clusterTemplate": template});
            spec[field] = value;
            spec
        };
        for (name, field, value, part) in [
            ("inexact", "toTime", json!(inexact.to_string()), "the nearest times that it knows are"),
            ("beyond", "toRevision", json!(last + 1000), "no segment has revision"),
        ] {
            delete_with_volumes(&stage).await;
            all.create(name, to(field, value)).await;
            let status = all.over(name).await;
            let (_, message) = Restores::stalled(&status);
            assert_eq!(status.phase, Some(RestorePhase::Failed), "{message}");
            assert!(message.contains(part), "{message}");
        }
        for (name, field, value, (revision, expected)) in [
            ("revision", "toRevision", json!(within), (within, at_within)),
            ("moment", "toTime", json!(moment.to_string()), at_moment),
        ] {
            delete_with_volumes(&stage).await;
            all.create(name, to(field, value)).await;
            if name == "revision" {
                stage.end_operator().await;
                stage.start_operator();
            }
            let status = all.over(name).await;
            assert_eq!(status.phase, Some(RestorePhase::Completed), "{:?}", Restores::stalled(&status));
            assert_eq!(status.restored_revision, Some(revision), "{name}");
            assert!(
                status.replayed_revisions.is_some_and(|it| it > 0) && status.served_revision > Some(last)
            );
            stage.until("it serves", |it| Until::Ready(1).holds(it)).await;
            let (found, at) = all_keys(&stage, 0).await;
            assert_eq!(found, expected, "{name}");
            assert_eq!(Some(at), status.served_revision);
        }
        stage.end().await;
    });
}
