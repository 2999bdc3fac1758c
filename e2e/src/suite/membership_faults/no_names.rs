//! Cluster DNS does not know the names of a cluster any more, while a member restarts and others join.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use testbed::fault::Fault;

use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::disturbed::{Roster, becomes_whole, leader, scaling_begins};
use crate::suite::lifecycle::{Identity, born, judged};
use crate::suite::{LIMIT, kill};
use crate::wait;

/// Longer than DNS and its caches keep an answer, and than an agent waits for names.
const LONG: Duration = Duration::from_secs(70);
/// For learners that have failed until then, which the operator replaces after 45 s, and for names that DNS remembers as missing.
const RESTARTED: Duration = Duration::from_secs(420);

pub async fn come_back(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let (before, identity) = (Roster::of(&cluster).await?, Identity::of(&cluster).await?);
    let leads = leader(&cluster).await?;
    let follower = cluster.pod_names(3).into_iter().find(|pod| *pod != leads).context("a follower")?;
    let names = vec![format!("{}.svc.cluster.local", cluster.namespace)];
    let deny = context.inject(Fault::DenyNames { names: names.clone() }).await?;
    tokio::time::sleep(LONG).await;
    context.inject(kill(context, &follower)).await?;
    history.goes_on(LIMIT).await?;
    tokio::time::sleep(LONG).await;
    before.is_still_that_of(&cluster).await?;
    context.undo(&deny).await?;
    before.returns(&cluster).await?;

    let deny = context.inject(Fault::DenyNames { names }).await?;
    cluster.scale(5).await?;
    tokio::time::sleep(LONG).await;
    history.goes_on(LIMIT).await?;
    let voters = async || anyhow::Ok(cluster.member_list().await?.iter().filter(|it| !it.is_learner).count());
    ensure!(voters().await? >= 3, "voters were removed: {}", voters().await?);
    context.undo(&deny).await?;
    wait::until("five members vote", RESTARTED, async || Ok(voters().await? == 5)).await?;
    becomes_whole(&cluster, 5).await?;
    identity.is_still_that_of(&cluster).await?;
    scaling_begins(context, &cluster, 3).await?;
    becomes_whole(&cluster, 3).await?;
    judged(context, history).await
}
