//! A learner that stands still: it never catches up, so it never votes, and it keeps nobody from anything but joining.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::condition;
use serde_json::json;
use testbed::fault::Injected;

use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{becomes_whole, holds, scaling_begins};
use crate::suite::lifecycle::{Identity, born, judged, scaled};
use crate::suite::pause;
use crate::wait;

/// Shorter than the liveness probe takes to end it.
const LONG: Duration = Duration::from_secs(30);

pub async fn blocks_nothing(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let before = Identity::of(&cluster).await?;
    let (pod, _) = stands_still(context, &cluster).await?;
    let reported = |it: &EtcdCluster| {
        let reconciling = holds(it, condition::RECONCILING);
        reconciling.is_some_and(|it| it.message.contains(&pod)) && holds(it, condition::AVAILABLE).is_some()
    };
    cluster.wait_for("the learner is waited for while the cluster serves", reported).await?;
    tokio::time::sleep(LONG).await;
    let listed = cluster.member_list().await?;
    let learner = listed.iter().find(|it| it.is_learner);
    ensure!(learner.is_some(), "it votes, or was removed: {listed:?}");
    history.goes_on(LIMIT).await?;
    scaled(&cluster, 1).await?;
    context.step("a smaller size removed it");

    let (_, paused) = stands_still(context, &cluster).await?;
    history.goes_on(LIMIT).await?;
    context.undo(&paused).await?;
    becomes_whole(&cluster, 3).await?;
    before.is_still_that_of(&cluster).await?;
    judged(context, history).await
}

/// Scales to three. The operator pauses until the etcd of the first learner has stopped, so that it cannot promote it.
async fn stands_still(context: &Context, cluster: &Operated) -> Result<(String, Injected)> {
    scaling_begins(context, cluster, 3).await?;
    cluster.edit(json!({"spec": {"paused": true}})).await?;
    let listed = cluster.member_list().await?.into_iter().find(|it| it.is_learner);
    let learner = listed.context("the learner was promoted before the operator paused")?;
    let names = cluster.names();
    let ordinal = learner.peer_urls.first().and_then(|url| names.ordinal_of(url));
    let pod = names.pod(ordinal.context("a learner of no pod")?);
    let mut paused = None;
    // Its agent becomes etcd in its own time.
    let stopped = async || {
        paused = Some(context.inject(pause(context, &pod)).await?);
        Ok(true)
    };
    wait::until(&format!("etcd in {pod} stands still"), LIMIT, stopped).await?;
    let still = cluster.member_list().await?.into_iter().any(|it| it.id == learner.id && it.is_learner);
    ensure!(still, "{pod} was promoted before it stood still");
    cluster.edit(json!({"spec": {"paused": false}})).await?;
    Ok((pod, paused.context("it was injected")?))
}
