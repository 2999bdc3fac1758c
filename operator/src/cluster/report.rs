//! Reports to users: the status, and an event for each step.

use etcd_operator_core::api::{EtcdCluster, EtcdClusterStatus};
use etcd_operator_core::decide::Goal;
use etcd_operator_core::events::{self, Event};
use etcd_operator_core::names::{FIELD_MANAGER, Names};
use etcd_operator_core::plan::Action;
use etcd_operator_core::request::{self, Target};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event as Published;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt};

use super::observation::Observation;
use super::worker::Context;
use crate::telemetry::chain;

pub struct Reporter {
    client: Client,
    identity: String,
}

impl Reporter {
    pub fn new(context: &Context) -> Self {
        Self { client: context.client.clone(), identity: context.identity.clone() }
    }

    /// A new status was written over this object, and this is what the API server made of it.
    pub fn reported(&self, cluster: &EtcdCluster, written: &EtcdCluster) {
        let status = written.status.iter();
        for event in status.flat_map(|status| events::of_change(cluster.status.as_ref(), status)) {
            self.publish(cluster, event);
        }
    }

    /// Writes and reports why there is no observation. Returns what the API server made of it.
    pub async fn unobserved(
        &self,
        cluster: &EtcdCluster,
        names: &Names,
        (status, event): (EtcdClusterStatus, Event),
    ) -> kube::Result<Option<EtcdCluster>> {
        let target = Target { cluster, names, desired: None, set: None, record: None, issued: None };
        let write = request::report(cluster, status).and_then(|write| request::http(&write, target));
        let Some(write) = write else { return Ok(None) };
        let written = self.client.request(write).await?;
        self.publish(cluster, event);
        Ok(Some(written))
    }

    /// One event for each step.
    pub fn did(&self, action: &Action, goal: &Goal, observation: &Observation, names: &Names) {
        if let Some(event) = events::of_action(action, goal, names, &observation.seen) {
            self.publish(&*observation.objects.cluster, event);
        }
    }

    /// Beside the work: an event that is lost holds nothing up.
    pub fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, event: Event) {
        let now = Timestamp::now();
        let published = Published {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", object.name_any(), now.as_nanosecond())),
                namespace: object.namespace(),
                ..ObjectMeta::default()
            },
            type_: Some(if event.warning { "Warning" } else { "Normal" }.into()),
            reason: Some(event.reason),
            action: Some(event.action.into()),
            note: Some(event.note),
            regarding: Some(object.object_ref(&())),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(FIELD_MANAGER.into()),
            reporting_instance: Some(self.identity.clone()),
            ..Published::default()
        };
        let namespace = object.namespace().unwrap_or_default();
        let events: Api<Published> = Api::namespaced(self.client.clone(), &namespace);
        tokio::spawn(async move {
            if let Err(error) = events.create(&PostParams::default(), &published).await {
                tracing::debug!(error = %chain(&error), "event not written");
            }
        });
    }
}
