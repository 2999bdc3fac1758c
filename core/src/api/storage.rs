//! The volumes of a cluster, and what happens to them when it stops or goes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Quantity;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// The StorageClass of the volumes; the cluster's default class if left out. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,

    /// The size of each volume. Cannot be changed yet.
    #[serde(default = "default_size")]
    pub size: Quantity,

    /// What else the volume claims should say: labels, annotations, access modes, a selector. Cannot be
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_template: Option<VolumeClaimTemplate>,

    /// What happens to the volumes when `size` becomes 0. `Retain` keeps that of the last member, which holds
    /// everything, and deletes the others. `RetainAll` stops all members as they are. `Archive` keeps a
    /// verified backup and no volume. `Delete` keeps nothing.
    #[serde(default)]
    pub on_stop: StopPolicy,

    /// What happens to the volumes when the EtcdCluster is deleted. A new cluster of the same name does not
    /// take kept volumes over by itself.
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

    /// The size that the template of the claims asks for.
    pub fn requested_by_template(&self) -> Option<Quantity> {
        let resources = self.volume_claim_template.as_ref()?.spec.resources.as_ref()?;
        Some(Quantity::Text(resources.requests.as_ref()?.get("storage")?.0.clone()))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaimTemplate {
    /// Labels and annotations of the claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,

    /// As in a PersistentVolumeClaim. A `storageClassName` or a request for `storage` in here stands for the
    /// field beside the template. `volumeName`, `dataSource` and `dataSourceRef` are not used: every member
    /// needs a volume of its own, and an empty one.
    pub spec: PersistentVolumeClaimSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels of the claims, beside those of the operator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the claims, beside those of the operator.
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
