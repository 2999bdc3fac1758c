//! Volumes grow and get another class, with clients that write and read all the time.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::fault::Fault;

use super::LIMIT;
use super::disturbed::{holds, member, refused_for};
use super::lifecycle::{Identity, born, judged, judged_without_gap};
use crate::operated::{Operated, Promised, is_settled};
use crate::runner::Context;
use crate::test::{Test, Topology};
use crate::wait;

/// What volumes are created with.
const GI: u64 = 1 << 30;

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field.exclusive("volumes::they_grow_under_load", |c| grow(c).boxed_local()),
        field.shared("volumes::a_growth_that_fails_is_taken_back", |c| taken_back(c).boxed_local()),
        field.shared("volumes::a_class_that_cannot_expand_is_reported", |c| rejected(c).boxed_local()),
        field.exclusive("volumes::another_class_replaces_members", |c| moved(c).boxed_local()),
    ]
}

async fn grow(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let (pods, identity) = (uids(&cluster).await?, Identity::of(&cluster).await?);
    cluster.edit(json!({"spec": {"storage": {"size": "2Gi"}}})).await?;
    ready(&cluster, 3).await?;
    have(context, &cluster, "2Gi", "standard").await?;
    for (name, free) in free_bytes(context, &cluster).await? {
        ensure!(free > GI, "{name} has {free} bytes left");
    }
    ensure!(uids(&cluster).await? == pods, "pods were restarted");
    let template = template(&cluster).await?;
    ensure!(template.as_deref() == Some("2Gi"), "new volumes would have {template:?}");
    identity.is_still_that_of(&cluster).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged_without_gap(context, history).await
}

/// The storage of one volume fails; nothing else does.
async fn taken_back(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let pods = uids(&cluster).await?;
    let (claim, namespace) = ("data-kv-1".to_owned(), context.namespace.clone());
    let fault = context.inject(Fault::FailGrowth { claim, namespace }).await?;
    cluster.edit(json!({"spec": {"storage": {"size": "3Gi"}}})).await?;
    let fails = |it: &EtcdCluster| {
        holds(it, condition::VOLUMES_DIFFER).is_some_and(|it| it.reason == reason::VOLUME_RESIZE_FAILED)
    };
    let seen = cluster.wait_for("the status reports the growth that failed", fails).await?;
    let message = &holds(&seen, condition::VOLUMES_DIFFER).context("it differs")?.message;
    ensure!(message.contains("data-kv-1") && message.contains("set spec.storage.size back"), "{message}");
    context.step(message.clone());
    cluster.edit(json!({"spec": {"storage": {"size": "1Gi"}}})).await?;
    let (_, message) = refused_for(context, &cluster, reason::VOLUMES_CANNOT_SHRINK).await?;
    ensure!(message.contains("data-kv-0") && !message.contains("data-kv-1"), "{message}");
    // What has grown stays, and what has not needs no longer to.
    let lowered = async || Ok(requests(&cluster).await?.get("data-kv-1").is_some_and(|it| it == "1025Mi"));
    wait::until("the request is lowered", LIMIT, lowered).await?;
    cluster.edit(json!({"spec": {"storage": {"size": "3Gi"}}})).await?;
    context.undo(&fault).await?;
    ready(&cluster, 3).await?;
    have(context, &cluster, "3Gi", "standard").await?;
    ensure!(uids(&cluster).await? == pods, "pods were restarted");
    judged(context, history).await
}

