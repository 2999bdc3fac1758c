//! The API: what users write and what they read back. Doc comments on fields are the help of `kubectl explain`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use quantity::Quantity;

mod quantity;

/// What an etcd cluster should be like.
#[expect(clippy::duplicated_attributes, reason = "columns may share a type")]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd.etcd.io",
    version = "v1alpha1",
    kind = "EtcdCluster",
    namespaced,
    status = "EtcdClusterStatus",
    shortname = "etcd",
    category = "etcd",
    doc = "A cluster of etcd members that is created, scaled and repaired as one thing.",
    derive = "PartialEq",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// How many members the cluster should have. 0 stops it and keeps its data.
    #[serde(default = "default_size")]
    #[schemars(range(min = 0, max = 9))]
    pub size: i32,

    /// The version of etcd, with or without the leading `v`.
    #[serde(default = "default_version")]
    #[schemars(regex(pattern = r"^v?3\.\d+\.\d+$"))]
    pub version: String,

    /// Where the image of etcd comes from, without the tag; the tag is the version.
    #[serde(default = "default_repository")]
    #[schemars(length(min = 1))]
    pub repository: String,

    /// The volume of each member.
    #[serde(default)]
    pub storage: Storage,

    /// What each member's etcd container asks for and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// What an empty spec means.
impl Default for EtcdClusterSpec {
    fn default() -> Self {
        Self {
            size: default_size(),
            version: default_version(),
            repository: default_repository(),
            storage: Storage::default(),
            resources: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// The StorageClass of the volumes; the cluster's default class if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,

    /// The size of each volume.
    #[serde(default = "default_storage_size")]
    pub size: Quantity,
}

impl Default for Storage {
    fn default() -> Self {
        Self { storage_class_name: None, size: default_storage_size() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the scheduler sets aside for each member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,

    /// What a member cannot exceed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// What was last seen of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// The state in one word, for people. Programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Voting members that just served a linearizable read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,

    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Facts for programs, one per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    Creating,
    Running,
    Scaling,
    Upgrading,
    Failed,
    Deleting,
    Stopped,
}

fn default_size() -> i32 {
    3
}

fn default_version() -> String {
    "v3.5.21".into()
}

fn default_repository() -> String {
    "quay.io/coreos/etcd".into()
}

fn default_storage_size() -> Quantity {
    Quantity::Text("10Gi".into())
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> EtcdClusterSpec {
        serde_json::from_value(value).expect("a valid spec")
    }

    #[test]
    fn an_empty_spec_means_three_members_of_the_default_version() {
        let empty = spec(json!({}));
        assert_eq!(empty, EtcdClusterSpec::default());
        assert_eq!((empty.size, empty.version.as_str()), (3, "v3.5.21"));
        assert_eq!(empty.repository, "quay.io/coreos/etcd");
        assert_eq!(empty.storage.size, Quantity::Text("10Gi".into()));
    }

    #[test]
    fn amounts_may_be_numbers_or_text_and_stay_as_they_were_written() {
        let written = json!({"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": "500m"}});
        let resources = spec(json!({"resources": written})).resources;
        assert_eq!(serde_json::to_value(resources).expect("plain data"), written);
    }

    #[test]
    fn a_field_with_a_default_is_not_nullable_so_that_null_means_the_default() {
        let crd = serde_json::to_value(EtcdCluster::crd()).expect("plain data");
        let spec =
            &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        for field in [&spec["size"], &spec["version"], &spec["repository"], &spec["storage"]]
            .into_iter()
            .chain([&spec["storage"]["properties"]["size"]])
        {
            assert!(field["default"] != json!(null) && field["nullable"] != json!(true), "{field}");
        }
    }

    #[test]
    fn kubectl_finds_clusters_by_the_names_that_people_type() {
        let names = EtcdCluster::crd().spec.names;
        assert_eq!(names.plural, "etcdclusters");
        assert_eq!(names.short_names, Some(vec!["etcd".into()]));
        assert_eq!(names.categories, Some(vec!["etcd".into()]));
    }

    #[test]
    fn kubectl_get_shows_the_columns_of_the_mission() {
        let columns = EtcdCluster::crd().spec.versions.remove(0).additional_printer_columns;
        let titles: Vec<_> = columns.into_iter().flatten().map(|column| column.name).collect();
        assert_eq!(titles, ["Phase", "Size", "Ready", "Version", "Age"]);
    }
}
