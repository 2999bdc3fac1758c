//! Members that somebody removes or adds by hand. A request of an operator that ended long ago would look the same.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::event;
use etcd_operator_core::observed::{MemberId, Ordinal};
use serde_json::json;

use crate::operated::{Operated, Promised, is_settled};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{
    Roster, becomes_whole, etcdctl, leader, member, nobody_began_anew, scaling_begins,
};
use crate::suite::lifecycle::{Identity, born, judged};
use crate::wait;

/// Once a follower, once the leader. etcd ends with code 0 in such a pod, and its volume must not be used again.
pub async fn removed(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let before = Identity::of(&cluster).await?;
    let leads = leader(&cluster).await?;
    let follower = cluster.pod_names(3).into_iter().find(|pod| *pod != leads).context("a follower")?;
    for pod in [follower, leads] {
        leaves_and_joins(context, &cluster, &pod, &before).await?;
    }
    judged(context, history).await
}

/// Of a cluster of three.
pub(super) async fn leaves_and_joins(
    context: &Context,
    cluster: &Operated,
    pod: &str,
    before: &Identity,
) -> Result<()> {
    let (id, volume) = (id_of(cluster, pod).await?, volume_of(cluster, pod).await?);
    let by = cluster.pod_names(3).into_iter().find(|it| it != pod).context("another member")?;
    by_hand(context, cluster, &by, &["member", "remove", &format!("{id:x}")]).await?;
    let is_replaced = |it: &EtcdCluster| {
        let now = member(it, pod).and_then(|it| it.id.clone());
        is_settled(it, 3) && now.is_some_and(|now| now != MemberId(id).to_string())
    };
    cluster.wait_for(&format!("{pod} is a member again"), is_replaced).await?;
    becomes_whole(cluster, 3).await?;
    before.is_still_that_of(cluster).await?;
    ensure!(volume_of(cluster, pod).await? != volume, "{pod} has the volume of the removed member");
    nobody_began_anew(context, cluster, &[pod]).await?;
    context.step(format!("{pod} joined again on a new volume"));
    Ok(())
}

/// For the next pod, which the size does not ask for: as a learner, and as a voter, with which quorum needs three of four.
pub async fn added(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let before = Roster::of(&cluster).await?;
    let scheme = cluster.transport().await?.peers.scheme();
    let url = format!("--peer-urls={}", cluster.names().peer_url(scheme, Ordinal(3)));
    for role in [&["--learner"][..], &[]] {
        let words = [&["member", "add", "kv-3", &url][..], role].concat();
        by_hand(context, &cluster, "kv-0", &words).await?;
        let removed = async || Ok(cluster.member_list().await?.len() == 3);
        wait::until("the member is removed", LIMIT, removed).await?;
        before.returns(&cluster).await?;
        history.goes_on(LIMIT).await?;
    }
    let reasons: Vec<_> = cluster.events().await?.into_iter().filter_map(|it| it.reason).collect();
    ensure!(reasons.iter().any(|it| it == event::MEMBER_REMOVED), "no event reports it: {reasons:?}");
    judged(context, history).await
}

/// The first of two that join is removed before it votes, or right after.
pub async fn removed_while_it_joins(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let before = Identity::of(&cluster).await?;
    scaling_begins(context, &cluster, 3).await?;
    let joins =
        cluster.member_list().await?.into_iter().find(|it| it.name != "kv-0").context("nobody joins")?;
    context.step(format!("member {:x} joins, as a learner: {}", joins.id, joins.is_learner));
    by_hand(context, &cluster, "kv-0", &["member", "remove", &format!("{:x}", joins.id)]).await?;
    becomes_whole(&cluster, 3).await?;
    before.is_still_that_of(&cluster).await?;
    let listed = cluster.member_list().await?;
    ensure!(listed.iter().all(|it| it.id != joins.id), "it is listed again: {listed:?}");
    judged(context, history).await
}

/// etcd refuses it for some seconds after members have connected. The response can be lost with the leader.
async fn by_hand(context: &Context, cluster: &Operated, pod: &str, words: &[&str]) -> Result<()> {
    let done = async || match etcdctl(context, cluster, pod, words).await {
        Ok(_) => Ok(true),
        Err(error) if format!("{error:#}").contains("member not found") => Ok(true),
        Err(error) => Err(error),
    };
    wait::until(&format!("by hand: etcdctl {}", words.join(" ")), LIMIT, done).await?;
    context.step(format!("by hand: etcdctl {}", words.join(" ")));
    Ok(())
}

async fn id_of(cluster: &Operated, pod: &str) -> Result<u64> {
    let listed = cluster.member_list().await?.into_iter().find(|member| member.name == pod);
    Ok(listed.with_context(|| format!("{pod} is no member"))?.id)
}

async fn volume_of(cluster: &Operated, pod: &str) -> Result<Option<String>> {
    let claims = cluster.claims().await?;
    Ok(claims.get(&format!("data-{pod}")).and_then(|claim| claim.metadata.uid.clone()))
}
