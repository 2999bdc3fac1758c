//! Certificates of a user's own authority, which come, change and go while clients write.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, Profile, Purpose, profiles};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::connections::pods;
use super::dialled::{held, secret, served, with_certificate};
use crate::etcd::CLIENT_PORT;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::lifecycle::{born, judged};
use crate::wait;

const CERTIFICATE: &str = "own-certificate";
const AUTHORITY: &str = "own-authority";
/// Two rollouts, kubelets that bring new certificates into pods, and the time that clients have: a third of the life of certificates.
const LIMIT: Duration = Duration::from_secs(900);
const LIFE_SECONDS: u64 = 600;
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

struct Leaf {
    certificate: String,
    key: String,
}

struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Signer {
    fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(parameters, key), certificate })
    }

    fn issue(&self, profile: &Profile, expires: SystemTime) -> Result<Leaf> {
        let key = KeyPair::generate()?;
        let names: Vec<_> = profile.dns_names.iter().chain(&profile.ip_addresses).cloned().collect();
        let mut parameters = CertificateParams::new(names)?;
        parameters.not_before = (SystemTime::now() - 2 * LIFETIME).into();
        parameters.not_after = expires.into();
        parameters.use_authority_key_identifier_extension = true;
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = parameters.signed_by(&key, &self.issuer)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem() })
    }
}

pub async fn under_clients(context: &Context) -> Result<()> {
    let certificates = json!({"validitySeconds": LIFE_SECONDS});
    let (cluster, history) =
        born(context, 3, json!({"security": {"tls": {"certificates": certificates}}})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let mut needed = profiles(&cluster.names(), cluster.transport().await?);
    let profile = needed.remove(&Purpose::Server).context("clients use TLS")?;
    let (valid, expired) = (SystemTime::now() + LIFETIME, SystemTime::now() - LIFETIME);
    let (one, two) = (Signer::new("one")?, Signer::new("two")?);

    give(&cluster, &one.issue(&profile, valid)?, &one).await?;
    let sources = json!({"certificateSecret": CERTIFICATE, "caSecret": AUTHORITY});
    cluster.edit(json!({"spec": {"security": {"tls": sources}}})).await?;
    let first = in_use(&cluster, CERTIFICATE).await?;
    context.step("members serve the certificate of the user");

    // Each is refused, and the one before stays in use.
    let started = pods(&cluster).await?;
    let unnamed = Profile { dns_names: vec!["kv.example.com".into()], ..profile.clone() };
    let foreign = Leaf { key: one.issue(&profile, valid)?.key, ..one.issue(&profile, valid)? };
    for (bad, words) in [
        (one.issue(&unnamed, valid)?, "is not for"),
        (one.issue(&profile, expired)?, "expired at"),
        (foreign, "does not belong"),
    ] {
        give(&cluster, &bad, &one).await?;
        let rejected = |it: &EtcdCluster| is(it, reason::CERTIFICATE_REJECTED, words);
        cluster.wait_for("a certificate that cannot be used is reported", rejected).await?;
        ensure!(held(&secret(&cluster, Purpose::Server).await?)? == first, "it was copied nevertheless");
    }
    context.step("certificates with another name, another key or no time left are refused");

    give(&cluster, &one.issue(&profile, valid)?, &one).await?;
    in_use(&cluster, CERTIFICATE).await?;
    ensure!(pods(&cluster).await? == started, "a member restarted for a renewed certificate");
    context.step("a renewed certificate takes effect without a restart");

    give(&cluster, &two.issue(&profile, valid)?, &two).await?;
    in_use(&cluster, CERTIFICATE).await?;
    context.step("members serve a certificate of another authority");

    let none = json!({"certificateSecret": null, "caSecret": null});
    cluster.edit(json!({"spec": {"security": {"tls": none}}})).await?;
    back(&cluster).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}

/// Waits until the operator issues every certificate again, and nothing else is trusted.
pub(super) async fn back(cluster: &Operated) -> Result<()> {
    let back = async || {
        let (server, authority) =
            (secret(cluster, Purpose::Server).await?, secret(cluster, Purpose::ClientAuthority).await?);
        let part = |secret: &Secret, key: &str| secret.data.as_ref().and_then(|data| data.get(key).cloned());
        let alone = part(&server, AUTHORITY_KEY) == part(&authority, CERTIFICATE_KEY);
        Ok(alone && is(&cluster.object().await?, reason::CERTIFICATES_VALID, ""))
    };
    wait::until("certificates of the operator are back", LIMIT, back).await
}

async fn give(cluster: &Operated, leaf: &Leaf, authority: &Signer) -> Result<()> {
    store(cluster, AUTHORITY, json!({AUTHORITY_KEY: authority.certificate})).await?;
    store(cluster, CERTIFICATE, json!({CERTIFICATE_KEY: leaf.certificate, PRIVATE_KEY: leaf.key})).await
}

async fn store(cluster: &Operated, name: &str, content: Value) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": content,
    });
    let user = PatchParams::apply("e2e").force();
    let stored = cluster.api::<Secret>().patch(name, &user, &Patch::Apply(object)).await;
    stored.map(drop).with_context(|| format!("cannot store Secret {name}"))
}

pub(super) fn is(cluster: &EtcdCluster, reason: &str, words: &str) -> bool {
    let conditions = cluster.status.iter().flat_map(|it| &it.conditions);
    let meant = |it: &&Condition| {
        it.type_ == condition::TLS_READY && it.reason == reason && it.message.contains(words)
    };
    conditions.into_iter().any(|it| meant(&it))
}

/// Waits until every member serves what this Secret of somebody else has, and the status reports it.
pub(super) async fn in_use(cluster: &Operated, name: &str) -> Result<CertificateDer<'static>> {
    let secrets = cluster.api::<Secret>();
    let all = async || {
        // It might be renewed meanwhile.
        let given = held(&secrets.get(name).await?)?;
        let client = secret(cluster, Purpose::Client).await?;
        let tls = with_certificate(&client, &client, &cluster.names().client_service())?;
        for member in cluster.members().await? {
            let address = SocketAddr::new(member.address.ip(), CLIENT_PORT);
            if served(&tls, address).await.ok().as_ref() != Some(&given) {
                return Ok(false);
            }
        }
        Ok(is(&cluster.object().await?, reason::CERTIFICATES_VALID, ""))
    };
    wait::until("members serve the certificate that is given", LIMIT, all).await?;
    held(&secrets.get(name).await?)
}
