//! A cluster with an issuer of cert-manager, of which there is only the definition of a Certificate: the tests play its part. The
//! real one is in the end-to-end tests.

use etcd_operator::supervisor::PlantedPanic;
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::certificate_resource;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use serde_json::{Value, json};

use crate::foreign::{all, define, until};
use crate::installed;
use crate::operated::Workplace;

const ISSUED: &str = "kv-server-issued";

fn is_reported(cluster: &EtcdCluster, because: &str, words: &str) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let is_meant = |type_: &str| type_ == condition::TLS_READY;
    conditions.into_iter().any(|it| is_meant(&it.type_) && it.reason == because && it.message.contains(words))
}

/// What cert-manager would write for this Certificate.
fn issue(certificate: &DynamicObject) -> Value {
    let texts = |field: &str| -> Vec<String> {
        serde_json::from_value(certificate.data["spec"][field].clone()).expect("a list of texts")
    };
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "company");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).expect("a certificate").pem();
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::new(texts("dnsNames")).expect("names");
    let addresses = texts("ipAddresses");
    let addresses = addresses.iter().map(|it| SanType::IpAddress(it.parse().expect("an address")));
    parameters.subject_alt_names.extend(addresses);
    parameters.use_authority_key_identifier_extension = true;
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let issuer = Issuer::new(authority, authority_key);
    let leaf = parameters.signed_by(&key, &issuer).expect("a certificate").pem();
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": ISSUED},
        "stringData": {"tls.crt": leaf, "tls.key": key.serialize_pem(), "ca.crt": root},
    })
}

async fn report(there: &Workplace, status: &str, message: &str) {
    let certificates = all(there, &certificate_resource());
    let certificate = certificates.get(ISSUED).await.expect("it is there");
    let ready = json!({
        "type": "Ready", "status": status, "reason": "x", "message": message,
        "observedGeneration": certificate.metadata.generation,
    });
    let status = json!({"status": {"conditions": [ready]}});
    let (cert_manager, patch) = (PatchParams::default(), Patch::Merge(status));
    certificates.patch_status(ISSUED, &cert_manager, &patch).await.expect("it is accepted");
}

/// With exactly the rights of `config/rights`.
pub async fn cert_manager_is_awaited_asked_and_used_and_not_asked_any_more() {
    let api = installed().await;
    let there = Workplace::alone(api, PlantedPanic::default()).await;
    let tls = json!({"issuerRef": {"name": "company"}});
    there.create("kv", json!({"size": 1, "security": {"tls": tls}})).await;
    let missing = |it: &EtcdCluster| is_reported(it, reason::CERT_MANAGER_MISSING, "install cert-manager");
    there.until("kv", "it is reported that there is no cert-manager", missing).await;
    // Nothing else is held up.
    there.until::<Secret>("kv-client-tls", "another certificate", |it| it.data.is_some()).await;

    define(&there.on.admin, &certificate_resource()).await;
    let certificates = all(&there, &certificate_resource());
    until(&certificates, ISSUED, "the operator asks for a certificate", |it| it.is_some()).await;
    report(&there, "False", "issuer company is not found").await;
    let not_ready =
        |it: &EtcdCluster| is_reported(it, reason::CERTIFICATE_NOT_ISSUED, "issuer company is not found");
    there.until("kv", "what cert-manager reports is in the status", not_ready).await;

    let certificate = certificates.get(ISSUED).await.expect("it is there");
    let owner = &certificate.metadata.owner_references.as_ref().expect("owners")[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("EtcdCluster", "kv"));
    let secret = issue(&certificate);
    let (cert_manager, patch) = (PatchParams::apply("cert-manager"), Patch::Apply(secret.clone()));
    there.all::<Secret>().patch(ISSUED, &cert_manager, &patch).await.expect("it is accepted");
    report(&there, "True", "issued").await;
    let leaf = secret["stringData"]["tls.crt"].as_str().expect("a text").to_owned();
    let is_copied = |it: &Secret| {
        let held = it.data.as_ref().and_then(|data| data.get("tls.crt"));
        held.is_some_and(|it| it.0 == leaf.as_bytes())
    };
    there.until("kv-server-tls", "it is copied", is_copied).await;
    there.until_armed("kv", 1).await;

    // Somebody edits it.
    let edit = Patch::Merge(json!({"spec": {"issuerRef": {"name": "other"}}}));
    certificates.patch(ISSUED, &PatchParams::default(), &edit).await.expect("it is accepted");
    let is_right =
        |it: Option<&DynamicObject>| it.is_some_and(|it| it.data["spec"]["issuerRef"]["name"] == "company");
    until(&certificates, ISSUED, "it is put right", is_right).await;

    there.edit("kv", json!({"spec": {"security": {"tls": {"issuerRef": null}}}})).await;
    until(&certificates, ISSUED, "it is deleted with its field", |it| it.is_none()).await;
    assert!(there.all::<Secret>().get_opt(ISSUED).await.expect("an answer").is_some(), "not ours to delete");
    drop(there.stop().await);
}
