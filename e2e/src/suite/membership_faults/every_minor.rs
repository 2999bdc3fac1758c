//! The usual faults on each line of etcd, with clients that write: what they see must not depend on the version.

use anyhow::{Context as _, Result};
use serde_json::json;
use testbed::fault::Direction;

use super::data_lost::wiped;
use super::sudden_ends::{deleted, settled};
use super::{cut_leader, uninvited};
use crate::runner::Context;
use crate::suite::disturbed::{Roster, leader, scaling_begins};
use crate::suite::elected::kill_operator;
use crate::suite::lifecycle::{Identity, born, judged};
use crate::suite::{LIMIT, kill};

/// The leader dies, a pod is deleted, the leader is cut off, a volume is lost, a member is removed by hand, and the operator
/// dies in the middle of a scaling.
pub async fn faults(context: &Context, version: &str) -> Result<()> {
    testbed::image::ensure_etcd(version).await.context("cannot create the image")?;
    let (cluster, history) = born(context, 3, json!({"version": version})).await?;
    let before = Identity::of(&cluster).await?;
    context.inject(kill(context, &leader(&cluster).await?)).await?;
    history.goes_on(LIMIT).await?;
    settled(&cluster, 3).await?;
    deleted(context, &cluster, &["kv-1"]).await?;
    settled(&cluster, 3).await?;
    let roster = Roster::of(&cluster).await?;
    cut_leader::cut_off(context, &cluster, &history, &roster, Direction::Both).await?;
    let former = wiped(context, &cluster, "kv-2").await?;
    former.gets_replaced(context, &cluster, &before).await?;
    uninvited::leaves_and_joins(context, &cluster, "kv-1", &before).await?;
    scaling_begins(context, &cluster, 1).await?;
    kill_operator(context).await?;
    settled(&cluster, 1).await?;
    before.is_still_that_of(&cluster).await?;
    judged(context, history).await?;
    // The kubelet would make the next one that is killed wait longer; another pod begins anew.
    let operator = context.operator().await?;
    operator.stop().await?;
    operator.start().await
}
