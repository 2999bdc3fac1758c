//! Certificates that expire before long: the operator replaces them, and members and clients take the new ones up without a
//! restart.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::{CERTIFICATE_KEY, PRIVATE_KEY, Profile, Purpose, profiles};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;
use tokio::task::JoinSet;

use super::connections::pods;
use super::dialled::{held, secret, served, with_certificate};
use crate::etcd::{CLIENT_PORT, PEER_PORT};
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::disturbed::leader;
use crate::suite::lifecycle::{born, judged};
use crate::suite::{KEY, LIMIT, VALUE, kill};
use crate::wait;

const LEAFS: [Purpose; 4] = [Purpose::Peer, Purpose::Server, Purpose::Operator, Purpose::Client];
/// Of the certificates that the test issues: enough for the operator to start and to renew them.
const LIFETIME: Duration = Duration::from_secs(90);
const CLOCKS_DIFFER: Duration = Duration::from_secs(300);
/// More than two thirds of the life of certificates in [`again_and_again`].
const GENERATION: Duration = Duration::from_secs(170);
/// Between two writes of clients that connect anew.
const PAUSE: Duration = Duration::from_millis(100);
/// For what a kubelet does about a pod that changed.
const KUBELET_PAUSE: Duration = Duration::from_secs(1);

/// The operator is down while the certificates are replaced, so that members certainly serve those that expire.
pub async fn without_a_restart(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let before = pods(&cluster).await?;
    let newcomers = Newcomers::at(&cluster);
    let operator = context.operator().await?;
    operator.stop().await?;
    let expires = SystemTime::now() + LIFETIME;
    for purpose in LEAFS {
        expires_soon(&cluster, purpose, expires).await?;
    }
    taken_up(&cluster).await?;
    context.step(format!("members serve certificates that expire in {LIFETIME:?}"));

    let mut ours = Vec::new();
    for purpose in LEAFS {
        ours.push((purpose, held(&secret(&cluster, purpose).await?)?));
    }
    operator.start().await?;
    for (purpose, old) in ours {
        let renewed = async || Ok(held(&secret(&cluster, purpose).await?)? != old);
        wait::until(&format!("the certificate for {purpose:?} is renewed"), LIMIT, renewed).await?;
    }
    taken_up(&cluster).await?;
    ensure!(SystemTime::now() < expires, "the machine is too slow: the certificates have expired before");
    context.step("members serve new certificates");

    let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
    tokio::time::sleep(left + Duration::from_secs(5)).await;
    let connected = newcomers.verdict()?;
    ensure!(pods(&cluster).await? == before, "a member restarted");
    history.goes_on(LIMIT).await?;
    let verdict = history.stop(LIMIT).await?;
    ensure!(verdict.failed + verdict.unknown == 0, "operations of clients failed: {verdict:?}");
    context.step(format!("{connected} clients connected anew, and nothing failed: {verdict:?}"));
    peers_connect_again(context, &cluster).await
}

