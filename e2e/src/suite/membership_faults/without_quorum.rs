//! Two of three members are cut off for long. Nothing is restarted or removed meanwhile, and all of them return as they were.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::names::condition;
use serde_json::json;

use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::disturbed::{Roster, cut_off, holds, lives};
use crate::suite::lifecycle::{born, judged};
use crate::suite::{KEY, VALUE};

/// Longer than the liveness probe needs to end a container: nine failures, ten seconds apart, each after ten seconds.
const LONG: Duration = Duration::from_secs(200);

pub async fn left_alone(context: &Context) -> Result<()> {
    let (cluster, mut history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let alone = cluster.members().await?.into_iter().find(|it| it.name == "kv-0").context("kv-0")?;
    alone.put(KEY, VALUE).await?;
    let (before, pods) = (Roster::of(&cluster).await?, lives(&cluster.pods().await?));
    let mut cuts = Vec::new();
    for pod in ["kv-1", "kv-2"] {
        cuts.push(context.inject(cut_off(&cluster, pod)).await?);
    }
    cluster.wait_for("the quorum is lost", |it| holds(it, condition::QUORUM_LOST).is_some()).await?;
    // Thousands of writes without a response would make the history hard to check.
    history.pause().await;
    tokio::time::sleep(LONG).await;
    let now = lives(&cluster.pods().await?);
    ensure!(now == pods, "a member was restarted or replaced without a quorum: {pods:?}, {now:?}");
    let seen = cluster.object().await?;
    ensure!(holds(&seen, condition::QUORUM_LOST).is_some(), "the quorum is back: {:?}", seen.status);
    let value = alone.serializable_read(KEY).await?;
    ensure!(value.as_deref() == Some(VALUE), "the member that is alone does not have its data: {value:?}");
    context.step(format!("no member restarted in {LONG:?} without a quorum"));

    for cut in &cuts {
        context.undo(cut).await?;
    }
    before.returns(&cluster).await?;
    let now = lives(&cluster.pods().await?);
    ensure!(now == pods, "a member was restarted or replaced when the quorum returned: {pods:?}, {now:?}");
    history.resume();
    judged(context, history).await
}
