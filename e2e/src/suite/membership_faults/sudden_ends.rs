//! Members and machines that end in the middle of a scaling.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;
use testbed::fault::Fault;

use crate::operated::{Operated, Promised};
use crate::runner::{Context, node_is_ready};
use crate::suite::LIMIT;
use crate::suite::disturbed::{move_leader, node_of, scaling_begins};
use crate::suite::kill;
use crate::suite::lifecycle::{born, judged};
use crate::wait;

/// The new member's pod first, then all of them, then one that is to go.
pub async fn pods_deleted(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let oracle = cluster.status_oracle();
    scaling_begins(context, &cluster, 3).await?;
    deleted(context, &cluster, &["kv-1"]).await?;
    settled(&cluster, 3).await?;
    scaling_begins(context, &cluster, 5).await?;
    deleted(context, &cluster, &["kv-0", "kv-1", "kv-2", "kv-3", "kv-4"]).await?;
    settled(&cluster, 5).await?;
    scaling_begins(context, &cluster, 1).await?;
    deleted(context, &cluster, &["kv-0", "kv-3"]).await?;
    settled(&cluster, 1).await?;
    oracle.verdict()?;
    judged(context, history).await
}

/// The node of the first new member goes down and comes back.
pub async fn node_crashes(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    scaling_begins(context, &cluster, 3).await?;
    let node = node_of(&cluster, "kv-1").await?;
    let crash = context.inject(Fault::CrashNode { node: node.clone() }).await?;
    let nodes = Api::<Node>::all(context.client().clone());
    wait::present(nodes, &node, "the node is not ready", LIMIT, |node| !node_is_ready(node)).await?;
    context.undo(&crash).await?;
    settled(&cluster, 3).await?;
    judged(context, history).await
}

/// The leader is the first that has to go, and dies before it can hand over, or while it does.
pub async fn leader_killed(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let oracle = cluster.status_oracle();
    move_leader(context, &cluster, "kv-2").await?;
    cluster.scale(1).await?;
    context.inject(kill(context, "kv-2")).await?;
    settled(&cluster, 1).await?;
    oracle.verdict()?;
    judged(context, history).await
}

pub(super) async fn settled(cluster: &Operated, size: u8) -> Result<()> {
    cluster.wait_until_settled(size).await?;
    cluster.agrees(&Promised::members(size)).await
}

/// Those that are there.
pub(super) async fn deleted(context: &Context, cluster: &Operated, pods: &[&str]) -> Result<()> {
    let delete = ["delete", "pod", "--namespace", &cluster.namespace, "--wait=false", "--ignore-not-found"];
    context.kubectl().run(&[&delete[..], pods].concat()).await?;
    context.step(format!("{pods:?} are deleted"));
    Ok(())
}
