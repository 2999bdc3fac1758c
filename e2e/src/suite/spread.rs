//! Members stay spread over zones and nodes, and the status reports when they share one although they need not.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use super::disturbed::leader;
use super::lifecycle::{born, judged};
use crate::install;
use crate::operated::Operated;
use crate::runner::Context;
use crate::test::{Test, Topology};

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field.exclusive("spread::members_stay_in_their_zones_when_they_restart_or_are_replaced", |c| {
            allowed_to_read_nodes(c, stays(c).boxed_local()).boxed_local()
        }),
        field.exclusive("spread::members_that_share_a_node_are_named_with_the_way_out", |c| {
            allowed_to_read_nodes(c, heals(c).boxed_local()).boxed_local()
        }),
    ]
}

/// Takes back what the test grants, and starts the operator anew: it would notice in the middle of a later test.
async fn allowed_to_read_nodes(context: &Context, test: impl Future<Output = Result<()>>) -> Result<()> {
    let outcome = test.await;
    let nodes: Vec<_> = context.bed().nodes().iter().map(|node| node.name()).collect();
    let uncordon: Vec<_> = ["uncordon"].into_iter().chain(nodes.iter().map(String::as_str)).collect();
    context.kubectl().run(&uncordon).await?;
    context.kubectl().run(&["delete", "-k", &rights()?, "--ignore-not-found"]).await?;
    let operator = context.operator().await?;
    operator.stop().await?;
    operator.start().await?;
    outcome
}

fn rights() -> Result<String> {
    Ok(install::config()?.join("nodes").display().to_string())
}

/// As the status asks for.
async fn allow(context: &Context, cluster: &Operated) -> Result<()> {
    let unknown = reported(context, cluster, "Unknown", reason::NODES_NOT_READABLE).await?;
    ensure!(unknown.contains("kubectl apply --server-side -k config/nodes"), "no way out in {unknown:?}");
    context.kubectl().run(&["apply", "--server-side", "-k", &rights()?]).await.map(drop)
}

/// Waits until the status reports this about the spread of the members, and returns its words.
async fn reported(context: &Context, cluster: &Operated, value: &str, reason: &str) -> Result<String> {
    let is = |it: &&Condition| (it.status.as_str(), it.reason.as_str()) == (value, reason);
    let seen = cluster.wait_for(&format!("{value} {reason}"), |it| spread(it).filter(is).is_some()).await?;
    let message = spread(&seen).context("it was just seen")?.message.clone();
    context.step(format!("{} {value}: {message}", condition::MEMBERS_SPREAD));
    Ok(message)
}

fn spread(cluster: &EtcdCluster) -> Option<&Condition> {
    cluster.status.as_ref()?.conditions.iter().find(|it| it.type_ == condition::MEMBERS_SPREAD)
}

async fn nodes(cluster: &Operated) -> Result<BTreeMap<String, String>> {
    let pods = cluster.pods().await?.into_iter();
    pods.map(|(name, pod)| {
        let node = pod.spec.and_then(|spec| spec.node_name);
        Ok((name.clone(), node.with_context(|| format!("{name} is on no node"))?))
    })
    .collect()
}

/// Every node is a zone of its own.
async fn are_spread(context: &Context, cluster: &Operated) -> Result<()> {
    reported(context, cluster, "True", reason::SPREAD_EVENLY).await?;
    let nodes = nodes(cluster).await?;
    let mut different: Vec<_> = nodes.values().collect();
    different.sort();
    different.dedup();
    ensure!(different.len() == 3, "members share a node: {nodes:?}");
    Ok(())
}

/// Replaces the member with this ID, and waits until another one is in its place.
async fn replaced(cluster: &Operated, id: &str) -> Result<()> {
    let without = |it: &EtcdCluster| {
        let status = it.status.as_ref();
        status.is_some_and(|status| status.members.iter().all(|member| member.id.as_deref() != Some(id)))
    };
    cluster.wait_for(&format!("member {id} is removed"), without).await?;
    cluster.wait_until_settled(3).await.map(drop)
}

async fn stays(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    allow(context, &cluster).await?;
    are_spread(context, &cluster).await?;
    cluster.edit(json!({"spec": {"resources": {"requests": {"memory": "48Mi"}}}})).await?;
    let under_way = |it: &EtcdCluster| {
        let mut conditions = it.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|it| it.type_ == condition::READY && it.reason == reason::ROLLING_OUT)
    };
    cluster.wait_for("the rollout begins", under_way).await?;
    cluster.wait_until_settled(3).await?;
    are_spread(context, &cluster).await?;
    let leads = leader(&cluster).await?;
    let members = cluster.status().await?.members;
    let follower = members.iter().find(|it| it.name.as_deref() != Some(&leads)).context("no follower")?;
    let id = follower.id.clone().context("it has no ID")?;
    cluster.edit(json!({"metadata": {"annotations": {"etcd.etcd.io/replace-member": id}}})).await?;
    replaced(&cluster, &id).await?;
    are_spread(context, &cluster).await?;
    judged(context, history).await
}

/// Volumes stay on their nodes, so a restart would not help: a replacement does.
async fn heals(context: &Context) -> Result<()> {
    context.kubectl().run(&["cordon", "n3"]).await?;
    let (cluster, history) = born(context, 3, json!({})).await?;
    allow(context, &cluster).await?;
    reported(context, &cluster, "True", reason::TOO_FEW_DOMAINS).await?;
    context.kubectl().run(&["uncordon", "n3"]).await?;
    let message = reported(context, &cluster, "False", reason::SHARED_DOMAIN).await?;
    let (_, command) = message.split_once(": kubectl ").context("no command")?;
    let words: Vec<_> = command.split_whitespace().collect();
    context.kubectl().run(&words).await?;
    let (_, id) = command.split_once("replace-member=").context("no member")?;
    let id = id.split_whitespace().next().context("no member")?;
    replaced(&cluster, id).await?;
    are_spread(context, &cluster).await?;
    judged(context, history).await
}
