//! The volumes of a cluster, and what happens to them when it stops or goes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Quantity;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// The StorageClass of the volumes. Default: the default class of the Kubernetes cluster. With another class, the
    /// operator replaces the members one at a time, because no volume can move; this needs two members or more. Without
    /// a class, volumes keep theirs and new ones get the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,

    /// The size of each volume. Volumes grow while members use them, if their StorageClass allows expansion. They cannot
    /// shrink: less than a volume has is refused, but a growth that is not done yet can be reverted.
    #[serde(default = "default_size")]
    pub size: Quantity,

    /// Further settings of the PersistentVolumeClaims: labels, annotations, access modes, a selector. Immutable;
    /// `storage.size` and `storage.storageClassName` can be changed, also where this template has a size or a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_template: Option<VolumeClaimTemplate>,

    /// What happens to the volumes when `size` becomes 0. `Retain` keeps the volume of the last member, which holds
    /// all data, and deletes the others. `RetainAll` keeps every volume. `Archive` (not implemented) keeps a
    /// verified backup and no volume. `Delete` deletes every volume.
    #[serde(default)]
    pub on_stop: StopPolicy,

    /// What happens to the volumes when the EtcdCluster is deleted. A new cluster with the same name does not use
    /// retained volumes unless you adopt them with the annotation `etcd.etcd.io/adopt-volumes-of`.
    #[serde(default)]
    pub on_delete: DeletePolicy,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            storage_class_name: None,
            size: default_size(),
            volume_claim_template: None,
            on_stop: StopPolicy::default(),
            on_delete: DeletePolicy::default(),
        }
    }
}

impl Storage {
    /// Whether `size` may be the one that the API server filled in.
    pub fn has_default_size(&self) -> bool {
        self.size == default_size()
    }

    /// `size`, unless it is the default and the template of the claims asks for another one.
    pub fn size_in_effect(&self) -> Quantity {
        let by_template = self.requested_by_template().filter(|_| self.has_default_size());
        by_template.unwrap_or_else(|| self.size.clone())
    }

    /// The size that the template of the claims asks for.
    pub fn requested_by_template(&self) -> Option<Quantity> {
        let resources = self.volume_claim_template.as_ref()?.spec.resources.as_ref()?;
        Some(Quantity::Text(resources.requests.as_ref()?.get("storage")?.0.clone()))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaimTemplate {
    /// Labels and annotations of the PersistentVolumeClaims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,

    /// As in a PersistentVolumeClaim. A `storageClassName` or a `storage` request in this template is in effect while
    /// `storage.storageClassName` is not set or `storage.size` is 10Gi, the default. `volumeName`, `dataSource` and `dataSourceRef` have no
    /// effect: every member needs its own, empty volume.
    pub spec: PersistentVolumeClaimSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Additional labels of the PersistentVolumeClaims.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,

    /// Additional annotations of the PersistentVolumeClaims.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    #[default]
    Retain,
    RetainAll,
    Archive,
    Delete,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletePolicy {
    #[default]
    Retain,
    Delete,
}

fn default_size() -> Quantity {
    Quantity::Text("10Gi".into())
}
