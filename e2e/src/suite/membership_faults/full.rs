//! No room: on the disk of one member, and in the database of all.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, event};
use serde_json::json;
use testbed::fault::Fault;

use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::disturbed::{Roster, etcdctl, holds, leader, lives, member};
use crate::suite::lifecycle::{born, judged};
use crate::suite::{BACK_OFF_LIMIT, LIMIT};
use crate::wait;

const BALLAST: &str = "e2e/ballast";
const MEBIBYTE: usize = 1 << 20;
/// More than the log's next file, which etcd has allocated, and less than a volume.
const ENOUGH: usize = 200;
const SMALL_QUOTA: u64 = 16 << 20;
const PAUSE: Duration = Duration::from_millis(100);

/// The disk of a follower is full. The member is named with etcd's words, and kept, until there is room again.
pub async fn disk(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let before = Roster::of(&cluster).await?;
    let leads = leader(&cluster).await?;
    let full = cluster.pod_names(3).into_iter().find(|pod| *pod != leads).context("a follower")?;
    let writer = cluster.members().await?.into_iter().find(|it| it.name == leads).context("a leader")?;
    let claim = format!("data-{full}");
    let namespace = cluster.namespace.clone();
    let fill = context.inject(Fault::FillDisk { claim, namespace, leave_bytes: 0 }).await?;
    let is_named = |it: &EtcdCluster| {
        let why = member(it, &full).and_then(|it| it.reason.clone()).unwrap_or_default();
        why.contains("no space left on device")
    };
    let write = async {
        for _ in 0..ENOUGH {
            // Others have room, so what fails is an election.
            let _ = writer.put(BALLAST, vec![b'x'; MEBIBYTE]).await;
            tokio::time::sleep(PAUSE).await;
        }
        std::future::pending::<()>().await;
    };
    let seen = tokio::select! {
        seen = cluster.wait_for("the status names the full disk", is_named) => seen?,
        () = write => bail!("this never ends"),
    };
    context.step(member(&seen, &full).and_then(|it| it.reason.clone()).unwrap_or_default());
    ensure!(holds(&seen, condition::AVAILABLE).is_some(), "it does not serve: {:?}", seen.status);
    history.goes_on(LIMIT).await?;
    before.is_still_that_of(&cluster).await?;

    context.undo(&fill).await?;
    before.returns(&cluster).await?;
    judged(context, history).await
}

/// The history of one key fills the database. Clients can write again without anybody's help, and no member restarts.
pub async fn database(context: &Context) -> Result<()> {
    let more = json!({"options": {"quotaBackendBytes": SMALL_QUOTA}});
    let (cluster, history) = born(context, 3, more).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let (before, pods) = (Roster::of(&cluster).await?, lives(&cluster.pods().await?));
    let writer = cluster.members().await?.into_iter().next().context("a member")?;
    let is_full = async || {
        let put = writer.put(BALLAST, vec![b'x'; MEBIBYTE]).await;
        Ok(put.is_err_and(|error| format!("{error:#}").contains("space exceeded")))
    };
    wait::until("etcd rejects writes", LIMIT, is_full).await?;
    // A settled cluster is observed every half minute, and nothing reports the alarm before.
    let is_disarmed = async || {
        let events = cluster.events().await?;
        Ok(events.iter().any(|it| it.reason.as_deref() == Some(event::ALARM_DISARMED)))
    };
    wait::until("the alarm is disarmed", BACK_OFF_LIMIT, is_disarmed).await?;
    history.goes_on(BACK_OFF_LIMIT).await?;
    cluster.wait_for("it is ready", |it| holds(it, condition::READY).is_some()).await?;
    let alarms = etcdctl(context, &cluster, "kv-0", &["alarm", "list"]).await?;
    ensure!(alarms.trim().is_empty(), "an alarm is active: {alarms}");
    let reasons: Vec<_> = cluster.events().await?.into_iter().filter_map(|it| it.reason).collect();
    for expected in [event::HISTORY_COMPACTED, event::MEMBER_DEFRAGMENTED, event::ALARM_DISARMED] {
        ensure!(reasons.iter().any(|it| it == expected), "no event {expected} in {reasons:?}");
    }
    before.returns(&cluster).await?;
    let now = lives(&cluster.pods().await?);
    ensure!(now == pods, "a member was restarted: {pods:?}, {now:?}");
    judged(context, history).await
}
