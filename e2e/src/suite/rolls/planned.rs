//! Nothing goes wrong: clients notice nothing, as far as there are other members.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{MEMORY, form, memory, other_resources, rolled};
use crate::runner::Context;
use crate::suite::lifecycle::{Identity, born, judged, judged_without_gap};

const FROM: &str = "v3.5.21";
const TO: &str = "v3.5.35";

pub async fn resources(context: &Context, size: u8) -> Result<()> {
    let (cluster, history) = born(context, size, json!({})).await?;
    let (before, identity) = (form(&cluster).await?, Identity::of(&cluster).await?);
    cluster.edit(other_resources()).await?;
    rolled(context, &cluster, size, &before).await?;
    for (name, pod) in cluster.pods().await? {
        ensure!(memory(&pod).as_deref() == Some(MEMORY), "{name} has {:?}", memory(&pod));
    }
    identity.is_still_that_of(&cluster).await?;
    judged_without_gap(context, history).await
}

/// Clients wait for it.
pub async fn only_one(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let before = form(&cluster).await?;
    cluster.edit(other_resources()).await?;
    rolled(context, &cluster, 1, &before).await?;
    judged(context, history).await
}

pub async fn patch_upgrade(context: &Context) -> Result<()> {
    testbed::image::ensure_etcd(TO).await.context("cannot create the image")?;
    let (cluster, history) = born(context, 3, json!({"version": FROM})).await?;
    let before = form(&cluster).await?;
    cluster.edit(json!({"spec": {"version": TO}})).await?;
    rolled(context, &cluster, 3, &before).await?;
    for member in cluster.members().await? {
        let version = member.status().await?.version;
        ensure!(TO.ends_with(&version), "{} runs {version}", member.name);
    }
    let shown = cluster.status().await?.version;
    ensure!(shown.as_deref() == Some(TO), "VERSION is {shown:?}");
    judged_without_gap(context, history).await
}
