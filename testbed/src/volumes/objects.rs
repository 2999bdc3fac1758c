//! Volumes and storage classes as Kubernetes objects.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{
    LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::{Disk, PROVISIONER};
use crate::layout::Node;

const MAKER_ANNOTATION: &str = "pv.kubernetes.io/provisioned-by";
const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";

/// `standard`, the default, whose disks go with their claims; `standard-retain`, whose disks stay; and
/// `standard-fixed`, whose disks do not grow.
pub fn storage_classes() -> Vec<StorageClass> {
    let fixed = storage_class("standard-fixed", "Delete", false);
    vec![
        storage_class("standard", "Delete", true),
        storage_class("standard-retain", "Retain", false),
        StorageClass { allow_volume_expansion: Some(false), ..fixed },
    ]
}

fn storage_class(name: &str, reclaim_policy: &str, is_default: bool) -> StorageClass {
    StorageClass {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: is_default
                .then(|| BTreeMap::from([(DEFAULT_CLASS_ANNOTATION.to_owned(), "true".to_owned())])),
            ..ObjectMeta::default()
        },
        provisioner: PROVISIONER.to_owned(),
        reclaim_policy: Some(reclaim_policy.to_owned()),
        allow_volume_expansion: Some(true),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..StorageClass::default()
    }
}

/// The name of a claim's volume and of its disk; no two claims ever share it.
pub fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

/// The volume that describes a disk made for a claim.
pub fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: Node,
    disk: &Disk,
) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume_name(claim)),
            annotations: Some(BTreeMap::from([(MAKER_ANNOTATION.to_owned(), PROVISIONER.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: spec.resources.and_then(|resources| resources.requests),
            access_modes: spec.access_modes,
            volume_mode: Some("Filesystem".to_owned()),
            persistent_volume_reclaim_policy: class.reclaim_policy.clone(),
            mount_options: class.mount_options.clone(),
            storage_class_name: spec.storage_class_name,
            claim_ref: Some(ObjectReference { resource_version: None, ..claim.object_ref(&()) }),
            local: Some(LocalVolumeSource { path: disk.mount.display().to_string(), fs_type: None }),
            node_affinity: Some(only_on(node)),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

fn only_on(node: Node) -> VolumeNodeAffinity {
    let hostname = NodeSelectorRequirement {
        key: "kubernetes.io/hostname".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.name()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![hostname]), match_fields: None };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

/// The node of a volume that we made; none for a volume that we did not make.
pub fn node_of(volume: &PersistentVolume) -> Option<Node> {
    if volume.annotations().get(MAKER_ANNOTATION).map(String::as_str) != Some(PROVISIONER) {
        return None;
    }
    let path = Path::new(&volume.spec.as_ref()?.local.as_ref()?.path);
    let (dir, name) = (path.parent()?.file_name()?, path.file_name()?);
    (name.to_str()? == volume.name_any()).then(|| Node::by_name(dir.to_str()?)).flatten()
}

/// As the volume spells it; empty if it has none.
pub fn capacity(volume: &PersistentVolume) -> String {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    capacity.and_then(|capacity| capacity.get("storage")).map(|size| size.0.clone()).unwrap_or_default()
}

pub fn is_released_to_delete(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    phase == Some("Released") && policy == Some("Delete")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_class_is_the_default_and_all_wait_for_the_pod() {
        let classes = storage_classes();
        let default: Vec<_> = classes
            .iter()
            .filter(|class| class.annotations().contains_key(DEFAULT_CLASS_ANNOTATION))
            .map(ResourceExt::name_any)
            .collect();
        assert_eq!(default, ["standard"]);
        assert!(
            classes.iter().all(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
        );
    }

    #[test]
    fn one_class_does_not_grow() {
        let mut fixed = storage_classes();
        fixed.retain(|class| class.allow_volume_expansion != Some(true));
        assert_eq!(fixed.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["standard-fixed"]);
    }

    #[test]
    fn a_volume_has_what_claim_and_class_say_and_is_known_as_ours() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": "data-0", "namespace": "db", "uid": "7", "resourceVersion": "5"},
            "spec": {"accessModes": ["ReadWriteOncePod"], "storageClassName": "standard-retain",
                "resources": {"requests": {"storage": "64Mi"}}},
        }))
        .expect("a claim");
        let mut class = storage_class("standard-retain", "Retain", false);
        class.mount_options = Some(vec!["noatime".to_owned()]);
        let node = Node::by_name("n3").expect("a node");
        let made = volume(&claim, &class, node, &Disk::new(Path::new("/v"), node, "pvc-7"));
        assert_eq!(node_of(&made), Some(node));
        let made = serde_json::to_value(made).expect("JSON");
        assert_eq!(
            made["spec"],
            json!({
                "capacity": {"storage": "64Mi"},
                "accessModes": ["ReadWriteOncePod"],
                "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": "Retain",
                "mountOptions": ["noatime"],
                "storageClassName": "standard-retain",
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "db",
                    "name": "data-0", "uid": "7"},
                "local": {"path": "/v/n3/pvc-7"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n3"]}]}]}},
            })
        );
    }
}
