//! What the operator works with is away: the API server, or the etcd of one cluster among others.

use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_core::names::condition;
use serde_json::json;
use testbed::fault::Fault;

use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{cut_off, scaling_begins};
use crate::suite::lifecycle::{born, judged, scaled};

/// Longer than the operator can keep its Lease without the API server.
const AWAY: Duration = Duration::from_secs(20);
const OTHER: &str = "other";

pub async fn api_server(context: &Context, from: u8, to: u8) -> Result<()> {
    let (cluster, history) = born(context, from, json!({})).await?;
    scaling_begins(context, &cluster, to).await?;
    let stop = context.inject(Fault::StopApiServer).await?;
    tokio::time::sleep(AWAY).await;
    history.goes_on(LIMIT).await?;
    context.step("clients write without an API server");
    context.undo(&stop).await?;
    cluster.wait_until_settled(to).await?;
    cluster.agrees(&Promised::members(to)).await?;
    judged(context, history).await
}

/// The members of one cluster are on n1, so that clients on this machine reach them whatever is cut: for the operator,
/// which is a pod like others, they are away.
pub async fn etcd(context: &Context) -> Result<()> {
    let on_n1 = json!({"podTemplate": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}});
    let (cluster, history) = born(context, 1, on_n1).await?;
    let other = context.operated(OTHER, json!({"size": 1, "storage": {"size": "1Gi"}})).await?;
    other.wait_until_settled(1).await?;
    let others_history = context.writers(&other).await?;

    scaling_begins(context, &cluster, 3).await?;
    let mut cuts = Vec::new();
    for pod in cluster.pods().await?.into_keys() {
        cuts.push(context.inject(cut_off(&cluster, &pod)).await?);
    }
    let away = |cluster: &etcd_operator_core::api::EtcdCluster| {
        let conditions = cluster.status.as_ref().map(|status| &status.conditions);
        conditions.into_iter().flatten().any(|it| it.type_ == condition::READY && it.status != "True")
            && conditions
                .into_iter()
                .flatten()
                .any(|it| it.type_ == condition::AVAILABLE && it.status != "True")
    };
    let seen = cluster.wait_for("the status reports that etcd does not respond", away).await?;
    context.step(format!("{:?}", seen.status.map(|status| status.phase)));
    for size in [3, 1] {
        scaled(&other, size).await?;
    }
    others_history.goes_on(LIMIT).await?;
    context.step("meanwhile the other cluster was scaled out and in");
    judged(context, others_history).await?;
    let still_away = cluster.object().await?;
    ensure!(away(&still_away), "etcd was not away all the time: {:?}", still_away.status);

    for cut in &cuts {
        context.undo(cut).await?;
    }
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}
