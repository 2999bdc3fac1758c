//! Nothing goes wrong: clients notice nothing, as far as there are other members.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{MEMORY, form, memory, other_resources, rolled};
use crate::history::History;
use crate::runner::Context;
use crate::suite::lifecycle::{Identity, born, judged, judged_without_gap};

pub const FROM: &str = "v3.5.21";
pub const TO: &str = "v3.5.35";

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
    let history = through(context, &[FROM, TO]).await?;
    judged_without_gap(context, history).await
}

/// Over all minor versions and back, in one cluster with its data. etcd 3.7 does not start on a log that has entries of 3.5, and
/// there are some.
pub async fn minor_versions_and_back(context: &Context) -> Result<()> {
    let history = through(context, &[FROM, TO, "v3.6.16", "v3.7.3", "v3.6.16", TO]).await?;
    judged(context, history).await
}

/// A cluster that is created with the first version, and then gets one after the other.
async fn through(context: &Context, versions: &[&str]) -> Result<History> {
    for version in versions {
        testbed::image::ensure_etcd(version).await.context("cannot create the image")?;
    }
    let (first, others) = versions.split_first().context("no version")?;
    let (cluster, history) = born(context, 3, json!({"version": first})).await?;
    for wanted in others {
        let before = form(&cluster).await?;
        cluster.edit(json!({"spec": {"version": wanted}})).await?;
        rolled(context, &cluster, 3, &before).await?;
        for member in cluster.members().await? {
            let version = member.status().await?.version;
            ensure!(wanted.ends_with(&version), "{} runs {version}", member.name);
        }
        let shown = cluster.status().await?.version;
        ensure!(shown.as_deref() == Some(*wanted), "VERSION is {shown:?}");
        context.step(format!("all members run {wanted}"));
    }
    Ok(history)
}