/// Three generations of certificates that live for three minutes. The status reports each as in use only when every member serves it.
pub async fn again_and_again(context: &Context) -> Result<()> {
    let certificates = json!({"validitySeconds": 180});
    let (cluster, history) =
        born(context, 3, json!({"security": {"tls": {"certificates": certificates}}})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let before = pods(&cluster).await?;
    let newcomers = Newcomers::at(&cluster);
    for generation in 1..=3 {
        let mut ours = Vec::new();
        for purpose in LEAFS {
            ours.push((purpose, held(&secret(&cluster, purpose).await?)?));
        }
        for (purpose, old) in ours {
            let renewed = async || Ok(held(&secret(&cluster, purpose).await?)? != old);
            wait::until(&format!("the certificate for {purpose:?} is renewed"), GENERATION, renewed).await?;
        }
        taken_up(&cluster).await?;
        let in_use = |it: &EtcdCluster| {
            let conditions = it.status.iter().flat_map(|it| &it.conditions);
            let valid =
                |it: &Condition| it.type_ == condition::TLS_READY && it.reason == reason::CERTIFICATES_VALID;
            conditions.into_iter().any(valid)
        };
        cluster.wait_for("renewed certificates are reported as in use", in_use).await?;
        context.step(format!("members serve certificates of generation {generation}"));
    }
    let connected = newcomers.verdict()?;
    ensure!(pods(&cluster).await? == before, "a member restarted");
    let verdict = history.stop(LIMIT).await?;
    ensure!(verdict.failed + verdict.unknown == 0, "operations of clients failed: {verdict:?}");
    context.step(format!("{connected} clients connected anew, and nothing failed: {verdict:?}"));
    Ok(())
}

/// A restarted member and the others, which never restarted, accept each other.
async fn peers_connect_again(context: &Context, cluster: &Operated) -> Result<()> {
    let history = context.writers(cluster).await?;
    let leader = leader(cluster).await?;
    let restarts = wait::restarts(&cluster.api::<Pod>().get(&leader).await?);
    context.inject(kill(context, &leader)).await?;
    let came_back = |pod: &Pod| wait::restarts(pod) > restarts && wait::is_ready(pod);
    wait::present(cluster.api::<Pod>(), &leader, "the member runs again", LIMIT, came_back).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}

/// As the operator issues it, but for a short time.
async fn expires_soon(cluster: &Operated, purpose: Purpose, expires: SystemTime) -> Result<()> {
    let (names, transport) = (cluster.names(), cluster.transport().await?);
    let profile = profiles(&names, transport).remove(&purpose).context("it needs no such certificate")?;
    let authority = secret(cluster, purpose.issuer().context("it is issued by itself")?).await?;
    let signing = KeyPair::from_pem(text(&authority, PRIVATE_KEY)?).context("not a key of an authority")?;
    let issuer = Issuer::from_ca_cert_pem(text(&authority, CERTIFICATE_KEY)?, signing)?;
    let key = KeyPair::generate()?;
    let certificate = parameters(&profile, expires)?.signed_by(&key, &issuer)?;
    let content = [(CERTIFICATE_KEY, certificate.pem()), (PRIVATE_KEY, key.serialize_pem())];
    let content: BTreeMap<_, _> =
        content.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect();
    let (name, change) = (names.secret(purpose), Patch::Merge(json!({"data": content})));
    let patched = cluster.api::<Secret>().patch(&name, &PatchParams::default(), &change).await;
    patched.map(drop).with_context(|| format!("cannot patch Secret {name}"))
}

fn parameters(profile: &Profile, expires: SystemTime) -> Result<CertificateParams> {
    let names: Vec<_> = profile.dns_names.iter().chain(&profile.ip_addresses).cloned().collect();
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, profile.common_name.as_str());
    parameters.not_before = (SystemTime::now() - CLOCKS_DIFFER).into();
    parameters.not_after = expires.into();
    parameters.use_authority_key_identifier_extension = true;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    Ok(parameters)
}

fn text<'a>(secret: &'a Secret, key: &str) -> Result<&'a str> {
    let part = secret.data.as_ref().and_then(|data| data.get(key));
    let part = part.with_context(|| format!("Secret {} has no {key}", secret.name_any()))?;
    Ok(std::str::from_utf8(&part.0)?)
}

/// Waits until both ports of every member show the certificates of their Secrets.
///
/// Kubelets bring a Secret into a pod within a minute and a half, and at once if the pod changes.
async fn taken_up(cluster: &Operated) -> Result<()> {
    let (peer, server) = (secret(cluster, Purpose::Peer).await?, secret(cluster, Purpose::Server).await?);
    let ports = [
        (PEER_PORT, with_certificate(&peer, &peer, &cluster.names().peer_host())?, held(&peer)?),
        (CLIENT_PORT, with_certificate(&server, &server, &cluster.names().client_service())?, held(&server)?),
    ];
    let members = cluster.members().await?;
    let all = async || {
        for (member, (port, tls, wanted)) in members.iter().flat_map(|it| ports.iter().map(move |p| (it, p)))
        {
            if served(tls, SocketAddr::new(member.address.ip(), *port)).await? != *wanted {
                change_pods(cluster).await?;
                return Ok(false);
            }
        }
        Ok(true)
    };
    wait::until("members show the certificates of their Secrets", LIMIT, all).await
}