async fn rejected(context: &Context) -> Result<()> {
    let fixed = json!({"storage": {"storageClassName": "standard-fixed"}});
    let (cluster, history) = born(context, 1, fixed).await?;
    cluster.edit(json!({"spec": {"storage": {"size": "2Gi"}}})).await?;
    let fails = |it: &EtcdCluster| {
        holds(it, condition::VOLUMES_DIFFER).is_some_and(|it| it.reason == reason::VOLUME_RESIZE_FAILED)
    };
    let seen = cluster.wait_for("the status has the words of the API server", fails).await?;
    context.step(holds(&seen, condition::VOLUMES_DIFFER).context("it differs")?.message.clone());
    // Everything else goes on.
    cluster.scale(3).await?;
    let three =
        |it: &EtcdCluster| ["kv-1", "kv-2"].iter().all(|pod| member(it, pod).is_some_and(|it| it.ready));
    cluster.wait_for("new members serve", three).await?;
    cluster.edit(json!({"spec": {"storage": {"storageClassName": "standard"}}})).await?;
    ready(&cluster, 3).await?;
    have(context, &cluster, "2Gi", "standard").await?;
    judged(context, history).await
}

async fn moved(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let (pods, identity) = (uids(&cluster).await?, Identity::of(&cluster).await?);
    cluster.edit(json!({"spec": {"storage": {"storageClassName": "standard-fixed"}}})).await?;
    ready(&cluster, 3).await?;
    have(context, &cluster, "1Gi", "standard-fixed").await?;
    let now = uids(&cluster).await?;
    ensure!(now.iter().all(|(pod, uid)| pods.get(pod) != Some(uid)), "a member was not replaced");
    identity.is_still_that_of(&cluster).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged_without_gap(context, history).await
}

async fn ready(cluster: &Operated, size: u8) -> Result<()> {
    let done = |it: &EtcdCluster| is_settled(it, size) && holds(it, condition::READY).is_some();
    cluster.wait_for(&format!("{} is ready", cluster.name), done).await.map(drop)
}

async fn uids(cluster: &Operated) -> Result<BTreeMap<String, Option<String>>> {
    Ok(cluster.pods().await?.into_iter().map(|(name, pod)| (name, pod.uid())).collect())
}

async fn requests(cluster: &Operated) -> Result<BTreeMap<String, String>> {
    let requested = |claim: PersistentVolumeClaim| {
        claim.spec?.resources?.requests?.get("storage").map(|size| size.0.clone())
    };
    let claims = cluster.claims().await?.into_iter();
    Ok(claims.map(|(name, claim)| (name, requested(claim).unwrap_or_default())).collect())
}

/// Every volume really has this size and class.
async fn have(context: &Context, cluster: &Operated, size: &str, class: &str) -> Result<()> {
    for (name, claim) in cluster.claims().await? {
        let capacity = claim.status.as_ref().and_then(|it| it.capacity.as_ref()?.get("storage").cloned());
        ensure!(capacity.as_ref().is_some_and(|it| it.0 == size), "{name} has {capacity:?}");
        let there = claim.spec.and_then(|spec| spec.storage_class_name);
        ensure!(there.as_deref() == Some(class), "{name} has class {there:?}");
    }
    context.step(format!("every volume has {size} and class {class}"));
    Ok(())
}

/// In the file system of each volume.
async fn free_bytes(context: &Context, cluster: &Operated) -> Result<BTreeMap<String, u64>> {
    let mut free = BTreeMap::new();
    for (name, claim) in cluster.claims().await? {
        let volume = claim.spec.and_then(|spec| spec.volume_name).context("a claim without a volume")?;
        let volume = Api::<PersistentVolume>::all(context.client().clone()).get(&volume).await?;
        let path = volume.spec.and_then(|it| Some(it.local?.path)).context("not a volume of the testbed")?;
        let state = rustix::fs::statvfs(path).with_context(|| format!("cannot read the size of {name}"))?;
        free.insert(name, state.f_bavail.saturating_mul(state.f_frsize));
    }
    Ok(free)
}

async fn template(cluster: &Operated) -> Result<Option<String>> {
    let set = cluster.api::<StatefulSet>().get(&cluster.name).await?;
    let claims = set.spec.and_then(|spec| spec.volume_claim_templates).unwrap_or_default();
    let claim = claims.into_iter().next().and_then(|claim| claim.spec?.resources?.requests);
    Ok(claim.and_then(|requests| requests.get("storage").map(|size| size.0.clone())))
}
