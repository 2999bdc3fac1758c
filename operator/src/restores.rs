//! Restores: reads caches, lets the core decide, sends, and sleeps until something changes or the core wants to decide again. One task
//! does it for all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::api::EtcdRestore;
use etcd_operator_core::names::{CLUSTER_LABEL, Names, REPLACED_BY_LABEL};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::restores::{self, Decision, Mark, Run, Seen, Write, backup_of};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::caches::Key;
use crate::cluster::{Context, Reporter};
use crate::rounds::{self, Rounds};
use crate::telemetry::chain;

/// Until the cache has what was written.
const CACHES_LAG: Duration = Duration::from_secs(30);

/// Never ends.
pub async fn run(context: Arc<Context>, woken: UnboundedReceiver<Key>) {
    let reporter = Reporter::new(&context);
    let restores = Restores { reporter, context, created: Vec::new(), troubles: HashMap::new() };
    rounds::run(restores, woken).await;
}

struct Restores {
    context: Arc<Context>,
    reporter: Reporter,
    /// Jobs that the cache might not have yet.
    created: Vec<(Instant, Job)>,
    /// Why something could not be created the last time.
    troubles: HashMap<Key, String>,
}

impl Rounds for Restores {
    fn title(key: &Key) -> String {
        title(key)
    }

    fn all(&self) -> Vec<Key> {
        let restores = self.context.caches.restores.all();
        let key =
            |it: Arc<EtcdRestore>| Key { namespace: it.namespace().unwrap_or_default(), name: it.name_any() };
        restores.into_iter().map(key).collect()
    }

    async fn round(&mut self, key: &Key) -> kube::Result<Option<Duration>> {
        self.context.planted_panic.strike(key);
        let now = Instant::now();
        self.created.retain(|(since, _)| now.duration_since(*since) < CACHES_LAG);
        let at = ObjectRef::new(&key.name).within(&key.namespace);
        let Some(restore) = self.context.caches.restores.get(&at) else {
            // Kubernetes deletes its Jobs.
            self.troubles.remove(key);
            return Ok(None);
        };
        let Decision { status, writes, again_at } = self.decide(key, &restore);
        if let Some(status) = status {
            let written: EtcdRestore =
                self.context.client.request(restores::report(&restore, &status)).await?;
            tracing::info!(object = title(key), phase = ?status.phase, "updated status");
            let after = written.status.unwrap_or_default();
            for event in restores::events::of_change(restore.status.as_ref(), &after) {
                self.reporter.publish(&*restore, event);
            }
        }
        for write in &writes {
            let sent = self.send(key, write).await;
            match &sent {
                Err(error) => self.troubles.insert(key.clone(), chain(error).to_string()),
                Ok(()) => self.troubles.remove(key),
            };
            sent?;
        }
        let pause = again_at.map(|at| at.duration_since(Timestamp::now()));
        Ok(pause.map(|pause| Duration::try_from(pause).unwrap_or_default()))
    }
}

impl Restores {
    fn decide(&mut self, key: &Key, restore: &EtcdRestore) -> Decision {
        let now = Timestamp::now();
        let caches = &self.context.caches;
        let (namespace, cluster) = (&key.namespace, restores::cluster_of(restore));
        let backup = backup_of(restore)
            .and_then(|(namespace, name)| caches.backups.get(&ObjectRef::new(&name).within(&namespace)));
        let cluster_object = caches.clusters.get(&ObjectRef::new(cluster).within(namespace));
        let names = Names::new(namespace, cluster, "").with_volumes(&restores::volumes_of(restore));
        let is_of_cluster = |claim: &PersistentVolumeClaim| {
            claim.namespace().as_ref() == Some(namespace)
                && claim.labels().get(CLUSTER_LABEL).is_some_and(|it| it == cluster)
        };
        let all = caches.claims.all_that(is_of_cluster);
        let uid = restore.uid();
        let is_replaced =
            |claim: &&Arc<PersistentVolumeClaim>| claim.labels().get(REPLACED_BY_LABEL) == uid.as_ref();
        let mut replaced: Vec<String> =
            all.iter().filter(is_replaced).map(|claim| claim.name_any()).collect();
        replaced.sort();
        let claims: BTreeMap<Ordinal, PersistentVolumeClaim> = all
            .into_iter()
            .filter_map(|claim| Some((names.ordinal_of_claim(&claim.name_any())?, (*claim).clone())))
            .collect();
        let runs = self.runs(restore, now);
        restores::decide(&Seen {
            restore,
            backup: backup.as_deref(),
            cluster: cluster_object.as_deref(),
            claims: &claims,
            replaced: &replaced,
            runs: &runs,
            image: &self.context.agent_image,
            domain: &self.context.domain,
            trouble: self.troubles.get(key).map(String::as_str),
            now,
        })
    }

