//! A log that is damaged on its disk: the member is named with etcd's words and left alone, until a person replaces it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::condition;
use serde_json::json;
use testbed::fault::Fault;

use super::data_lost::Former;
use super::sudden_ends::deleted;
use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::disturbed::{Roster, holds, leader, member};
use crate::suite::lifecycle::{Identity, born, judged};
use crate::suite::{LIMIT, kill};

/// Longer than a learner would be left to fail.
const LONG: Duration = Duration::from_secs(60);

pub async fn named_and_replaced(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let (before, identity) = (Roster::of(&cluster).await?, Identity::of(&cluster).await?);
    let leads = leader(&cluster).await?;
    let pod = cluster.pod_names(3).into_iter().find(|pod| *pod != leads).context("a follower")?;
    let (claim, namespace) = (format!("data-{pod}"), cluster.namespace.clone());
    context.inject(Fault::DamageLog { claim: claim.clone(), namespace }).await?;
    context.inject(kill(context, &pod)).await?;
    let is_named = |it: &EtcdCluster| {
        let why = member(it, &pod).and_then(|it| it.reason.clone()).unwrap_or_default();
        why.contains("crc mismatch")
    };
    let seen = cluster.wait_for("the status has etcd's words about the log", is_named).await?;
    context.step(member(&seen, &pod).and_then(|it| it.reason.clone()).unwrap_or_default());
    ensure!(holds(&seen, condition::AVAILABLE).is_some(), "it does not serve: {:?}", seen.status);
    tokio::time::sleep(LONG).await;
    history.goes_on(LIMIT).await?;
    before.is_still_that_of(&cluster).await?;
    context.step("the member is kept");

    let former = Former::of(&cluster, &pod).await?;
    let volume = ["delete", "pvc", &claim, "--namespace", &cluster.namespace, "--wait=false"];
    context.kubectl().run(&volume).await?;
    deleted(context, &cluster, &[&pod]).await?;
    former.gets_replaced(context, &cluster, &identity).await?;
    judged(context, history).await
}
