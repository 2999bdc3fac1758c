//! Backups: reads caches, lets the core decide, sends, and sleeps until something changes or the core wants to decide again.
//! One task does it for all of them, one after the other, so that two backups of one cluster never start at once.

mod archivers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::api::EtcdBackup;
use etcd_operator_core::names::{BACKUP_LABEL, CLUSTER_LABEL};
use etcd_operator_core::runs::{
    self, ArchiveMark, Archiver, Cluster, Decision, Heard, Mark, Run, Seen, TOKEN_KEY, Write,
    cluster_namespace, token_name,
};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::caches::Key;
use crate::cluster::{Context, Reporter, address};
use crate::etcd::random_password;
use crate::metrics::BackupMeter;
use crate::rounds::{self, Rounds};
use crate::telemetry::chain;
use archivers::Archivers;

/// Until the cache has what was written.
const CACHES_LAG: Duration = Duration::from_secs(30);

/// Never ends.
pub async fn run(context: Arc<Context>, woken: UnboundedReceiver<Key>) {
    let (reporter, meter) = (Reporter::new(&context), context.metrics.backup_meter());
    let backups = Backups {
        reporter,
        meter,
        context,
        created: Vec::new(),
        troubles: HashMap::new(),
        archivers: Archivers::default(),
    };
    rounds::run(backups, woken).await;
}

struct Backups {
    context: Arc<Context>,
    reporter: Reporter,
    meter: Arc<BackupMeter>,
    /// Jobs that the cache might not have yet.
    created: Vec<(Instant, Arc<Job>)>,
    /// Why a Job could not be created the last time.
    troubles: HashMap<Key, String>,
    archivers: Archivers,
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
        let jobs = caches.jobs.all();
        there.chain(jobs.iter().filter_map(|job| of_job(&**job))).collect()
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
        let jobs = self.jobs(&namespace, name);
        let all = || jobs.iter().map(|(job, pod)| (&**job, pod.as_deref()));
        let runs: Vec<_> = all().filter_map(|(job, pod)| Run::of(job, pod, now)).collect();
        let archivers: Vec<_> = all().filter_map(|(job, pod)| Archiver::of(job, pod, now)).collect();
        let heard = Archiver::to_ask(&archivers, backup).and_then(|it| self.heard(backup, it, &jobs));
        let trouble = self.troubles.get(key).map(String::as_str);
        let seen = Seen {
            backup,
            cluster: cluster.as_ref(),
            runs: &runs,
            archivers: &archivers,
            heard: heard.as_ref(),
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
            let trouble = sent.as_ref().err().filter(|_| !matches!(write, Write::Delete { .. }));
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
        let request = match write {
            Write::Token(secret) => runs::http(&Write::Token(Box::new(with_token(secret)))),
            Write::Create(_) | Write::Delete { .. } => runs::http(write),
        };
        match write {
            Write::Token(secret) => match self.context.client.request::<Secret>(request).await {
                Ok(_) => tracing::info!(object = title(key), name = secret.name_any(), "created Secret"),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(error),
            },
            Write::Create(_) => match self.context.client.request::<Job>(request).await {
                Ok(job) => {
                    tracing::info!(object = title(key), job = job.name_any(), "created Job");
                    self.created.push((Instant::now(), Arc::new(job)));
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

    /// All of this cluster, each with its pod.
    fn jobs(&self, namespace: &str, cluster: &str) -> Vec<(Arc<Job>, Option<Arc<Pod>>)> {
        let caches = &self.context.caches;
        let pods = caches.job_pods.all_that(|pod| is_of(pod, namespace, BACKUP_LABEL, cluster));
        let with_pod = |job: Arc<Job>| {
            let uid = job.uid();
            let is_own =
                |pod: &&Arc<Pod>| pod.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
            let pod = pods.iter().find(is_own).cloned();
            (job, pod)
        };
        let cached = caches.jobs.all_that(|job| is_of(job, namespace, BACKUP_LABEL, cluster));
        let is_cached = |job: &Job| cached.iter().any(|it| it.name_any() == job.name_any());
        let created = self.created.iter().map(|(_, job)| job);
        let new = created.filter(|job| is_of(&***job, namespace, BACKUP_LABEL, cluster) && !is_cached(job));
        cached.iter().chain(new).cloned().map(with_pod).collect()
    }

    /// What this archiver has answered.
    fn heard(
        &mut self,
        backup: &EtcdBackup,
        archiver: &Archiver,
        jobs: &[(Arc<Job>, Option<Arc<Pod>>)],
    ) -> Option<Heard> {
        let (_, pod) = jobs.iter().find(|(job, _)| job.metadata.uid.as_ref() == Some(&archiver.uid))?;
        let secret = (cluster_namespace(backup), token_name(backup));
        self.archivers.heard(&self.context.client, &self.context.reach, address(pod.as_deref()?)?, secret)
    }

    /// Deletes the Jobs of an EtcdBackup that is gone. The cache might not have it yet, so the API server is asked.
    async fn clean_up(&mut self, key: &Key) -> kube::Result<Option<Duration>> {
        self.troubles.remove(key);
        let is_for = |job: &Job| of_job(job).as_ref() == Some(key);
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

/// The EtcdBackup that a Job is for.
pub fn of_job(object: &impl ResourceExt) -> Option<Key> {
    let of_run = Mark::on(object).map(|Mark { namespace, name, .. }| Key { namespace, name });
    let of_archive = || {
        let ArchiveMark { namespace, name, .. } = ArchiveMark::on(object)?;
        Some(Key { namespace, name })
    };
    of_run.or_else(of_archive)
}

/// Nobody else knows it.
fn with_token(secret: &Secret) -> Secret {
    let token = ByteString(random_password().reveal().as_bytes().to_vec());
    Secret { data: Some([(TOKEN_KEY.to_owned(), token)].into()), ..secret.clone() }
}

fn title(key: &Key) -> String {
    format!("EtcdBackup {}/{}", key.namespace, key.name)
}

fn is_of(object: &impl ResourceExt, namespace: &str, label: &str, name: &str) -> bool {
    object.namespace().as_deref() == Some(namespace)
        && object.labels().get(label).is_some_and(|it| it == name)
}
