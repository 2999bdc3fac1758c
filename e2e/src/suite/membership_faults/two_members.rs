//! Two voters tolerate no failure: writes stop with either, and go on when it is back.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::sudden_ends::deleted;
use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::disturbed::{Roster, leader};
use crate::suite::lifecycle::{born, judged, scaled};
use crate::suite::{LIMIT, kill};

/// Each dies once and loses its pod once, leader and follower. Then a third one joins.
pub async fn either_dies(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 2, json!({})).await?;
    cluster.agrees(&Promised::members(2)).await?;
    let before = Roster::of(&cluster).await?;
    for of_leader in [false, true] {
        let leads = leader(&cluster).await?;
        let chosen = cluster.pod_names(2).into_iter().find(|pod| (*pod == leads) == of_leader);
        let pod = chosen.context("two members")?;
        context.inject(kill(context, &pod)).await?;
        history.goes_on(LIMIT).await?;
        before.returns(&cluster).await?;
        deleted(context, &cluster, &[&pod]).await?;
        history.goes_on(LIMIT).await?;
        before.returns(&cluster).await?;
    }
    let listed = cluster.member_list().await?;
    ensure!(listed.len() == 2, "other members: {listed:?}");
    scaled(&cluster, 3).await?;
    judged(context, history).await
}
