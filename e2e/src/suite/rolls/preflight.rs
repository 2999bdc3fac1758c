//! Image and arguments are tried on the nodes of members first: what cannot work stops no member.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{PREFLIGHT_LABEL, condition, reason};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::planned::{FROM, TO};
use super::stopped::{returns_in, reverted};
use super::{form, rolled};
use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::holds;
use crate::suite::lifecycle::{born, judged, judged_without_gap};
use crate::wait;

pub async fn missing_image(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let (before, pods) = (form(&cluster).await?, uids(&cluster).await?);
    let repository = cluster.object().await?.spec.repository;
    cluster.edit(json!({"spec": {"repository": "quay.io/coreos/no-such-etcd"}})).await?;
    stalled(context, &cluster, reason::IMAGE_PULL_FAILED, "no-such-etcd").await?;
    history.goes_on(LIMIT).await?;
    untouched(&cluster, &pods).await?;
    // A pod that is deleted meanwhile returns as it was.
    returns_in(context, &cluster, None, &before).await?;
    reverted(context, &cluster, json!({"spec": {"repository": repository}}), &before).await?;
    none_left(context, &cluster).await?;
    judged(context, history).await
}

pub async fn rejected_argument(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let (before, pods) = (form(&cluster).await?, uids(&cluster).await?);
    let arguments = |arguments: Value| json!({"spec": {"options": {"extraArguments": arguments}}});
    cluster.edit(arguments(json!({"max-txn-ops": "many"}))).await?;
    let words = "invalid value \"many\" for flag -max-txn-ops";
    stalled(context, &cluster, reason::PREFLIGHT_FAILED, words).await?;
    history.goes_on(LIMIT).await?;
    untouched(&cluster, &pods).await?;
    reverted(context, &cluster, arguments(Value::Null), &before).await?;
    none_left(context, &cluster).await?;
    untouched(&cluster, &pods).await?;
    judged_without_gap(context, history).await
}

/// Three members on two nodes.
pub async fn once_on_each_node(context: &Context) -> Result<()> {
    for version in [FROM, TO] {
        testbed::image::ensure_etcd(version).await.context("cannot create the image")?;
    }
    let nodes = Api::<Node>::all(context.client().clone()).list(&Default::default()).await?;
    let two: Vec<String> = nodes.iter().map(ResourceExt::name_any).take(2).collect();
    let on_them = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": two});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [on_them]}],
    }}});
    let spec = json!({"version": FROM, "podTemplate": {"affinity": affinity}});
    let (cluster, history) = born(context, 3, spec).await?;
    let before = form(&cluster).await?;
    let carrying = nodes_of(cluster.pods().await?.values());
    cluster.edit(json!({"spec": {"version": TO}})).await?;
    let each =
        |pods: &BTreeMap<String, Pod>| pods.len() == carrying.len() && nodes_of(pods.values()) == carrying;
    let tried = wait::objects(cluster.api(), selected(&cluster), "each node tries the image", LIMIT, each);
    let tried = tried.await?;
    context.step(format!("{} on {carrying:?}", tried.into_keys().collect::<Vec<_>>().join(", ")));
    rolled(context, &cluster, 3, &before).await?;
    none_left(context, &cluster).await?;
    judged(context, history).await
}

fn nodes_of<'a>(pods: impl Iterator<Item = &'a Pod>) -> BTreeSet<String> {
    pods.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
}

fn selected(cluster: &Operated) -> Config {
    Config::default().labels(&format!("{PREFLIGHT_LABEL}={}", cluster.name))
}

async fn none_left(context: &Context, cluster: &Operated) -> Result<()> {
    let what = "no preflight pod is left";
    wait::objects(cluster.api::<Pod>(), selected(cluster), what, LIMIT, BTreeMap::is_empty).await?;
    context.step(what);
    Ok(())
}

/// The status says why the rollout does not begin.
async fn stalled(context: &Context, cluster: &Operated, reason: &str, words: &str) -> Result<()> {
    let why = |it: &EtcdCluster| {
        let stalled = holds(it, condition::ROLLOUT_STALLED).filter(|it| it.reason == reason)?;
        Some(stalled.message.clone()).filter(|message| message.contains(words))
    };
    let seen = cluster.wait_for(&format!("the rollout is stalled: {reason}"), |it| why(it).is_some()).await?;
    context.step(why(&seen).unwrap_or_default());
    Ok(())
}

async fn uids(cluster: &Operated) -> Result<BTreeMap<String, Option<String>>> {
    Ok(cluster.pods().await?.into_iter().map(|(name, pod)| (name, pod.uid())).collect())
}

/// The same pods, and none of their containers was started again.
async fn untouched(cluster: &Operated, before: &BTreeMap<String, Option<String>>) -> Result<()> {
    let now = uids(cluster).await?;
    ensure!(now == *before, "other pods than before: {now:?}, not {before:?}");
    for (name, pod) in cluster.pods().await? {
        ensure!(wait::restarts(&pod) == 0, "containers of {name} were started again");
    }
    Ok(())
}
