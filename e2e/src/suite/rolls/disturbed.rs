//! Something else happens at the same time.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{first_rolled, form, other_resources, rolled};
use crate::runner::Context;
use crate::suite::disturbed::{leader, node_of};
use crate::suite::elected::kill_operator;
use crate::suite::lifecycle::{born, judged, judged_without_gap};
use crate::suite::pause;

pub async fn operator_killed(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let before = form(&cluster).await?;
    cluster.edit(other_resources()).await?;
    first_rolled(context, &cluster, &before).await?;
    kill_operator(context).await?;
    rolled(context, &cluster, 3, &before).await?;
    judged_without_gap(context, history).await?;
    // The kubelet would make the next one that is killed wait longer; another pod begins anew.
    let operator = context.operator().await?;
    operator.stop().await?;
    operator.start().await
}

/// The budget lets one pod end at a time, and none while two members that restarted one after the other have each other's
/// previous addresses. Volumes stay on their nodes, so the drained member waits for its own.
pub async fn node_drained(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let before = form(&cluster).await?;
    let leads = leader(&cluster).await?;
    let node = node_of(&cluster, &leads).await?;
    cluster.edit(other_resources()).await?;
    first_rolled(context, &cluster, &before).await?;
    let selector = format!("--pod-selector={}", cluster.selector());
    let drain =
        ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", &selector, "--timeout=120s"];
    let drained = context.kubectl().ask(&drain).await;
    let uncordoned = context.kubectl().run(&["uncordon", &node]).await;
    let drained = drained?;
    uncordoned?;
    context.step(format!("drained {node}: {}", drained.out.trim().replace('\n', "; ")));
    ensure!(drained.ok, "the drain did not end: {}", drained.err);
    rolled(context, &cluster, 3, &before).await?;
    judged_without_gap(context, history).await
}

/// It is restarted before any member that serves, so a quorum serves all the time.
pub async fn one_is_down(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let before = form(&cluster).await?;
    let leads = leader(&cluster).await?;
    let down = if leads == "kv-0" { "kv-1" } else { "kv-0" };
    context.inject(pause(context, down)).await?;
    let silent = |it: &etcd_operator_core::api::EtcdCluster| {
        it.status.as_ref().is_some_and(|status| status.ready_replicas == Some(2))
    };
    cluster.wait_for("one member does not serve", silent).await?;
    cluster.edit(other_resources()).await?;
    let first = first_rolled(context, &cluster, &before).await?;
    ensure!(first == down, "{first} came first, and {down} was down");
    rolled(context, &cluster, 3, &before).await?;
    judged(context, history).await
}
