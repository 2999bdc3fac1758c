//! Pods for which there is no room: named in the status, waited for, and given up as soon as nobody wants them.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::{EtcdCluster, Phase};
use etcd_operator_core::names::condition;
use serde_json::json;

use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{Room, holds, member};
use crate::suite::lifecycle::{NAME, asked_for, born, judged, scaled};
use crate::wait;

/// What the scheduler says of a pod that fits nowhere.
const NOWHERE: &str = "nodes are available";

pub async fn taken_back(context: &Context) -> Result<()> {
    let room = Room::new(context);
    room.on(&["n1"]).await?;
    let (cluster, history) = born(context, 1, json!({"podTemplate": room.template(NAME, false)})).await?;
    room.on(&[]).await?;
    cluster.scale(3).await?;
    let named = |it: &EtcdCluster| waits_for_room(it, "kv-1") && waits_for_room(it, "kv-2");
    let seen = cluster.wait_for("the status names both pods", named).await?;
    says_so(context, &seen)?;
    ensure!(cluster.member_list().await?.len() == 1, "a member was added whose pod cannot start");
    history.goes_on(LIMIT).await?;

    scaled(&cluster, 1).await?;
    context.step("reverted the edit");
    room.on(&["n1", "n2", "n3"]).await?;
    scaled(&cluster, 3).await?;
    judged(context, history).await
}

/// There is room for one of two new members.
pub async fn stalls_only_itself(context: &Context) -> Result<()> {
    let room = Room::new(context);
    room.on(&["n1", "n2"]).await?;
    let (cluster, history) = born(context, 1, json!({"podTemplate": room.template(NAME, true)})).await?;
    cluster.scale(3).await?;
    let one_waits = |it: &EtcdCluster| {
        let ready = it.status.as_ref().and_then(|status| status.ready_replicas);
        ready == Some(2) && (waits_for_room(it, "kv-1") != waits_for_room(it, "kv-2"))
    };
    let seen = cluster.wait_for("one of them is a member, the other is named", one_waits).await?;
    says_so(context, &seen)?;
    let voters = cluster.member_list().await?.iter().filter(|member| !member.is_learner).count();
    ensure!(voters == 2, "not two voters: {:?}", cluster.member_list().await?);
    history.goes_on(LIMIT).await?;

    scaled(&cluster, 1).await?;
    context.step("reverted the edit");
    cluster.scale(3).await?;
    cluster.wait_for("one is a member again, the other is named", one_waits).await?;
    room.on(&["n1", "n2", "n3"]).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}

/// The third pod cannot be placed when the cluster is born, and comes later.
pub async fn two_of_three(context: &Context) -> Result<()> {
    let room = Room::new(context);
    room.on(&["n1", "n2"]).await?;
    let cluster = asked_for(context, 3, json!({"podTemplate": room.template(NAME, true)})).await?;
    let serves = |it: &EtcdCluster| {
        holds(it, condition::AVAILABLE).is_some()
            && ["kv-0", "kv-1", "kv-2"].iter().any(|pod| waits_for_room(it, pod))
    };
    let seen = cluster.wait_for("two serve, and the third is named", serves).await?;
    context.step(format!("{:?}", seen.status.and_then(|status| status.phase)));
    let history = context.writers(&cluster).await?;
    let id = cluster.cluster_id().await?;
    room.on(&["n1", "n2", "n3"]).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    ensure!(cluster.cluster_id().await? == id, "another cluster than the one that formed");
    judged(context, history).await
}

/// One of three has room, so that no quorum comes together until the size is made to fit.
pub async fn never_formed(context: &Context) -> Result<()> {
    let room = Room::new(context);
    room.on(&["n1"]).await?;
    let cluster = asked_for(context, 3, json!({"podTemplate": room.template(NAME, true)})).await?;
    let named =
        |it: &EtcdCluster| ["kv-0", "kv-1", "kv-2"].iter().filter(|pod| waits_for_room(it, pod)).count() == 2;
    let seen = cluster.wait_for("two pods are named", named).await?;
    let phase = seen.status.as_ref().and_then(|status| status.phase);
    ensure!(phase == Some(Phase::Creating), "it is {phase:?}");
    wait::until("one pod runs", LIMIT, async || Ok(!cluster.members().await?.is_empty())).await?;
    cluster.scale(1).await?;
    settled_alone(&cluster).await?;
    let history = context.writers(&cluster).await?;
    room.on(&["n1", "n2", "n3"]).await?;
    scaled(&cluster, 3).await?;
    judged(context, history).await
}

async fn settled_alone(cluster: &Operated) -> Result<()> {
    cluster.wait_until_settled(1).await?;
    cluster.agrees(&Promised::members(1)).await
}

fn waits_for_room(cluster: &EtcdCluster, pod: &str) -> bool {
    member(cluster, pod).and_then(|it| it.reason.as_deref()).is_some_and(|why| why.contains(NOWHERE))
}

/// The cluster is at work, serves, and says what it waits for.
fn says_so(context: &Context, cluster: &EtcdCluster) -> Result<()> {
    let reconciling = holds(cluster, condition::RECONCILING).context("it does not say that it waits")?;
    context.step(format!("{}: {}", reconciling.reason, reconciling.message));
    ensure!(reconciling.message.contains(NOWHERE), "it does not say why: {}", reconciling.message);
    ensure!(holds(cluster, condition::AVAILABLE).is_some(), "it does not serve: {:?}", cluster.status);
    Ok(())
}
