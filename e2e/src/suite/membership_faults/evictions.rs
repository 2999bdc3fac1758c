//! Evictions in parallel, as from a drain and an autoscaler that do not know of each other.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::EvictParams;
use serde_json::json;

use super::data_lost::wiped;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::disturbed::{Roster, becomes_whole};
use crate::suite::lifecycle::{Identity, born, judged};
use crate::suite::{BACK_OFF_LIMIT, LIMIT};
use crate::wait;

/// The client repeats what is refused, which shows nothing more.
const ATTEMPT: Duration = Duration::from_secs(1);

pub async fn in_parallel(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let (before, identity) = (Roster::of(&cluster).await?, Identity::of(&cluster).await?);
    allows(context, &cluster, 1).await?;
    let evicted = evict(context, &["kv-0", "kv-1", "kv-2"]).await;
    ensure!(evicted.len() == 1, "not one of three was evicted: {evicted:?}");
    context.step(format!("evicted {evicted:?} of three at once"));
    before.returns(&cluster).await?;

    let former = wiped(context, &cluster, "kv-1").await?;
    allows(context, &cluster, 0).await?;
    // From now on until the new member votes, whatever is evicted would cost the quorum.
    let evicted = async || {
        let evicted = evict(context, &["kv-0", "kv-2"]).await;
        ensure!(evicted.len() < 2, "both other members were evicted");
        if evicted.is_empty() {
            return Ok(false);
        }
        let replaced = context.pods().get("kv-1").await?;
        ensure!(wait::is_ready(&replaced), "{evicted:?} was evicted while kv-1 was replaced");
        context.step(format!("{evicted:?} was evicted when kv-1 had been replaced"));
        Ok(true)
    };
    evictions(evicted).await?;
    becomes_whole(&cluster, 3).await?;
    former.gets_replaced(context, &cluster, &identity).await?;
    judged(context, history).await
}

/// Unlike in a wait, an error is the end.
async fn evictions(mut evicted: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let until_one = async {
        while !evicted().await? {}
        Ok(())
    };
    tokio::time::timeout(BACK_OFF_LIMIT, until_one).await.context("nobody was evicted again")?
}

/// The names of those whose evictions were accepted.
async fn evict<'a>(context: &Context, pods: &[&'a str]) -> Vec<&'a str> {
    let (api, parameters) = (context.pods(), EvictParams::default());
    let evictions = pods.iter().map(async |&pod| {
        let evicted = tokio::time::timeout(ATTEMPT, api.evict(pod, &parameters)).await;
        evicted.is_ok_and(|response| response.is_ok()).then_some(pod)
    });
    join_all(evictions).await.into_iter().flatten().collect()
}

/// The API server decides by what the budget's controller has counted.
async fn allows(context: &Context, cluster: &Operated, evictions: i32) -> Result<()> {
    let budgets = cluster.api::<PodDisruptionBudget>();
    let counted = |it: &PodDisruptionBudget| {
        it.status.as_ref().is_some_and(|status| status.disruptions_allowed == evictions)
    };
    let what = format!("the budget allows {evictions} eviction(s)");
    wait::present(budgets, &cluster.name, &what, LIMIT, counted).await?;
    context.step(what);
    Ok(())
}
