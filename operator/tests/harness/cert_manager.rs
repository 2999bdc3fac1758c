//! The real cert-manager issues the certificate of the client port, comes after the cluster, and renews under clients that write
//! all the time.

use std::time::{Duration, Instant};

use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::{self, CERTIFICATE_KEY, Purpose, certificate_resource};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::json;
use testbed::cert_manager::CertManager;

use crate::given::{CHANGED, NOTICED, members_show, server_names, trusted};
use crate::inside;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{names, world};

pub const TRIAL: &str = "cert_manager_issues_and_renews_under_clients_that_write";
/// cert-manager renews after two thirds of it. Its webhook would ask for an hour, and is not here.
const LIFE_SECONDS: u64 = 240;

fn definition() -> ApiResource {
    ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    }
}

/// What cert-manager defines. Returns the names.
async fn define(admin: &Client, cert_manager: &CertManager) -> Vec<String> {
    let definitions = Api::<DynamicObject>::all_with(admin.clone(), &definition());
    let mut names = Vec::new();
    for file in cert_manager.definitions() {
        let text = std::fs::read_to_string(&file).expect("it was copied from its module");
        let object: DynamicObject = serde_saphyr::from_str(&text).expect("it is YAML");
        let created = definitions.create(&PostParams::default(), &object).await.expect("it is accepted");
        names.extend(created.metadata.name);
    }
    for name in &names {
        let begun = Instant::now();
        loop {
            let found = definitions.get(name).await.expect("it is there");
            let conditions = found.data.pointer("/status/conditions").and_then(|it| it.as_array()).cloned();
            let is_established =
                |it: &serde_json::Value| it["type"] == "Established" && it["status"] == "True";
            if conditions.unwrap_or_default().iter().any(is_established) {
                break;
            }
            assert!(begun.elapsed() < NOTICED, "{name} is not established");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    names
}

/// An authority that signs itself, and the issuer that uses it.
async fn create_issuers(stage: &Stage) {
    let authority = json!({
        "isCA": true, "commonName": "company", "secretName": "company-ca", "issuerRef": {"name": "self-signed"},
        "privateKey": {"algorithm": "ECDSA", "size": 256},
    });
    for (kind, plural, name, spec) in [
        ("Issuer", "issuers", "self-signed", json!({"selfSigned": {}})),
        ("Certificate", "certificates", "company", authority),
        ("Issuer", "issuers", "company", json!({"ca": {"secretName": "company-ca"}})),
    ] {
        let resource = ApiResource { kind: kind.into(), plural: plural.into(), ..certificate_resource() };
        let objects =
            Api::<DynamicObject>::namespaced_with(stage.world.admin.clone(), &stage.namespace, &resource);
        let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        objects.create(&PostParams::default(), &object).await.expect("it is accepted");
    }
}

fn is_valid(recorder: &Recorder) -> bool {
    let tls = recorder.condition(condition::TLS_READY);
    Until::Ready(3).holds(recorder) && tls["reason"] == reason::CERTIFICATES_VALID
}

/// Whether the operator has copied what this Secret holds.
fn is_copied(recorder: &Recorder, issued: &Secret) -> bool {
    let part = |secret: &Secret| secret.data.as_ref().and_then(|data| data.get(CERTIFICATE_KEY).cloned());
    recorder.secret(Purpose::Server).is_some_and(|it| part(&it) == part(issued))
}

pub fn issues_and_renews() {
    world().runtime.block_on(async {
        let mut cert_manager = CertManager::prepare().await.expect("it is built");
        let mut stage = Stage::start(world()).await;
        let security = json!({"tls": {"certificates": {"validitySeconds": LIFE_SECONDS}}});
        stage.create(json!({"size": 3, "version": inside::TWO_LEARNERS, "security": security})).await;
        stage.write();
        let (profile, ours, issued) =
            (server_names(&stage), trusted(&stage.recorder), names(&stage.namespace).issued());

        let edit = json!({"security": {"tls": {"issuerRef": {"name": "company"}}}});
        stage.edit(&edit).await.expect("it is accepted");
        let is_missing =
            |it: &Recorder| it.condition(condition::TLS_READY)["reason"] == reason::CERT_MANAGER_MISSING;
        stage.until_within(NOTICED, "reported as missing", is_missing).await;

        let definitions = define(&stage.world.admin, &cert_manager).await;
        cert_manager.start(&stage.world.kubeconfig, &stage.namespace).expect("it starts");
        create_issuers(&stage).await;
        let begun = Instant::now();
        let trusts_both = |it: &Recorder| trusted(it).contains(&"CN=company".to_owned()) && is_valid(it);
        stage.until_within(NOTICED + CHANGED, "issued and in use", trusts_both).await;
        println!("in use after {:.1} s", begun.elapsed().as_secs_f64());
        cert_manager.runs().expect("it runs");
        members_show(&stage, 3).await;
        let held = stage.recorder.secret(Purpose::Server).expect("it is there");
        let certificate = tls::read(held.data.as_ref()).expect("it can be read");
        assert!(profile.dns_names.iter().all(|it| certificate.dns_names.contains(it)), "{certificate:?}");
        assert!(profile.ip_addresses.iter().all(|it| certificate.ip_addresses.contains(it)));

        let (pods, secrets) = (
            stage.recorder.members(),
            Api::<Secret>::namespaced(stage.world.admin.clone(), &stage.namespace),
        );
        let begun = Instant::now();
        let is_renewed = |it: &Recorder| it.secret(Purpose::Server).is_some_and(|it| it.data != held.data);
        stage.until_within(Duration::from_secs(LIFE_SECONDS), "renewed", is_renewed).await;
        println!("renewed after {:.1} s", begun.elapsed().as_secs_f64());
        let now = secrets.get(&issued).await.expect("it is there");
        assert!(is_copied(&stage.recorder, &now), "it is not of cert-manager");
        members_show(&stage, 3).await;
        assert_eq!(stage.recorder.members(), pods, "no member restarts");

        let begun = Instant::now();
        let none = json!({"security": {"tls": {"issuerRef": null}}});
        stage.edit(&none).await.expect("it is accepted");
        stage.until_within(CHANGED, "back", |it| trusted(it) == ours && is_valid(it)).await;
        println!("back after {:.1} s", begun.elapsed().as_secs_f64());
        members_show(&stage, 3).await;
        let requests = Api::<DynamicObject>::namespaced_with(
            stage.world.admin.clone(),
            &stage.namespace,
            &certificate_resource(),
        );
        assert!(requests.get_opt(&issued).await.expect("an answer").is_none(), "the Certificate is left");
        assert!(secrets.get_opt(&issued).await.expect("an answer").is_some(), "the Secret is gone");
        // Other tests have no cert-manager.
        drop(cert_manager);
        let defined = Api::<DynamicObject>::all_with(stage.world.admin.clone(), &definition());
        for name in definitions {
            defined.delete(&name, &DeleteParams::default()).await.expect("it is there");
        }
        stage.end().await;
    });
}
