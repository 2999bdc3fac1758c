//! cert-manager issues the certificate of the client port: what the operator asks it for, and what it reports.

use kube::core::{ApiResource, DynamicObject};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{KeyAlgorithm, Profile};
use crate::api::{CERT_MANAGER, IssuerRef};
use crate::foreign::{Foreign, NotRead};
use crate::observed::Seen;

const KIND: &str = "Certificate";
const READY: &str = "Ready";

/// How far cert-manager is with the certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Issuance {
    NoApi,
    /// The Certificate cannot be read, in the words of the API server.
    Unreadable(String),
    /// It is created, or cert-manager has not reported anything yet.
    Requested,
    /// In the words of cert-manager.
    NotReady(String),
    Ready,
}

pub fn certificate_resource() -> ApiResource {
    ApiResource {
        group: CERT_MANAGER.into(),
        version: "v1".into(),
        api_version: format!("{CERT_MANAGER}/v1"),
        kind: KIND.into(),
        plural: "certificates".into(),
    }
}

impl Issuance {
    /// None if it was not asked for.
    pub fn of(requested: &Foreign<impl AsRef<DynamicObject>>) -> Option<Self> {
        Some(match requested {
            Seen::Unknown(NotRead::NotAsked) => return None,
            Seen::Unknown(NotRead::NoApi) => Self::NoApi,
            Seen::Unknown(NotRead::Failed(error)) => Self::Unreadable(error.clone()),
            Seen::Known(None) => Self::Requested,
            Seen::Known(Some(there)) => reported(there.as_ref()),
        })
    }
}

/// What was reported about a previous generation says nothing about this one.
fn reported(certificate: &DynamicObject) -> Issuance {
    let conditions = certificate.data.pointer("/status/conditions").and_then(Value::as_array);
    let generation = certificate.metadata.generation;
    let is_ready = |it: &&Value| it["type"] == READY && it["observedGeneration"].as_i64() == generation;
    match conditions.into_iter().flatten().find(is_ready) {
        Some(ready) if ready["status"] == "True" => Issuance::Ready,
        Some(ready) => Issuance::NotReady(ready["message"].as_str().unwrap_or_default().into()),
        None => Issuance::Requested,
    }
}

/// The spec of the Certificate. Without a common name: it could be at most 64 characters long, and nothing reads it.
pub fn certificate_spec(profile: &Profile, issuer: &IssuerRef, secret: &str) -> Value {
    let size = match profile.key_algorithm {
        KeyAlgorithm::ECDSAP256 => 256,
        KeyAlgorithm::ECDSAP384 => 384,
    };
    json!({
        "secretName": secret,
        "issuerRef": issuer,
        "dnsNames": profile.dns_names,
        "ipAddresses": profile.ip_addresses,
        "usages": ["digital signature", "server auth", "client auth"],
        "duration": format!("{}s", profile.validity_seconds),
        "privateKey": {"algorithm": "ECDSA", "size": size, "rotationPolicy": "Always"},
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn reported(conditions: Value) -> Option<Issuance> {
        let certificate = json!({"metadata": {"name": "kv-server-issued", "generation": 2}, "status": {"conditions": conditions}});
        let certificate: DynamicObject = serde_json::from_value(certificate).expect("it is an object");
        Issuance::of(&Seen::Known(Some(Arc::new(certificate))))
    }

    #[test]
    fn cert_manager_reports_in_a_condition_of_this_generation() {
        let ready = |status: &str, generation: i64| {
            json!([
                {"type": "Issuing", "status": "True", "observedGeneration": 2},
                {"type": "Ready", "status": status, "observedGeneration": generation, "message": "words"},
            ])
        };
        assert_eq!(reported(ready("True", 2)), Some(Issuance::Ready));
        assert_eq!(reported(ready("False", 2)), Some(Issuance::NotReady("words".into())));
        assert_eq!(reported(ready("True", 1)), Some(Issuance::Requested));
        assert_eq!(reported(Value::Null), Some(Issuance::Requested));
    }

    #[test]
    fn what_cannot_be_read_says_why_and_what_is_not_asked_for_says_nothing() {
        let unknown = |why| Issuance::of(&Foreign::<Arc<DynamicObject>>::Unknown(why));
        assert_eq!(unknown(NotRead::NoApi), Some(Issuance::NoApi));
        assert_eq!(unknown(NotRead::Failed("denied".into())), Some(Issuance::Unreadable("denied".into())));
        assert_eq!(unknown(NotRead::NotAsked), None);
        assert_eq!(Issuance::of(&Foreign::<Arc<DynamicObject>>::Known(None)), Some(Issuance::Requested));
    }
}