/// In a way that means nothing to anybody.
async fn change_pods(cluster: &Operated) -> Result<()> {
    let now = format!("{:?}", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?);
    let change = Patch::Merge(json!({"metadata": {"annotations": {"e2e.etcd.io/changed": now}}}));
    for pod in cluster.pods().await?.into_keys() {
        cluster.api::<Pod>().patch(&pod, &PatchParams::default(), &change).await?;
    }
    tokio::time::sleep(KUBELET_PAUSE).await;
    Ok(())
}

/// Clients that connect anew for every write, as long as this exists.
struct Newcomers {
    seen: Arc<Mutex<Writes>>,
    _writing: JoinSet<()>,
}

#[derive(Clone, Debug, Default)]
struct Writes {
    done: usize,
    failures: Vec<String>,
}

impl Newcomers {
    fn at(cluster: &Operated) -> Self {
        let (seen, mut writing) = (Arc::<Mutex<Writes>>::default(), JoinSet::new());
        let (cluster, noted) = (cluster.clone(), Arc::clone(&seen));
        writing.spawn(async move {
            loop {
                for member in cluster.members().await.unwrap_or_default() {
                    let mut written = member.put(KEY, VALUE).await;
                    // etcd reads certificate and key one after the other, and both can be replaced in between.
                    if written.is_err() {
                        written = member.put(KEY, VALUE).await;
                    }
                    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    noted.done += 1;
                    noted.failures.extend(written.err().map(|error| format!("{error:#}")));
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { seen, _writing: writing }
    }

    fn verdict(self) -> Result<usize> {
        let Writes { done, failures } = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(failures.is_empty(), "{} of {done} clients failed, first: {}", failures.len(), failures[0]);
        ensure!(done > 0, "no client has connected");
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use etcd_operator_core::names::Names;
    use etcd_operator_core::tls::{AUTHORITY_KEY, Transport, read};
    use rcgen::{BasicConstraints, IsCa};

    use super::*;

    /// Otherwise the operator would replace them for that, and not because they expire.
    #[test]
    fn certificates_of_the_test_differ_from_those_of_the_operator_by_their_life_only() {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let signing = KeyPair::generate().expect("a key");
        let trusted = authority.self_signed(&signing).expect("a certificate").pem();
        let issuer = Issuer::from_ca_cert_pem(&trusted, signing).expect("an authority");
        let names = Names::new("ns", "kv", "cluster.local");
        let transport = Transport::TLS;
        for (purpose, profile) in profiles(&names, transport).iter().filter(|(it, _)| LEAFS.contains(it)) {
            let (key, expires) = (KeyPair::generate().expect("a key"), SystemTime::now() + LIFETIME);
            let leaf = parameters(profile, expires).expect("names").signed_by(&key, &issuer).expect("signed");
            let content = [
                (CERTIFICATE_KEY, leaf.pem()),
                (PRIVATE_KEY, key.serialize_pem()),
                (AUTHORITY_KEY, trusted.clone()),
            ];
            let content = content.map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())));
            let found = read(Some(&content.into())).expect("a certificate");
            assert_eq!(
                (&found.common_name, &found.dns_names, &found.ip_addresses),
                (&profile.common_name, &profile.dns_names, &profile.ip_addresses),
                "{purpose:?}"
            );
            let signer = found.signed_by.clone().expect("it says who signed it");
            assert!(found.trusts(&signer), "{purpose:?}: signed by {signer}");
        }
    }
}
