//! The real cert-manager issues the certificate of the client port. It is installed while a cluster waits for it, renews while
//! clients write, and is not needed any more in the end.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::reason;
use etcd_operator_core::tls::{self, Profile, Purpose, certificate_resource, profiles};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use testbed::cert_manager::CertManager;

use super::connections::pods;
use super::dialled::held;
use super::own::{back, in_use, is};
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::lifecycle::{born, judged};
use crate::{wait, workspace};

const EXAMPLE: &str = "examples/cert-manager.yaml";
/// cert-manager renews after two thirds of it. Its webhook would ask for an hour; it does not run here.
const LIFE_SECONDS: u64 = 300;
/// The operator looks for cert-manager once a minute.
const LIMIT: Duration = Duration::from_secs(180);
const RENEWAL: Duration = Duration::from_secs(LIFE_SECONDS);

pub async fn under_clients(context: &Context) -> Result<()> {
    let mut cert_manager = CertManager::prepare().await?;
    let certificates = json!({"validitySeconds": LIFE_SECONDS});
    let (cluster, history) =
        born(context, 3, json!({"security": {"tls": {"certificates": certificates}}})).await?;
    let mut needed = profiles(&cluster.names(), cluster.transport().await?);
    let profile = needed.remove(&Purpose::Server).context("clients use TLS")?;

    let started = pods(&cluster).await?;
    cluster.edit(json!({"spec": {"security": {"tls": {"issuerRef": {"name": "company"}}}}})).await?;
    let missing = |it: &EtcdCluster| is(it, reason::CERT_MANAGER_MISSING, "install cert-manager");
    cluster.wait_for("it is reported that there is no cert-manager", missing).await?;
    cluster.scale(1).await?;
    cluster.wait_until_settled(1).await?;
    cluster.scale(3).await?;
    cluster.wait_until_settled(3).await?;
    ensure!(pods(&cluster).await?.first() == started.first(), "a member restarted");
    context.step("without cert-manager, members keep what they have and scale");

    let (kubectl, within) = (context.kubectl(), ["--namespace", context.namespace.as_str()]);
    for file in cert_manager.definitions() {
        kubectl.run(&["apply", "--server-side", "-f", &file.display().to_string()]).await?;
    }
    kubectl.run(&["wait", "--for=condition=Established", "crd/certificates.cert-manager.io"]).await?;
    kubectl.run(&["wait", "--for=condition=Established", "crd/issuers.cert-manager.io"]).await?;
    cert_manager.start(&context.bed().kubeconfig(), &context.namespace)?;
    for (kind, name, spec) in issuers() {
        let resource = ApiResource {
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
            ..certificate_resource()
        };
        let objects =
            Api::<DynamicObject>::namespaced_with(context.client().clone(), &context.namespace, &resource);
        let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        objects.create(&PostParams::default(), &object).await.with_context(|| format!("no {kind} {name}"))?;
    }
    let issued = cluster.names().issued();
    let secrets = cluster.api::<Secret>();
    let written = async || Ok(secrets.get_opt(&issued).await?.is_some());
    wait::until("cert-manager issues the certificate", LIMIT, written).await?;
    cert_manager.runs()?;
    let first = in_use(&cluster, &issued).await?;
    has_names(&secrets.get(&issued).await?, &profile)?;
    context.step("members serve the certificate of cert-manager, with every name");

    let example = workspace::root().join(EXAMPLE).display().to_string();
    kubectl.run(&[&within[..], &["apply", "-f", &example]].concat()).await?;
    let example = Operated::existing(context.client(), &context.namespace, "issued", context.progress);
    example.wait_until_settled(3).await?;
    in_use(&example, &example.names().issued()).await?;
    example.delete().await?;
    context.step("the example runs");

    let started = pods(&cluster).await?;
    let renewed = async || Ok(held(&secrets.get(&issued).await?)? != first);
    wait::until("cert-manager renews the certificate", RENEWAL, renewed).await?;
    let second = in_use(&cluster, &issued).await?;
    ensure!(second != first, "members serve the certificate of before");
    ensure!(pods(&cluster).await? == started, "a member restarted for a renewed certificate");
    cert_manager.runs()?;
    context.step("a renewed certificate takes effect without a restart");

    cluster.edit(json!({"spec": {"security": {"tls": {"issuerRef": null}}}})).await?;
    let resource = certificate_resource();
    let requests =
        Api::<DynamicObject>::namespaced_with(context.client().clone(), &context.namespace, &resource);
    let deleted = async || Ok(requests.get_opt(&issued).await?.is_none());
    wait::until("the Certificate is deleted", LIMIT, deleted).await?;
    back(&cluster).await?;
    ensure!(secrets.get_opt(&issued).await?.is_some(), "the Secret of cert-manager is deleted");
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await?;
    drop(cert_manager);
    let kinds = ["certificates", "certificaterequests", "issuers", "clusterissuers"]
        .map(|it| format!("{it}.cert-manager.io"));
    kubectl.run(&[&["delete", "crd"], &kinds.each_ref().map(String::as_str)[..]].concat()).await?;
    Ok(())
}

/// An authority that signs itself, and the issuer that uses it.
fn issuers() -> [(&'static str, &'static str, Value); 3] {
    let authority = json!({
        "isCA": true, "commonName": "company", "secretName": "company-ca", "issuerRef": {"name": "self-signed"},
        "privateKey": {"algorithm": "ECDSA", "size": 256},
    });
    [
        ("Issuer", "self-signed", json!({"selfSigned": {}})),
        ("Certificate", "company", authority),
        ("Issuer", "company", json!({"ca": {"secretName": "company-ca"}})),
    ]
}

/// Clients and members find everything in it that one of the operator would have.
fn has_names(secret: &Secret, profile: &Profile) -> Result<()> {
    let certificate = tls::read(secret.data.as_ref()).map_err(|flaw| anyhow::anyhow!("{flaw:?}"))?;
    let has_all = |there: &[String], wanted: &[String]| wanted.iter().all(|it| there.contains(it));
    let complete = has_all(&certificate.dns_names, &profile.dns_names)
        && has_all(&certificate.ip_addresses, &profile.ip_addresses);
    ensure!(complete, "it is for {:?} and {:?}", certificate.dns_names, certificate.ip_addresses);
    Ok(())
}
