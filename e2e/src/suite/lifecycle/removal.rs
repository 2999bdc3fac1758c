//! Deleted, with and without its volumes, and born again under the same name.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::Phase;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use serde_json::json;

use super::{NAME, asked_for, born, judged, stalled};
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::{KEY, LIMIT, VALUE};
use crate::wait;

/// Kept volumes stay as they are and stand in the way of another cluster, loudly, until somebody removes them.
pub async fn recreated(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    judged(context, history).await?;
    let former = cluster.cluster_id().await?;
    cluster.members().await?.first().context("a member")?.put(KEY, VALUE).await?;
    cluster.delete().await?;
    cluster.wait_until_gone().await?;
    let kept = cluster.claims().await?;
    ensure!(kept.keys().cloned().collect::<BTreeSet<_>>() == cluster.claim_names(1), "kept: {kept:?}");

    let cluster = asked_for(context, 1, json!({})).await?;
    let refused = cluster.wait_for("foreign volumes are refused", |it| stalled(it).is_some()).await?;
    let stalled = stalled(&refused).context("it stalls")?;
    context.step(format!("{}: {}", stalled.reason, stalled.message));
    for way in cluster.claim_names(1).iter().map(String::as_str).chain(["delete", "adopt"]) {
        ensure!(stalled.message.contains(way), "no word of {way:?}: {}", stalled.message);
    }
    let phase = refused.status.and_then(|status| status.phase);
    ensure!(phase == Some(Phase::Failed), "a cluster that cannot begin is {phase:?}");
    let warned =
        cluster.events().await?.into_iter().any(|event| event.reason.as_ref() == Some(&stalled.reason));
    ensure!(warned, "no event tells of it");
    let untouched = cluster.claims().await?;
    let uids = |claims: &BTreeMap<String, PersistentVolumeClaim>| -> Vec<_> {
        claims.values().map(|claim| claim.metadata.uid.clone()).collect()
    };
    ensure!(uids(&untouched) == uids(&kept), "the kept volumes were touched");
    ensure!(cluster.pods().await?.is_empty(), "a pod was made on a foreign volume");

    let claims = cluster.api::<PersistentVolumeClaim>();
    for claim in kept.keys() {
        claims.delete(claim, &DeleteParams::background()).await?;
    }
    cluster.wait_until_settled(1).await?;
    cluster.agrees(&Promised::members(1)).await?;
    let member = cluster.members().await?.into_iter().next().context("a member")?;
    let value = member.linearizable_read(KEY).await?;
    ensure!(value.is_none() && cluster.cluster_id().await? != former, "not a new cluster: {value:?}");
    Ok(())
}

/// Nothing is left, not even a volume.
pub async fn with_volumes(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({"storage": {"onDelete": "Delete"}})).await?;
    judged(context, history).await?;
    cluster.delete().await?;
    cluster.wait_until_gone().await?;
    ensure!(
        cluster.claims().await?.is_empty(),
        "volumes outlived the cluster: {:?}",
        cluster.claims().await?
    );
    nothing_else_is_left(&cluster).await?;
    // The same name can be used again at once.
    let (cluster, history) = born(context, 1, json!({})).await?;
    ensure!(cluster.name == NAME, "the same name");
    judged(context, history).await
}

/// What the garbage collector removes, it removes in its own time.
async fn nothing_else_is_left(cluster: &Operated) -> Result<()> {
    let nothing = async || {
        Ok(cluster.labelled::<Service>().await?.is_empty()
            && cluster.labelled::<ConfigMap>().await?.is_empty()
            && cluster.labelled::<StatefulSet>().await?.is_empty()
            && cluster.labelled::<PodDisruptionBudget>().await?.is_empty())
    };
    wait::until("nothing of the cluster is left", LIMIT, nothing).await
}