    fn runs(&mut self, restore: &EtcdRestore, now: Timestamp) -> Vec<Run> {
        let caches = &self.context.caches;
        let (namespace, uid) = (restore.namespace(), restore.uid());
        let is_own = |job: &Job| {
            job.namespace() == namespace && Mark::on(job).is_some_and(|mark| Some(mark.uid) == uid)
        };
        let cached = caches.jobs.all_that(is_own);
        // From now on the cache knows when it is gone.
        self.created.retain(|(_, job)| !cached.iter().any(|it| it.uid() == job.uid()));
        let pods = caches.job_pods.all_that(|pod| pod.namespace() == namespace && Mark::on(pod).is_some());
        let run = |job: &Job| {
            let is_owned = |pod: &&Arc<Pod>| {
                pod.owner_references().iter().any(|owner| Some(&owner.uid) == job.uid().as_ref())
            };
            Run::of(job, pods.iter().find(is_owned).map(|pod| &**pod), now)
        };
        let new = self.created.iter().map(|(_, job)| job).filter(|job| is_own(job));
        cached.iter().map(|job| &**job).chain(new).filter_map(run).collect()
    }

    async fn send(&mut self, key: &Key, write: &Write) -> kube::Result<()> {
        let (client, request) = (&self.context.client, restores::http(write));
        let sent = match write {
            Write::CreateJob(_) => client.request::<Job>(request).await.map(|job| {
                tracing::info!(object = title(key), job = job.name_any(), "created Job");
                self.created.push((Instant::now(), job));
            }),
            Write::CreateCluster(cluster) => client.request::<Value>(request).await.map(|_| {
                tracing::info!(object = title(key), cluster = cluster.name_any(), "created EtcdCluster");
            }),
            Write::CreateClaim(claim) => client.request::<Value>(request).await.map(|_| {
                tracing::info!(object = title(key), claim = claim.name_any(), "created claim");
            }),
            Write::Label { name, .. } => client.request::<Value>(request).await.map(|_| {
                tracing::info!(object = title(key), claim = name, "restored data is ready to start");
            }),
            Write::DeleteClaim { name, .. } => client.request::<Value>(request).await.map(|_| {
                tracing::info!(object = title(key), claim = name, "deleted claim");
            }),
            Write::Order { name, replacement: Some(_), .. } => {
                client.request::<Value>(request).await.map(|_| {
                    tracing::info!(
                        object = title(key),
                        cluster = name,
                        "ordered to continue with other data"
                    );
                })
            }
            Write::Order { name, replacement: None, .. } => {
                client.request::<Value>(request).await.map(|_| {
                    tracing::info!(
                        object = title(key),
                        cluster = name,
                        "took the order to replace data back"
                    );
                })
            }
            Write::DeleteJob { name, .. } => client.request::<Value>(request).await.map(|_| {
                tracing::info!(object = title(key), job = name, "deleted Job");
            }),
        };
        match (write, sent) {
            // The same, created by this operator or another one; what it really is shows in the next observation.
            (
                Write::CreateJob(_) | Write::CreateCluster(_) | Write::CreateClaim(_),
                Err(kube::Error::Api(status)),
            ) if status.is_already_exists() => Ok(()),
            (Write::DeleteJob { .. } | Write::DeleteClaim { .. }, Err(kube::Error::Api(status)))
                if status.is_not_found() =>
            {
                Ok(())
            }
            (_, sent) => sent,
        }
    }
}

fn title(key: &Key) -> String {
    format!("EtcdRestore {}/{}", key.namespace, key.name)
}
