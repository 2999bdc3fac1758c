//! Which connections the ports of members accept.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::{Purpose, Scheme, Transport};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::dialled::{held, refuses, secret, served, serves_plain_text, with_certificate};
use crate::access::Access;
use crate::etcd::{Member, PEER_PORT};
use crate::install;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::lifecycle::{born, judged, scaled as scaled_to};
use crate::{wait, workspace};

const PLAIN_TEXT: &str = "examples/plain-text.yaml";
/// A private key in PEM, and the same in the base64 of a Secret.
const KEY_BEGINS: [&str; 2] = ["-----BEGIN PRIVATE KEY", "LS0tLS1CRUdJTiBQUklWQVRFIEtFW"];

pub async fn by_default(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    as_asked_for(context, &cluster).await?;
    let valid = |it: &EtcdCluster| {
        tls_ready(it).is_some_and(|it| it.status == "True" && it.reason == reason::CERTIFICATES_VALID)
    };
    let seen = cluster.wait_for("the status reports valid certificates", valid).await?;
    context.step(tls_ready(&seen).context("it was just seen")?.message.clone());
    no_key_is_shown(context, &cluster).await?;
    judged(context, history).await
}

pub async fn switched_off(context: &Context) -> Result<()> {
    context.operator().await?;
    let file = workspace::root().join(PLAIN_TEXT).display().to_string();
    context.kubectl().run(&["--namespace", &context.namespace, "apply", "-f", &file]).await?;
    let cluster = Operated::existing(context.client(), &context.namespace, "plain-text", context.progress);
    cluster.wait_until_settled(3).await?;
    let history = context.writers(&cluster).await?;
    as_asked_for(context, &cluster).await?;
    ensure!(tls_ready(&cluster.object().await?).is_none(), "a condition about TLS without TLS");

    judged(context, history).await
}

/// Only one of the two ports uses TLS, and members join and leave as ever.
pub async fn in_part(context: &Context, tls: Value) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({"security": {"tls": tls}})).await?;
    as_asked_for(context, &cluster).await?;
    scaled_to(&cluster, 4).await?;
    scaled_to(&cluster, 1).await?;
    judged(context, history).await
}

/// Where an address has no name, etcd looks up the names in the certificate.
pub async fn scaled(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    as_asked_for(context, &cluster).await?;
    scaled_to(&cluster, 5).await?;
    scaled_to(&cluster, 1).await?;
    judged(context, history).await
}

/// The ports of every member, `etcdctl` in its pod, and what [`Operated::agrees`] finds.
pub(super) async fn as_asked_for(context: &Context, cluster: &Operated) -> Result<()> {
    cluster.agrees(&Promised::members(3)).await?;
    let Transport { clients, peers } = cluster.transport().await?;
    let (clients, peers) = (clients.scheme(), peers.scheme());
    for member in cluster.members().await? {
        member.status().await?;
        match clients {
            Scheme::Https => clients_need_a_certificate(cluster, &member, peers).await?,
            Scheme::Http => serves_plain_text(member.address).await?,
        }
        let peer_port = SocketAddr::new(member.address.ip(), PEER_PORT);
        match peers {
            Scheme::Https => peers_need_a_certificate(cluster, peer_port, clients).await?,
            Scheme::Http => serves_plain_text(peer_port).await?,
        }
        etcdctl_works(context, cluster, &member.name, clients).await?;
    }
    context.step(format!("{}", cluster.transport().await?));
    Ok(())
}

async fn clients_need_a_certificate(cluster: &Operated, member: &Member, peers: Scheme) -> Result<()> {
    let Access::Tls(tls) = &member.access else { bail!("{} has no Secret for clients", cluster.name) };
    refuses(&tls.clone().without_certificate(), member.address).await?;
    let plain = Member { access: Access::Plain, ..member.clone() };
    ensure!(plain.status().await.is_err(), "{} answers in plain text", member.name);
    if peers.is_tls() {
        let (peer, server) = (secret(cluster, Purpose::Peer).await?, secret(cluster, Purpose::Server).await?);
        let as_peer = with_certificate(&peer, &server, &cluster.names().client_service())?;
        refuses(&as_peer, member.address).await?;
    }
    // It still answers those that it should.
    member.status().await.map(drop)
}

async fn peers_need_a_certificate(cluster: &Operated, port: SocketAddr, clients: Scheme) -> Result<()> {
    let (peer, name) = (secret(cluster, Purpose::Peer).await?, cluster.names().peer_host());
    let nobody = with_certificate(&peer, &peer, &name)?.without_certificate();
    refuses(&nobody, port).await?;
    ensure!(served(&nobody, port).await? == held(&peer)?, "{port} has another certificate than its Secret");
    if clients.is_tls() {
        for purpose in [Purpose::Client, Purpose::Operator] {
            let own = secret(cluster, purpose).await?;
            refuses(&with_certificate(&own, &peer, &name)?, port).await.with_context(|| own.name_any())?;
        }
    }
    Ok(())
}

/// As users type it, whatever the transport is.
pub(super) async fn etcdctl_works(
    context: &Context,
    cluster: &Operated,
    pod: &str,
    clients: Scheme,
) -> Result<()> {
    let etcdctl = ["exec", "--namespace", &cluster.namespace, pod, "-c", "etcd", "--", "etcdctl"];
    let listed = context.kubectl().run(&[&etcdctl[..], &["member", "list"]].concat()).await?;
    let there = |name: &&String| listed.contains(&format!("started, {name}, "));
    ensure!(cluster.pod_names(3).iter().filter(there).count() == 3, "not three members:\n{listed}");
    let is_healthy = async |words: &[&str]| {
        let said = context.kubectl().ask(&[&etcdctl[..], words].concat()).await?;
        Ok(said.ok && format!("{}{}", said.out, said.err).contains(&format!("{clients}://")))
    };
    ensure!(is_healthy(&["endpoint", "health"]).await?, "`etcdctl endpoint health` fails in {pod}");
    // DNS returns the previous address of a pod for a while.
    let all = async || is_healthy(&["endpoint", "health", "--cluster"]).await;
    wait::until(&format!("`etcdctl endpoint health --cluster` works in {pod}"), LIMIT, all).await
}

/// Neither in what the operator logs nor in what users without the right to read Secrets see.
async fn no_key_is_shown(context: &Context, cluster: &Operated) -> Result<()> {
    let kubectl = context.kubectl();
    let objects = "etcdclusters,statefulsets,pods,configmaps,services,events";
    let objects = kubectl.run(&["get", objects, "--namespace", &cluster.namespace, "--output=yaml"]).await?;
    let operator = format!("deployment/{}", install::DEPLOYMENT);
    let log = kubectl.run(&["logs", "--namespace", install::NAMESPACE, &operator]).await?;
    for (place, text) in [("an object", objects), ("the operator's log", log)] {
        ensure!(!KEY_BEGINS.iter().any(|begin| text.contains(begin)), "a private key is in {place}");
    }
    Ok(())
}

pub(super) fn tls_ready(cluster: &EtcdCluster) -> Option<&Condition> {
    let conditions = &cluster.status.as_ref()?.conditions;
    conditions.iter().find(|it| it.type_ == condition::TLS_READY)
}

/// What tells one run of each pod from another.
pub(super) async fn pods(cluster: &Operated) -> Result<Vec<(Option<String>, i32)>> {
    let pods = cluster.pods().await?;
    Ok(pods.values().map(|pod| (pod.uid(), wait::restarts(pod))).collect())
}
