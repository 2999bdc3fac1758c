//! Reports to users: the status, and an event for each step.

use std::sync::Arc;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::events::{self, Event};
use etcd_operator_core::names::{FIELD_MANAGER, Names};
use etcd_operator_core::plan::Action;
use etcd_operator_core::status::{self, Basis};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event as Published;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

use super::failure::Failure;
use super::look::Look;
use super::worker::Context;
use crate::kind::Kind;
use crate::telemetry::chain;

pub struct Reporter {
    client: Client,
    identity: String,
    wrote: Option<Wrote>,
}

/// Our last write, which the cache may not have seen yet.
struct Wrote {
    over: Option<String>,
    object: Arc<EtcdCluster>,
}

impl Reporter {
    pub fn new(context: &Context) -> Self {
        Self { client: context.client.clone(), identity: context.identity.clone(), wrote: None }
    }

    /// What we made of this object, if we wrote it since.
    pub fn newer_than(&self, cached: &EtcdCluster) -> Option<Arc<EtcdCluster>> {
        let wrote = self.wrote.as_ref().filter(|wrote| wrote.over == cached.metadata.resource_version)?;
        Some(Arc::clone(&wrote.object))
    }

    /// Writes the status if it reports something new, and returns the object as it is then.
    pub async fn report(
        &mut self,
        cluster: &Arc<EtcdCluster>,
        basis: &Basis<'_>,
    ) -> Result<Arc<EtcdCluster>, Failure> {
        let Some(status) = status::of_cluster(cluster, basis, Timestamp::now()) else {
            return Ok(Arc::clone(cluster));
        };
        let clusters: Api<EtcdCluster> = self.api(cluster);
        // On the version it was computed from: what somebody else recorded meanwhile is not written over.
        let patch = json!({
            "apiVersion": EtcdCluster::api_version(&()),
            "kind": EtcdCluster::kind(&()),
            "metadata": {"resourceVersion": cluster.metadata.resource_version},
            "status": status,
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let written = clusters.patch_status(&cluster.name_any(), &parameters, &Patch::Apply(patch)).await;
        let written = Arc::new(written.map_err(|source| Failure::answered("write the status", source))?);
        let over = cluster.metadata.resource_version.clone();
        self.wrote = Some(Wrote { over, object: Arc::clone(&written) });
        for event in events::of_change(cluster.status.as_ref(), &status) {
            self.publish(cluster, event);
        }
        Ok(written)
    }

    /// One event for each step.
    pub fn did(&self, action: &Action, look: &Look, names: &Names) {
        if let Some(event) = events::of_action(action, names, &look.observed) {
            self.publish(&look.objects.cluster, event);
        }
    }

    /// Beside the work: an event that is lost holds nothing up.
    pub fn publish(&self, cluster: &EtcdCluster, event: Event) {
        let now = Timestamp::now();
        let published = Published {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", cluster.name_any(), now.as_nanosecond())),
                namespace: cluster.namespace(),
                ..ObjectMeta::default()
            },
            type_: Some(if event.warning { "Warning" } else { "Normal" }.into()),
            reason: Some(event.reason),
            action: Some(event.action.into()),
            note: Some(event.note),
            regarding: Some(cluster.object_ref(&())),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(FIELD_MANAGER.into()),
            reporting_instance: Some(self.identity.clone()),
            ..Published::default()
        };
        let events: Api<Published> = self.api(cluster);
        tokio::spawn(async move {
            if let Err(error) = events.create(&PostParams::default(), &published).await {
                tracing::debug!(error = %chain(&error), "event not written");
            }
        });
    }

    fn api<K: Kind>(&self, cluster: &EtcdCluster) -> Api<K> {
        Api::namespaced(self.client.clone(), &cluster.namespace().unwrap_or_default())
    }
}
