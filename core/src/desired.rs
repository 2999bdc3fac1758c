//! The objects of a cluster as they should be. Whoever applies them changes nothing in them.

mod certificate;
mod contained;
mod difference;
mod metadata;
mod monitoring;
mod network_policy;
mod pod;
mod preflight;
mod probes;
mod rendering;
mod secret;
mod services;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, PodTemplateSpec};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::form::{Form, Record};
use crate::intent::Intent;
use crate::names::{self, Names};
use crate::order::{self, BootstrapOrder};
use crate::quorum::quorum;
use crate::recovery::{self, RecoveryOrder};

pub use contained::contained;
pub use difference::not_applied;
pub use metadata::labels;
pub use monitoring::pod_monitor_resource;
pub use network_policy::{OperatorPods, restricts_as_wanted};
pub(crate) use pod::{
    ETCD, SIDECAR, ZONE_LABEL, container_security, is_default_spreading, pod_security, stay_on_lost_nodes,
};
pub use rendering::{PodAgent, agents};
pub use secret::secret;
pub use services::services;

/// What the objects of one cluster have in common.
pub struct Desired<'a> {
    pub intent: &'a Intent,
    pub names: &'a Names,
    /// The image that holds the agent: the operator's own.
    pub agent_image: &'a str,
    /// None if the operator runs outside of Kubernetes.
    pub operator: Option<&'a OperatorPods>,
}

impl Desired<'_> {
    fn metadata(&self, name: String) -> ObjectMeta {
        metadata::metadata(self.names, &self.intent.uid, name)
    }

    /// The bootstrap order. Not `immutable`: kubelets go on serving a deleted immutable ConfigMap to new pods.
    pub fn order(&self, order: &BootstrapOrder) -> ConfigMap {
        ConfigMap {
            metadata: self.metadata(self.names.order()),
            data: Some(BTreeMap::from([(order::KEY.into(), order.render())])),
            ..ConfigMap::default()
        }
    }

    /// Pods mount it where they would find a bootstrap order.
    pub fn recovery(&self, order: &RecoveryOrder) -> ConfigMap {
        ConfigMap {
            metadata: self.metadata(self.names.order()),
            data: Some(BTreeMap::from([(recovery::KEY.into(), order.render())])),
            ..ConfigMap::default()
        }
    }

    /// The form to return to.
    pub fn record(&self, record: &Record) -> ConfigMap {
        ConfigMap {
            metadata: self.metadata(self.names.form()),
            data: Some(record.data()),
            ..ConfigMap::default()
        }
    }

    pub fn stateful_set(&self, replicas: u8, form: &Form) -> StatefulSet {
        self.set_of(replicas, self.template(form, self.intent.adopts.clone()))
    }

    /// Whose volumes were adopted is recorded, so it outlives the annotation of the EtcdCluster.
    pub fn recreated_set(&self, replicas: u8, record: &Record) -> StatefulSet {
        let adopts = record.adopts.clone().or_else(|| self.intent.adopts.clone());
        self.set_of(replicas, self.template(&record.form, adopts))
    }

    /// Pods come all at once and wait in their agent; every restart is ours to choose.
    fn set_of(&self, replicas: u8, template: PodTemplateSpec) -> StatefulSet {
        let spec = StatefulSetSpec {
            replicas: Some(i32::from(replicas)),
            service_name: Some(self.names.peer_service()),
            pod_management_policy: Some("Parallel".into()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".into()),
                rolling_update: None,
            }),
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some("Retain".into()),
                when_scaled: Some("Retain".into()),
            }),
            selector: LabelSelector { match_labels: Some(self.names.selector()), match_expressions: None },
            template,
            volume_claim_templates: Some(vec![self.claim()]),
            ..StatefulSetSpec::default()
        };
        StatefulSet { metadata: self.metadata(self.names.cluster.clone()), spec: Some(spec), status: None }
    }

    /// The UID says for which cluster of this name a volume was made.
    pub fn claim(&self) -> PersistentVolumeClaim {
        let storage = &self.intent.storage;
        let mut labels = storage.labels.clone();
        labels.extend(self.names.selector());
        labels.insert(names::CLUSTER_UID_LABEL.into(), self.intent.uid.clone());
        let metadata = ObjectMeta {
            name: Some(self.names.volumes.clone()),
            labels: Some(labels),
            annotations: Some(storage.annotations.clone()).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        };
        PersistentVolumeClaim { metadata, spec: Some(storage.claim.clone()), status: None }
    }

    /// Drains may take what leaves a quorum of the larger of what is there and what is wanted. While voters are not connected
    /// to each other, drains wait: any of them might be the one that connects the others.
    pub fn disruption_budget(&self, voters: usize, apart: bool) -> Option<PodDisruptionBudget> {
        let members = voters.max(usize::from(self.intent.size));
        if !self.intent.disruption_budget || members == 0 {
            return None;
        }
        let needed = if apart { members } else { quorum(members) };
        let spec = PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(i32::try_from(needed).unwrap_or(i32::MAX))),
            selector: Some(LabelSelector {
                match_labels: Some(self.names.selector()),
                match_expressions: None,
            }),
            ..PodDisruptionBudgetSpec::default()
        };
        Some(PodDisruptionBudget {
            metadata: self.metadata(self.names.cluster.clone()),
            spec: Some(spec),
            status: None,
        })
    }
}

#[cfg(test)]
mod tests;
