//! Several nodes at once: cut off for longer than Kubernetes waits with evictions, and crashed all together.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::fault::{Direction, Fault};

use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::disturbed::{Roster, lives, nodes_are};
use crate::suite::lifecycle::{born, judged};

/// Pods without tolerations of their own are evicted from a lost node 30 s after it was noticed.
const LONG: Duration = Duration::from_secs(75);

/// Every node but that of the control plane. Neither Kubernetes nor the operator ends a pod, not even when they return.
pub async fn cut_off(context: &Context) -> Result<()> {
    let patient = json!({"repair": {"nodeLossGraceSeconds": 3600}});
    let (cluster, mut history) = born(context, 3, patient).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let (before, pods) = (Roster::of(&cluster).await?, lives(&cluster.pods().await?));
    let nodes: Vec<String> = nodes(context).into_iter().filter(|node| node != "n1").collect();
    let mut cuts = Vec::new();
    for node in nodes.clone() {
        cuts.push(context.inject(Fault::CutNode { node, direction: Direction::Both }).await?);
    }
    history.pause().await;
    nodes_are(context, &nodes, false).await?;
    tokio::time::sleep(LONG).await;
    let now = lives(&cluster.pods().await?);
    ensure!(now == pods, "a pod of a member on a lost node was ended: {pods:?}, {now:?}");
    for cut in &cuts {
        context.undo(cut).await?;
    }
    nodes_are(context, &nodes, true).await?;
    // The operator itself has been evicted if it was there.
    context.operator().await?;
    before.returns(&cluster).await?;
    let now = lives(&cluster.pods().await?);
    ensure!(now == pods, "a pod of a member was ended when its node returned: {pods:?}, {now:?}");
    context.step("the same pods serve again, none was restarted");
    history.resume();
    judged(context, history).await
}

/// As in a power cycle. The operator is on one of them.
pub async fn crashed(context: &Context) -> Result<()> {
    let (cluster, mut history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let before = Roster::of(&cluster).await?;
    let nodes = nodes(context);
    let mut crashes = Vec::new();
    for node in nodes.clone() {
        crashes.push(context.inject(Fault::CrashNode { node }).await?);
    }
    history.pause().await;
    nodes_are(context, &nodes, false).await?;
    context.step("no node is ready");
    for crash in &crashes {
        context.undo(crash).await?;
    }
    nodes_are(context, &nodes, true).await?;
    context.operator().await?;
    before.returns(&cluster).await?;
    history.resume();
    judged(context, history).await
}

fn nodes(context: &Context) -> Vec<String> {
    context.bed().nodes().iter().map(|node| node.name()).collect()
}
