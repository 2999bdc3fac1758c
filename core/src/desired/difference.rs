//! What members were made with, compared with what they would be made with now.

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::Value;

use super::contained::{contained, is_empty};
use crate::agent::environment;
use crate::api::Quantity;

/// As fine as the API server keeps amounts in pods: thousandths, in billionths.
const FINEST: u128 = 1_000_000;

/// What `kubectl rollout restart` writes into a template.
const MARKS_OF_KUBECTL: &str = "kubectl.kubernetes.io/";

/// Where a part of the pod template comes from in the spec. Each is compared by itself.
const PARTS_OF_PODS: [(&str, &str); 8] = [
    ("spec.podTemplate.labels", "/metadata/labels"),
    ("spec.podTemplate.annotations", "/metadata/annotations"),
    ("spec.podTemplate.nodeSelector", "/spec/nodeSelector"),
    ("spec.podTemplate.tolerations", "/spec/tolerations"),
    ("spec.podTemplate.affinity", "/spec/affinity"),
    ("spec.podTemplate.topologySpreadConstraints", "/spec/topologySpreadConstraints"),
    ("spec.podTemplate.priorityClassName", "/spec/priorityClassName"),
    ("spec.podTemplate.imagePullSecrets", "/spec/imagePullSecrets"),
];

/// The same for what the agent makes flags of.
const OPTIONS: [(&str, &str); 6] = [
    ("spec.options.quotaBackendBytes", "/options/quotaBackendBytes"),
    ("spec.options.autoCompactionMode", "/options/autoCompaction"),
    ("spec.options.snapshotCount", "/options/snapshotCount"),
    ("spec.options.heartbeatIntervalMilliseconds", "/options/heartbeatIntervalMilliseconds"),
    ("spec.options.electionTimeoutMilliseconds", "/options/electionTimeoutMilliseconds"),
    ("spec.options.extraArguments", "/options/extraArguments"),
];

/// For claims; the rest of a claim's template cannot be told from its defaults.
const PARTS_OF_CLAIMS: [(&str, &str); 5] = [
    ("spec.storage.storageClassName", "/spec/storageClassName"),
    ("spec.storage.volumeClaimTemplate.metadata.labels", "/metadata/labels"),
    ("spec.storage.volumeClaimTemplate.metadata.annotations", "/metadata/annotations"),
    ("spec.storage.volumeClaimTemplate.spec.accessModes", "/spec/accessModes"),
    ("spec.storage.volumeClaimTemplate.spec.selector", "/spec/selector"),
];

/// The fields of an EtcdCluster that members do not have as they are written now.
///
/// The API server fills in defaults, so only what we set is compared, and amounts by their size. What users took out
/// of a list or a map counts; what they took out of one of its entries is only seen if nothing defaults it.
pub fn not_rolled_out(existing: &StatefulSet, desired: &StatefulSet) -> Vec<&'static str> {
    let (there, wanted) = (Set::of(existing), Set::of(desired));
    let mut fields = Vec::new();
    fields.extend(there.image().differences(&wanted.image()));
    fields.extend(differing(&OPTIONS, &there.config(), &wanted.config()));
    for (field, pointer) in
        [("spec.resources.requests", "/resources/requests"), ("spec.resources.limits", "/resources/limits")]
    {
        let (there, wanted) = (there.container("etcd"), wanted.container("etcd"));
        if !same_amounts(there.pointer(pointer), wanted.pointer(pointer)) {
            fields.push(field);
        }
    }
    fields.extend(differing(&PARTS_OF_PODS, &there.pod(), &wanted.pod()));
    // The API server fills nothing in here, and a user or group that was taken out counts.
    let context = |set: &Set| set.at("/spec/template/spec/securityContext");
    let (has, wants) = (context(&there), context(&wanted));
    if !(contained(&wants, &has) && contained(&has, &wants)) {
        fields.push("spec.podTemplate.securityContext");
    }
    // Who sets an affinity gives up our own spreading; that is one edit, not two.
    if fields.contains(&"spec.podTemplate.affinity") {
        fields.retain(|field| *field != "spec.podTemplate.topologySpreadConstraints");
    }
    if there.container("netshoot").get("image") != wanted.container("netshoot").get("image") {
        fields.push("spec.debugSidecar");
    }
    let size = "/spec/resources/requests";
    if !same_amounts(there.claim().pointer(size), wanted.claim().pointer(size)) {
        fields.push("spec.storage.size");
    }
    fields.extend(differing(&PARTS_OF_CLAIMS, &there.claim(), &wanted.claim()));
    fields
}

