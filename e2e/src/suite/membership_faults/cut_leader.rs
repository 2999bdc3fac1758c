//! A leader that is cut off, in both directions and in one only: another one is elected, and nobody is replaced.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::fault::{Direction, Fault};

use crate::etcd;
use crate::history::History;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{Roster, leader, lives};
use crate::suite::lifecycle::{born, judged};
use crate::wait;

/// Longer than the operator needs to be certain that a member is silent.
const LONG: Duration = Duration::from_secs(25);

pub async fn stays_a_member(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let (before, pods) = (Roster::of(&cluster).await?, lives(&cluster.pods().await?));
    for direction in [Direction::Both, Direction::In, Direction::Out] {
        cut_off(context, &cluster, &history, &before, direction).await?;
    }
    let now = lives(&cluster.pods().await?);
    ensure!(now == pods, "a member was restarted: {pods:?}, {now:?}");
    judged(context, history).await
}

pub(super) async fn cut_off(
    context: &Context,
    cluster: &Operated,
    history: &History,
    before: &Roster,
    direction: Direction,
) -> Result<()> {
    let leads = leader(cluster).await?;
    let (pod, namespace) = (leads.clone(), cluster.namespace.clone());
    let cut = context.inject(Fault::CutPod { pod, namespace, direction }).await?;
    let another = async || another_leads(cluster, &leads).await;
    wait::until(&format!("another member than {leads} leads"), LIMIT, another).await?;
    history.goes_on(LIMIT).await?;
    tokio::time::sleep(LONG).await;
    before.is_still_that_of(cluster).await?;
    context.undo(&cut).await?;
    before.returns(cluster).await?;
    context.step(format!("{leads} returned, {direction:?}"));
    Ok(())
}

/// As the others see it: the one that is cut off takes a while to notice.
async fn another_leads(cluster: &Operated, than: &str) -> Result<bool> {
    let others: Vec<_> = cluster.members().await?.into_iter().filter(|it| it.name != than).collect();
    Ok(etcd::leader(&others).await.is_ok())
}
