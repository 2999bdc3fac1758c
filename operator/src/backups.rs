//! Backups: reads caches, lets the core decide, sends, and sleeps until something changes or the core wants to decide again.
//! One task does it for all of them, one after the other, so that two backups of one cluster never start at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::api::EtcdBackup;
use etcd_operator_core::names::{BACKUP_LABEL, CLUSTER_LABEL};
use etcd_operator_core::runs::{self, Cluster, Decision, Mark, Run, Seen, Write, cluster_namespace};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::caches::Key;
use crate::cluster::{Context, Reporter};
use crate::metrics::BackupMeter;
use crate::rounds::{self, Rounds};
use crate::telemetry::chain;

/// Until the cache has what was written.
const CACHES_LAG: Duration = Duration::from_secs(30);

/// Never ends.
pub async fn run(context: Arc<Context>, woken: UnboundedReceiver<Key>) {
    let (reporter, meter) = (Reporter::new(&context), context.metrics.backup_meter());
    let backups = Backups { reporter, meter, context, created: Vec::new(), troubles: HashMap::new() };
    rounds::run(backups, woken).await;
}

struct Backups {
    context: Arc<Context>,
    reporter: Reporter,
    meter: Arc<BackupMeter>,
    /// Jobs that the cache might not have yet.
    created: Vec<(Instant, Job)>,
    /// Why a Job could not be created the last time.
    troubles: HashMap<Key, String>,
}

impl Rounds for Backups {
    fn title(key: &Key) -> String {
        title(key)
    }

    /// Those that are there, and those that Jobs are for.
    fn all(&self) -> Vec<Key> {
        let caches = &self.context.caches;
        let backups = caches.backups.all();
        let there = backups
            .iter()
            .map(|it| Key { namespace: it.namespace().unwrap_or_default(), name: it.name_any() });
        let marks = caches.jobs.all().into_iter().filter_map(|job| Mark::on(&*job));
        there.chain(marks.map(|Mark { namespace, name, .. }| Key { namespace, name })).collect()
    }

    async fn round(&mut self, key: &Key) -> kube::Result<Option<Duration>> {
        self.context.planted_panic.strike(key);
        let now = Instant::now();
        self.created.retain(|(since, _)| now.duration_since(*since) < CACHES_LAG);
        let at = ObjectRef::new(&key.name).within(&key.namespace);
        match self.context.caches.backups.get(&at) {
            Some(backup) => {
                self.meter.reported(key, &backup);
                self.decide(key, &backup).await
            }
            None => {
                self.meter.deleted(key);
                self.clean_up(key).await
            }
        }
    }
}

impl Backups {
    async fn decide(&mut self, key: &Key, backup: &EtcdBackup) -> kube::Result<Option<Duration>> {
        let context = Arc::clone(&self.context);
        let now = Timestamp::now();
        let (namespace, name) = (cluster_namespace(backup), &backup.spec.cluster_name);
        let cluster = self.cluster(&namespace, name);
        let runs = self.runs(&namespace, name, now);
        let trouble = self.troubles.get(key).map(String::as_str);
        let seen = Seen {
            backup,
            cluster: cluster.as_ref(),
            runs: &runs,
            image: &context.agent_image,
            trouble,
            now,
        };
        let Decision { status, writes, again_at } = runs::decide(&seen);
        if let Some(status) = status {
            let written: EtcdBackup = self.context.client.request(runs::report(backup, &status)).await?;
            tracing::info!(object = title(key), phase = ?status.phase, "updated status");
            for event in runs::events::of_change(backup.status.as_ref(), &written.status.unwrap_or_default())
            {
                self.reporter.publish(backup, event);
            }
        }
        for write in &writes {
            let sent = self.send(key, write).await;
            let trouble = sent.as_ref().err().filter(|_| matches!(write, Write::Create(_)));
            match trouble {
                Some(error) => self.troubles.insert(key.clone(), chain(error).to_string()),
                None => self.troubles.remove(key),
            };
            sent?;
        }
        let pause = again_at.map(|at| at.duration_since(Timestamp::now()));
        // What was just due is decided at once.
        Ok(pause.map(|pause| Duration::try_from(pause).unwrap_or_default()))
    }

    async fn send(&mut self, key: &Key, write: &Write) -> kube::Result<()> {
        let request = runs::http(write);
        match write {
            Write::Create(_) => match self.context.client.request::<Job>(request).await {
                Ok(job) => {
                    tracing::info!(object = title(key), job = job.name_any(), "created Job");
                    self.created.push((Instant::now(), job));
                }
                // The same run, created by this operator or another one.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(error),
            },
            Write::Delete { name, .. } => match self.context.client.request::<Value>(request).await {
                Ok(_) => tracing::info!(object = title(key), job = name, "deleted Job"),
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    fn cluster(&self, namespace: &str, name: &str) -> Option<Cluster> {
        let caches = &self.context.caches;
        let cluster = caches.clusters.get(&ObjectRef::new(name).within(namespace))?;
        let pods = caches.pods.all_that(|pod| is_of(pod, namespace, CLUSTER_LABEL, name));
        Some(Cluster::of(&cluster, pods.iter().map(|pod| &**pod), &self.context.domain))
    }

    /// All of this cluster.
    fn runs(&self, namespace: &str, cluster: &str, now: Timestamp) -> Vec<Run> {
        let caches = &self.context.caches;
        let pods = caches.job_pods.all_that(|pod| is_of(pod, namespace, BACKUP_LABEL, cluster));
        let run = |job: &Job| {
            let uid = job.uid();
            let is_own =
                |pod: &&Arc<Pod>| pod.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
            Run::of(job, pods.iter().find(is_own).map(|pod| &**pod), now)
        };
        let cached = caches.jobs.all_that(|job| is_of(job, namespace, BACKUP_LABEL, cluster));
        let is_cached = |job: &Job| cached.iter().any(|it| it.name_any() == job.name_any());
        let created = self.created.iter().map(|(_, job)| job);
        let new = created.filter(|job| is_of(*job, namespace, BACKUP_LABEL, cluster) && !is_cached(job));
        cached.iter().map(|job| &**job).chain(new).filter_map(run).collect()
    }

    /// Deletes the Jobs of an EtcdBackup that is gone. The cache might not have it yet, so the API server is asked.
    async fn clean_up(&mut self, key: &Key) -> kube::Result<Option<Duration>> {
        self.troubles.remove(key);
        let is_for =
            |job: &Job| Mark::on(job).is_some_and(|it| it.namespace == key.namespace && it.name == key.name);
        let jobs = self.context.caches.jobs.all_that(is_for);
        if jobs.is_empty() {
            return Ok(None);
        }
        let backups = Api::<EtcdBackup>::namespaced(self.context.client.clone(), &key.namespace);
        let uid = backups.get_opt(&key.name).await?.and_then(|backup| backup.uid());
        for write in runs::orphans(jobs.iter().map(|job| &**job), uid.as_deref()) {
            self.send(key, &write).await?;
        }
        Ok(None)
    }
}

fn title(key: &Key) -> String {
    format!("EtcdBackup {}/{}", key.namespace, key.name)
}

fn is_of(object: &impl ResourceExt, namespace: &str, label: &str, name: &str) -> bool {
    object.namespace().as_deref() == Some(namespace)
        && object.labels().get(label).is_some_and(|it| it == name)
}
