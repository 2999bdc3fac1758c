//! What the CIS benchmark of Kubernetes asks of etcd (2.1 to 2.7, and the data directory), of processes that run.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use testbed::cgroup;

use super::connections::as_asked_for;
use super::dialled::serves_plain_text;
use crate::etcd::PEER_PORT;
use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::lifecycle::{born, judged};

/// The user of etcd's process, which owns its data.
const USER: u32 = 65532;

/// Refusals of both ports come from dialling them with other certificates, without any, and in plain text.
pub async fn checks(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    as_asked_for(context, &cluster).await?;
    for member in cluster.members().await? {
        for port in [member.address, SocketAddr::new(member.address.ip(), PEER_PORT)] {
            ensure!(serves_plain_text(port).await.is_err(), "{port} serves plain text");
        }
    }
    for (name, pod) in cluster.pods().await? {
        let process = etcd_of(context, &pod).with_context(|| format!("no etcd in {name}"))?;
        has_flags(&flags(process)?).with_context(|| name.clone())?;
        is_private(process).with_context(|| name.clone())?;
    }
    another_authority_than_that_of_kubernetes(context, &cluster).await?;
    context.step("flags, ports and data directories are as CIS asks for");
    judged(context, history).await
}

/// Images of etcd have no shell, so its process is looked at from its node.
fn etcd_of(context: &Context, pod: &Pod) -> Option<u32> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    let node = context.bed().nodes().into_iter().find(|it| it.name() == node)?;
    let processes = cgroup::processes_in(node, &format!("pod{}", pod.metadata.uid.as_deref()?));
    let is_etcd =
        |id: &u32| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|it| it.trim() == "etcd");
    processes.into_iter().find(is_etcd)
}

fn flags(process: u32) -> Result<BTreeMap<String, String>> {
    let line = fs::read(format!("/proc/{process}/cmdline")).context("it has ended")?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let flag = |word: &str| {
        let (name, value) = word.strip_prefix("--")?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Ok(line.split('\0').filter_map(flag).collect())
}

fn has_flags(flags: &BTreeMap<String, String>) -> Result<()> {
    let of = |name: &str| flags.get(name).map(String::as_str).unwrap_or_default();
    for file in [
        "cert-file",
        "key-file",
        "trusted-ca-file",
        "peer-cert-file",
        "peer-key-file",
        "peer-trusted-ca-file",
    ] {
        ensure!(of(file).starts_with('/'), "no --{file}: {flags:?}");
    }
    for demanded in ["client-cert-auth", "peer-client-cert-auth"] {
        ensure!(of(demanded) == "true", "no --{demanded}: {flags:?}");
    }
    for forbidden in ["auto-tls", "peer-auto-tls"] {
        ensure!(of(forbidden) != "true", "--{forbidden} trusts everybody: {flags:?}");
    }
    ensure!(of("trusted-ca-file") != of("peer-trusted-ca-file"), "one authority for both ports: {flags:?}");
    Ok(())
}

/// Root on the node sees what the process sees.
fn is_private(process: u32) -> Result<()> {
    let directory = flags(process)?.remove("data-dir").context("no --data-dir")?;
    let data = fs::metadata(format!("/proc/{process}/root{directory}")).with_context(|| directory.clone())?;
    let (mode, owner) = (data.mode() & 0o7777, data.uid());
    ensure!((mode, owner) == (0o700, USER), "{directory} has mode {mode:o} and owner {owner}");
    let runs_as = fs::metadata(format!("/proc/{process}")).context("it has ended")?.uid();
    ensure!(runs_as == USER, "etcd runs as user {runs_as}");
    Ok(())
}

async fn another_authority_than_that_of_kubernetes(context: &Context, cluster: &Operated) -> Result<()> {
    let kubectl = context.kubectl();
    let within = ["--namespace", cluster.namespace.as_str()];
    let read = async |words: &[&str]| kubectl.run(&[&within[..], words].concat()).await;
    let kubernetes =
        read(&["get", "configmap", "kube-root-ca.crt", "--output=jsonpath={.data.ca\\.crt}"]).await?;
    let secret = cluster.names().secret(etcd_operator_core::tls::Purpose::Client);
    let own =
        read(&["get", "secret", &secret, "--output=go-template={{index .data \"ca.crt\" | base64decode}}"])
            .await?;
    ensure!(own.contains("BEGIN CERTIFICATE") && !kubernetes.is_empty(), "no authorities to compare");
    ensure!(own.trim() != kubernetes.trim(), "etcd trusts the authority of Kubernetes");
    Ok(())
}
