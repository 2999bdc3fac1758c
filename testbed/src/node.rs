//! One node: its place on the network, its control group, its containerd, kubelet and kube-proxy.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1 as core;
use kube::Api;

use crate::build::Programs;
use crate::control_plane::Addresses;
use crate::layout::{Layout, Node};
use crate::pki::{Authority, Subject};
use crate::process::{self, Daemon, until};
use crate::{cgroup, network};

mod config;
pub use config::write_shared;

const DAEMONS: [&str; 3] = ["kubelet", "proxy", "containerd"];

/// Everything that must exist before the node's daemons start.
pub async fn create(layout: &Layout, node: Node, authority: &Authority, addresses: &Addresses) -> Result<()> {
    let home = layout.node_home(node);
    for dir in ["cni", "pki"] {
        std::fs::create_dir_all(home.join(dir))
            .with_context(|| format!("cannot create the directory of {node}"))?;
    }
    network::attach(node).await?;
    cgroup::create(node)?;
    let name = node.name();
    let subject = Subject { name: &format!("system:node:{name}"), group: Some("system:nodes") };
    authority.issue_client(&home.join("kubeconfig"), &addresses.server(), &name, subject)?;
    config::write(layout, node)
}

/// Starts what needs no API server.
pub async fn start_runtime(layout: &Layout, node: Node) -> Result<()> {
    Daemon::new(format!("{node}-containerd"), "containerd")
        .file("config", layout.node_home(node).join("containerd.toml"))
        .flag("log-level", "warn")
        .in_namespace(node.network_namespace())
        .start(layout)
        .await?;
    Ok(())
}

/// Starts kubelet and kube-proxy. A kubelet gives up at once where no runtime answers, so that is waited for.
pub async fn start_agents(layout: &Layout, node: Node, programs: &Programs) -> Result<()> {
    let home = layout.node_home(node);
    let socket = home.join("containerd.sock");
    let what = || format!("containerd of {node} does not respond");
    until(Duration::from_secs(30), Duration::from_millis(50), what, async || {
        Ok(tokio::net::UnixStream::connect(&socket).await.is_ok())
    })
    .await?;
    Daemon::new(format!("{node}-kubelet"), programs.kubernetes.join("kubelet"))
        .file("config", home.join("kubelet.yaml"))
        .file("kubeconfig", home.join("kubeconfig"))
        .flag("hostname-override", node)
        .flag("node-ip", node.address())
        .file("root-dir", home.join("kubelet"))
        .file("cert-dir", home.join("pki"))
        .flag("node-labels", format!("topology.kubernetes.io/zone={}", node.zone()))
        .in_namespace(node.network_namespace())
        .start(layout)
        .await?;
    Daemon::new(format!("{node}-proxy"), programs.kubernetes.join("kube-proxy"))
        .file("config", home.join("proxy.yaml"))
        .in_namespace(node.network_namespace())
        .start(layout)
        .await?;
    Ok(())
}

/// Kills everything that runs on a node, as a power cut would.
pub async fn kill(layout: &Layout, node: Node) -> Result<()> {
    // First those that would restart, or half clean up, what is killed after them.
    process::kill_and_wait(&daemons(layout, node)).await?;
    process::kill_and_wait(&cgroup::processes(node)).await?;
    process::kill_and_wait(&shims(layout, node)).await
}

/// Whether all daemons of a node run.
pub fn runs(layout: &Layout, node: Node) -> bool {
    daemons(layout, node).len() == DAEMONS.len()
}

/// Those that run.
fn daemons(layout: &Layout, node: Node) -> Vec<u32> {
    DAEMONS.iter().filter_map(|name| process::running(layout, &format!("{node}-{name}"))).collect()
}

/// The processes that containerd keeps beside each pod's containers: they name its socket on their command line.
fn shims(layout: &Layout, node: Node) -> Vec<u32> {
    let socket = layout.node_home(node).join("containerd.sock").display().to_string();
    let names_socket = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|word| word == socket.as_bytes())
    };
    process::ours(layout).into_iter().filter(names_socket).collect()
}

/// Waits until the API server calls the node ready.
pub async fn wait_ready(client: &kube::Client, layout: &Layout, node: Node) -> Result<()> {
    let nodes: Api<core::Node> = Api::all(client.clone());
    let what = || {
        format!("{node} is not ready; see {}", layout.logs().join(format!("{node}-kubelet.log")).display())
    };
    until(Duration::from_secs(60), Duration::from_millis(100), what, async || {
        Ok(nodes.get_opt(&node.name()).await?.is_some_and(|found| is_ready(&found)))
    })
    .await
}

pub fn is_ready(node: &core::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
