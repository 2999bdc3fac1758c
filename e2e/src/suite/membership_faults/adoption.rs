//! A cluster is deleted and its volumes stay; one of the same name takes them over, if it is told to.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::names::{ADOPT_ANNOTATION, reason};
use kube::ResourceExt;
use serde_json::json;

use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::disturbed::refused_for;
use crate::suite::lifecycle::{Identity, asked_for, born, judged, scaled};
use crate::suite::{KEY, VALUE};

/// Three volumes for three members, three for one, and one for three. Clients write until each cluster ends, and go on
/// with the next: what was acknowledged last has to be in the volumes.
pub async fn adopted(context: &Context) -> Result<()> {
    let (mut cluster, history) = born(context, 3, json!({})).await?;
    cluster.members().await?.first().context("a member")?.put(KEY, VALUE).await?;
    for size in [3, 1, 3] {
        let before = Identity::of(&cluster).await?;
        cluster = born_again(context, cluster, size, &before).await?;
    }
    scaled(&cluster, 1).await?;
    judged(context, history).await
}

async fn born_again(context: &Context, former: Operated, size: u8, before: &Identity) -> Result<Operated> {
    let uid = former.object().await?.uid().context("a UID")?;
    former.delete().await?;
    former.wait_until_gone().await?;
    let cluster = asked_for(context, size, json!({})).await?;
    let (_, message) = refused_for(context, &cluster, reason::FOREIGN_VOLUMES).await?;
    let way_out = format!("{ADOPT_ANNOTATION}={uid}");
    ensure!(message.contains(&way_out), "it does not say how to adopt them: {message}");
    cluster.edit(json!({"metadata": {"annotations": {ADOPT_ANNOTATION: uid}}})).await?;
    cluster.wait_until_settled(size).await?;
    cluster.agrees(&Promised::members(size)).await?;
    before.is_still_that_of(&cluster).await?;
    let member = cluster.members().await?.into_iter().next().context("a member")?;
    let value = member.linearizable_read(KEY).await?;
    ensure!(value.as_deref() == Some(VALUE), "the data is lost: {value:?}");
    context.step("the data and the cluster ID are restored");
    Ok(cluster)
}
