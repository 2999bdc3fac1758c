//! The metadata of all objects, and labels and annotations of pods: those that users chose change on running pods, without a
//! restart.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Desired, ETCD};
use crate::api::EtcdCluster;
use crate::names::{CHOSEN_ANNOTATION, CLUSTER_LABEL, FIELD_MANAGER, Names};
use crate::rules::pods::{is_owned_annotation, is_owned_label};

/// So that `kubectl exec` and `kubectl logs` mean etcd without being told.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

type Entries = BTreeMap<String, String>;

/// On everything.
pub fn labels(names: &Names) -> Entries {
    BTreeMap::from([
        ("app.kubernetes.io/name".into(), "etcd".into()),
        ("app.kubernetes.io/instance".into(), names.cluster.clone()),
        ("app.kubernetes.io/managed-by".into(), FIELD_MANAGER.into()),
        (CLUSTER_LABEL.into(), names.cluster.clone()),
    ])
}

/// Of an object that is deleted with the cluster. Claims are not.
pub(super) fn metadata(names: &Names, cluster_uid: &str, name: String) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: EtcdCluster::api_version(&()).into_owned(),
        kind: EtcdCluster::kind(&()).into_owned(),
        name: names.cluster.clone(),
        uid: cluster_uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ObjectMeta {
        name: Some(name),
        namespace: Some(names.namespace.clone()),
        labels: Some(labels(names)),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The keys that come from the spec, as pods list them: what a user takes out of the spec can be removed then, and what
/// others have added stays.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Keys {
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    labels: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    annotations: BTreeSet<String>,
}

impl Keys {
    /// None if there are none, so that pods without any need no mark.
    fn text(&self) -> Option<String> {
        (*self != Self::default()).then(|| json!(self).to_string())
    }

    fn of(pod: &ObjectMeta) -> Self {
        let text = pod.annotations.as_ref().and_then(|it| it.get(CHOSEN_ANNOTATION));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

impl Desired<'_> {
    /// What users chose, what we add, and these marks.
    pub(super) fn pod_metadata(&self, marks: Entries) -> ObjectMeta {
        let (mut all, mut annotations) = self.chosen();
        let keys = keys(&all, &annotations).text().map(|text| (CHOSEN_ANNOTATION.to_owned(), text));
        all.extend(labels(self.names));
        annotations.insert(DEFAULT_CONTAINER.into(), ETCD.into());
        annotations.extend(marks.into_iter().chain(keys));
        ObjectMeta { labels: Some(all), annotations: Some(annotations), ..ObjectMeta::default() }
    }

    /// The merge patch that gives a running pod the labels and annotations of the spec; none if it has them.
    pub fn metadata_patch(&self, pod: &ObjectMeta) -> Option<Value> {
        let (labels, annotations) = self.chosen();
        let (wanted, listed) = (keys(&labels, &annotations), Keys::of(pod));
        let none = Entries::new();
        let there_labels = pod.labels.as_ref().unwrap_or(&none);
        let there_annotations = pod.annotations.as_ref().unwrap_or(&none);
        let label_changes = changes(&labels, &listed.labels, there_labels, is_owned_label);
        let mut annotation_changes = changes(&annotations, &listed.annotations, there_annotations, is_ours);
        let mark = wanted.text();
        if mark.as_ref() != there_annotations.get(CHOSEN_ANNOTATION) {
            annotation_changes.insert(CHOSEN_ANNOTATION.into(), json!(mark));
        }
        let parts = [("labels", label_changes), ("annotations", annotation_changes)];
        let parts = parts.into_iter().filter(|(_, changes)| !changes.is_empty());
        let metadata: Map<String, Value> = parts.map(|(part, it)| (part.into(), it.into())).collect();
        (!metadata.is_empty()).then(|| json!({"metadata": metadata}))
    }

    fn chosen(&self) -> (Entries, Entries) {
        let without = |entries: &Entries, ours: fn(&str) -> bool| -> Entries {
            entries.iter().filter(|(key, _)| !ours(key)).map(|(key, it)| (key.clone(), it.clone())).collect()
        };
        let mut annotations = self.scrape_annotations();
        annotations.extend(without(&self.intent.pod_annotations, is_ours));
        (without(&self.intent.pod_labels, is_owned_label), annotations)
    }
}

fn keys(labels: &Entries, annotations: &Entries) -> Keys {
    Keys { labels: labels.keys().cloned().collect(), annotations: annotations.keys().cloned().collect() }
}

fn is_ours(annotation: &str) -> bool {
    annotation == DEFAULT_CONTAINER || is_owned_annotation(annotation)
}

/// What is wanted and different, and null for what came from the spec and is not in it any more.
fn changes(
    wanted: &Entries,
    listed: &BTreeSet<String>,
    there: &Entries,
    ours: fn(&str) -> bool,
) -> Map<String, Value> {
    let set = wanted.iter().filter(|(key, value)| there.get(*key) != Some(*value));
    let removed =
        listed.iter().filter(|key| !wanted.contains_key(*key) && there.contains_key(*key) && !ours(key));
    let set = set.map(|(key, value)| (key.clone(), json!(value)));
    set.chain(removed.map(|key| (key.clone(), Value::Null))).collect()
}
