//! The operator cannot reach etcd for long, and clients can: nothing is removed, restarted or added on its word.

use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use serde_json::json;

use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{Roster, cut_off, lives};
use crate::suite::lifecycle::{born, judged};

/// Several times as long as silence has to last before it counts for anything.
const LONG: Duration = Duration::from_secs(60);

/// The member is on n1, so that clients on this machine reach it whatever is cut. It is asked for two more meanwhile.
pub async fn touches_nothing(context: &Context) -> Result<()> {
    let on_n1 = json!({"podTemplate": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}});
    let (cluster, history) = born(context, 1, on_n1).await?;
    cluster.agrees(&Promised::members(1)).await?;
    let (before, pods) = (Roster::of(&cluster).await?, lives(&cluster.pods().await?));
    let cut = context.inject(cut_off(&cluster, "kv-0")).await?;
    let is_blind = |it: &EtcdCluster| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions);
        let mut available = conditions.into_iter().filter(|it| it.type_ == condition::AVAILABLE);
        available.any(|it| it.status == "Unknown" && it.reason == reason::MEMBERS_UNREACHABLE)
    };
    cluster.wait_for("it is not known whether etcd serves", is_blind).await?;
    cluster.scale(3).await?;
    tokio::time::sleep(LONG).await;
    let seen = cluster.object().await?;
    ensure!(is_blind(&seen), "it claims to know: {:?}", seen.status);
    before.is_still_that_of(&cluster).await?;
    let now = lives(&cluster.pods().await?);
    ensure!(now == pods, "pods changed: {pods:?}, {now:?}");
    history.goes_on(LIMIT).await?;
    context.step("clients write, and nothing was touched");
    context.undo(&cut).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}
