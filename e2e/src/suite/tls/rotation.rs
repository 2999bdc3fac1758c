//! Both authorities of a cluster give way to others, while clients write that read the Secret `NAME-client-tls` when they connect.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, Purpose};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use super::connections::pods;
use super::dialled::{refuses, secret, with_certificate};
use crate::etcd::CLIENT_PORT;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::lifecycle::{born, judged};
use crate::wait;

const AUTHORITIES: [Purpose; 2] = [Purpose::PeerAuthority, Purpose::ClientAuthority];
const TOKEN: &str = "first";
/// Two rollouts, kubelets that bring new certificates into pods, and the time that clients have: a third of the life of certificates.
const LIMIT: Duration = Duration::from_secs(900);
const LIFE_SECONDS: u64 = 600;

pub async fn under_clients(context: &Context) -> Result<()> {
    let certificates = json!({"validitySeconds": LIFE_SECONDS});
    let (cluster, history) =
        born(context, 3, json!({"security": {"tls": {"certificates": certificates}}})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let (before, started) = (signers(&cluster).await?, pods(&cluster).await?);
    let previous = secret(&cluster, Purpose::Client).await?;
    cluster.edit(json!({"metadata": {"annotations": {"etcd.etcd.io/rotate-ca": TOKEN}}})).await?;
    rotated(&cluster, &before).await?;
    context.step("other authorities sign, and they alone are trusted");
    let restarted = pods(&cluster).await?;
    ensure!(!restarted.iter().any(|it| started.contains(it)), "a member did not restart");
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    // What the previous authority signed opens nothing any more.
    let current = secret(&cluster, Purpose::Client).await?;
    let outdated = with_certificate(&previous, &current, &cluster.names().client_service())?;
    for member in cluster.members().await? {
        refuses(&outdated, SocketAddr::new(member.address.ip(), CLIENT_PORT)).await?;
    }
    judged(context, history).await
}

async fn rotated(cluster: &Operated, before: &[Option<ByteString>]) -> Result<()> {
    let done = async || {
        let object = cluster.object().await?;
        let secrets = secrets(cluster).await?;
        let alone = secrets.iter().all(|it| part(it, CERTIFICATE_KEY) == part(it, AUTHORITY_KEY));
        let others = secrets.iter().zip(before).all(|(now, before)| part(now, CERTIFICATE_KEY) != *before);
        Ok(alone && others && is_over(&object))
    };
    wait::until("the authorities are rotated", LIMIT, done).await
}

/// The status reports that members use what they should.
fn is_over(cluster: &EtcdCluster) -> bool {
    let Some(status) = &cluster.status else { return false };
    let requests = status.requests.as_ref().and_then(|it| it.rotate_ca.as_ref());
    let is_valid =
        |it: &Condition| it.type_ == condition::TLS_READY && it.reason == reason::CERTIFICATES_VALID;
    requests.is_some_and(|it| it.token == TOKEN) && status.conditions.iter().any(is_valid)
}

async fn secrets(cluster: &Operated) -> Result<Vec<Secret>> {
    let mut secrets = Vec::new();
    for purpose in AUTHORITIES {
        secrets.push(secret(cluster, purpose).await?);
    }
    Ok(secrets)
}

async fn signers(cluster: &Operated) -> Result<Vec<Option<ByteString>>> {
    Ok(secrets(cluster).await?.iter().map(|it| part(it, CERTIFICATE_KEY)).collect())
}

fn part(secret: &Secret, key: &str) -> Option<ByteString> {
    secret.data.as_ref()?.get(key).cloned()
}
