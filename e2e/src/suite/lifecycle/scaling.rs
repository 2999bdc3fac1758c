//! Born with any size, and given any other.

use anyhow::Result;
use serde_json::json;

use super::{born, judged, judged_without_gap, scaled};
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::wait;

pub async fn created(context: &Context, size: u8) -> Result<()> {
    let (cluster, history) = born(context, size, json!({})).await?;
    cluster.agrees(&Promised::members(size)).await?;
    judged(context, history).await
}

pub async fn through(context: &Context, first: u8, sizes: &[u8]) -> Result<()> {
    let (cluster, history) = born(context, first, json!({})).await?;
    let oracle = cluster.status_oracle();
    for &size in sizes {
        scaled(&cluster, size).await?;
    }
    oracle.verdict()?;
    judged(context, history).await
}

/// Clients can write all the time.
pub async fn without_gap(context: &Context, first: u8, sizes: &[u8]) -> Result<()> {
    let (cluster, history) = born(context, first, json!({})).await?;
    let oracle = cluster.status_oracle();
    for &size in sizes {
        scaled(&cluster, size).await?;
    }
    oracle.verdict()?;
    judged_without_gap(context, history).await
}

/// Three, then five, one and three again: once faster than anything can be done, and once in the middle of each.
pub async fn change_of_mind(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let oracle = cluster.status_oracle();
    for size in [5, 1, 3] {
        cluster.scale(size).await?;
    }
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    context.step("edits back to back");

    cluster.scale(5).await?;
    members_become(&cluster, "more than 3", |members| members > 3).await?;
    cluster.scale(1).await?;
    members_become(&cluster, "fewer than 3", |members| members < 3).await?;
    cluster.scale(3).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    context.step("edits in the middle of each step");
    oracle.verdict()?;
    judged(context, history).await
}

async fn members_become(cluster: &Operated, what: &str, holds: impl Fn(usize) -> bool) -> Result<()> {
    let what = format!("etcd lists {what} members");
    wait::until(&what, LIMIT, async || Ok(holds(cluster.member_list().await?.len()))).await
}
