//! What volumes were made with for ever, compared with what they would be made with now. Size and class change.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::Value;

use super::contained::{contained, is_empty};

/// Where a part of a claim's template comes from in the spec. Each is compared by itself; the rest of a template cannot be
/// told from its defaults.
const PARTS: [(&str, &str); 4] = [
    ("spec.storage.volumeClaimTemplate.metadata.labels", "/metadata/labels"),
    ("spec.storage.volumeClaimTemplate.metadata.annotations", "/metadata/annotations"),
    ("spec.storage.volumeClaimTemplate.spec.accessModes", "/spec/accessModes"),
    ("spec.storage.volumeClaimTemplate.spec.selector", "/spec/selector"),
];

/// The fields of an EtcdCluster that volumes do not have as they are written now. The API server fills in defaults, so only
/// what we set is compared.
pub fn not_applied(existing: &StatefulSet, wanted: &PersistentVolumeClaim) -> Vec<&'static str> {
    let claims = existing.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    let value = |claim| serde_json::to_value(claim).unwrap_or_default();
    let (there, wanted) = (claims.map(value).next().unwrap_or_default(), value(wanted));
    let differs = |pointer: &str| !holds(there.pointer(pointer), wanted.pointer(pointer));
    PARTS.iter().filter(|(_, pointer)| differs(pointer)).map(|(field, _)| *field).collect()
}

/// Whether everything that is wanted is there, and nothing that was taken out of a list or map of ours.
fn holds(there: Option<&Value>, wanted: Option<&Value>) -> bool {
    match (there.filter(|it| !is_empty(it)), wanted.filter(|it| !is_empty(it))) {
        (None, None) => true,
        (Some(Value::Object(there)), Some(Value::Object(wanted)))
            if wanted.values().all(Value::is_string) =>
        {
            there == wanted
        }
        (Some(there), Some(wanted)) => contained(wanted, there),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests;
