//! Size 0 and back: what is kept, and that it is as it was.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::Phase;
use serde_json::json;

use super::{Identity, born, judged, scaled, stalled};
use crate::operated::{Operated, Promised};
use crate::runner::Context;

pub async fn one_three_one_none_one(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let oracle = cluster.status_oracle();
    scaled(&cluster, 3).await?;
    scaled(&cluster, 1).await?;
    let before = stopped(&cluster, 1).await?;
    started(&cluster, 1, &before).await?;
    oracle.verdict()?;
    judged(context, history).await
}

pub async fn three_none_three(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let oracle = cluster.status_oracle();
    let before = stopped(&cluster, 1).await?;
    started(&cluster, 3, &before).await?;
    oracle.verdict()?;
    judged(context, history).await
}

/// All members stop as they are, and are the same ones afterwards.
pub async fn retain_all(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({"storage": {"onStop": "RetainAll"}})).await?;
    let oracle = cluster.status_oracle();
    let members = cluster.member_list().await?;
    let before = stopped(&cluster, 3).await?;
    started(&cluster, 3, &before).await?;
    let after = cluster.member_list().await?;
    ensure!(members == after, "other members than before: {after:?}, were {members:?}");
    oracle.verdict()?;
    judged(context, history).await
}

/// What was asked to be gone is gone, and no other cluster takes its place.
pub async fn delete(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({"storage": {"onStop": "Delete"}})).await?;
    judged(context, history).await?;
    cluster.scale(0).await?;
    cluster.wait_until_settled(0).await?;
    cluster.agrees(&Promised::stopped(0)).await?;
    cluster.scale(1).await?;
    let refused = cluster.wait_for("a start without data is refused", |it| stalled(it).is_some()).await?;
    let stalled = stalled(&refused).context("it stalls")?;
    context.step(format!("{}: {}", stalled.reason, stalled.message));
    ensure!(stalled.reason == "DataLost", "not told that the data is gone: {stalled:?}");
    let phase = refused.status.and_then(|status| status.phase);
    ensure!(phase == Some(Phase::Failed), "a cluster without data is {phase:?}");
    ensure!(cluster.pods().await?.is_empty() && cluster.claims().await?.is_empty(), "a new cluster began");
    Ok(())
}

/// Clients write until the last member is gone; so many volumes are left.
async fn stopped(cluster: &Operated, claims: u8) -> Result<Identity> {
    let before = Identity::of(cluster).await?;
    cluster.scale(0).await?;
    cluster.wait_until_settled(0).await?;
    cluster.agrees(&Promised::stopped(claims)).await?;
    Ok(before)
}

async fn started(cluster: &Operated, size: u8, before: &Identity) -> Result<()> {
    scaled(cluster, size).await?;
    before.is_still_that_of(cluster).await
}