fn differing(parts: &[(&'static str, &str)], there: &Value, wanted: &Value) -> Vec<&'static str> {
    let differs = |pointer| !holds(there.pointer(pointer), wanted.pointer(pointer));
    parts.iter().filter(|(_, pointer)| differs(pointer)).map(|(field, _)| *field).collect()
}

/// A StatefulSet as data.
struct Set(Value);

impl Set {
    fn of(set: &StatefulSet) -> Self {
        Self(serde_json::to_value(set).unwrap_or_default())
    }

    fn at(&self, pointer: &str) -> Value {
        self.0.pointer(pointer).cloned().unwrap_or_default()
    }

    fn pod(&self) -> Value {
        self.at("/spec/template")
    }

    fn claim(&self) -> Value {
        self.at("/spec/volumeClaimTemplates/0")
    }

    fn container(&self, name: &str) -> Value {
        named(&self.at("/spec/template/spec/containers"), name)
    }

    fn config(&self) -> Value {
        let etcd = self.container("etcd");
        let variable = named(&etcd["env"], environment::CONFIG);
        let text = variable.get("value").and_then(Value::as_str).unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    }

    fn image(&self) -> Image {
        let etcd = self.container("etcd");
        let image = etcd.get("image").and_then(Value::as_str).unwrap_or_default();
        let (repository, tag) = image.rsplit_once(':').unwrap_or((image, ""));
        Image { repository: repository.into(), tag: tag.into() }
    }
}

struct Image {
    repository: String,
    tag: String,
}

impl Image {
    fn differences(&self, wanted: &Self) -> impl Iterator<Item = &'static str> {
        let version = (self.tag != wanted.tag).then_some("spec.version");
        let repository = (self.repository != wanted.repository).then_some("spec.repository");
        version.into_iter().chain(repository)
    }
}

/// The entry of a list that has this name.
fn named(list: &Value, name: &str) -> Value {
    let mut entries = list.as_array().into_iter().flatten();
    entries.find(|entry| entry["name"] == name).cloned().unwrap_or_default()
}

/// Whether everything that is wanted is there, and nothing that was taken out of a list or map of ours.
fn holds(there: Option<&Value>, wanted: Option<&Value>) -> bool {
    match (there.filter(|it| !is_empty(it)), wanted.filter(|it| !is_empty(it))) {
        (None, None) => true,
        (Some(Value::Object(there)), Some(Value::Object(wanted)))
            if wanted.values().all(Value::is_string) =>
        {
            // A map from names to texts: nothing fills it in but kubectl, and marks for kubectl are no edit.
            let counts = |(key, _): &(&String, &Value)| !key.starts_with(MARKS_OF_KUBECTL);
            there.iter().filter(counts).eq(wanted.iter().filter(counts))
        }
        (Some(there), Some(wanted)) => contained(wanted, there),
        (Some(Value::Object(there)), None) => there.keys().all(|key| key.starts_with(MARKS_OF_KUBECTL)),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// `1` and `1000m` are the same amount, and the API server writes each in its own way.
fn same_amounts(there: Option<&Value>, wanted: Option<&Value>) -> bool {
    let amounts = |amounts: Option<&Value>| -> Vec<(String, Option<u128>)> {
        let fields = amounts.and_then(Value::as_object).into_iter().flatten();
        fields.map(|(name, amount)| (name.clone(), size(amount))).collect()
    };
    amounts(there) == amounts(wanted)
}

fn size(amount: &Value) -> Option<u128> {
    let amount = serde_json::from_value::<Quantity>(amount.clone()).ok()?;
    amount.nano().map(|nano| nano.div_ceil(FINEST))
}

#[cfg(test)]
mod tests;
