//! Every line of etcd that is supported, and one that is older than the probes of today.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::observed::Ordinal;
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::json;

use super::{NAME, asked_for, born, judged, scaled as scaled_to};
use crate::history::Endpoints;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::wait;

const OLD: &str = "v3.5.9";
/// Several times as long as the readiness probe takes to judge.
const SOME_PROBES: Duration = Duration::from_secs(10);

pub async fn scaled(context: &Context, version: &str) -> Result<()> {
    testbed::image::ensure_etcd(version).await.context("cannot create the image")?;
    let (cluster, history) = born(context, 1, json!({"version": version})).await?;
    let oracle = cluster.status_oracle();
    runs(&cluster, version).await?;
    scaled_to(&cluster, 3).await?;
    runs(&cluster, version).await?;
    scaled_to(&cluster, 1).await?;
    oracle.verdict()?;
    judged(context, history).await
}

/// It has neither `/livez` nor `/readyz`.
pub async fn old(context: &Context) -> Result<()> {
    scaled(context, OLD).await?;
    let cluster = Operated::existing(context.client(), &context.namespace, NAME, context.progress);
    cluster.edit(json!({"spec": {"storage": {"onDelete": "Delete"}}})).await?;
    cluster.delete().await?;
    cluster.wait_until_gone().await?;
    learner(context, OLD).await
}

/// While the operator only watches, a learner is added by hand: clients are never sent to it. Then the operator takes
/// it up as its own half-done work.
pub async fn learner(context: &Context, version: &str) -> Result<()> {
    let cluster = asked_for(context, 1, json!({"version": version})).await?;
    cluster.wait_until_settled(1).await?;
    cluster.agrees(&Promised::members(1)).await?;
    cluster.edit(json!({"spec": {"paused": true, "size": 2}})).await?;
    add_learner(context, &cluster).await?;
    let learner = cluster.members().await?.into_iter().find(|member| member.name == "kv-1");
    let learner = learner.context("the learner's pod")?;
    wait::until("the learner has started", LIMIT, async || Ok(learner.status().await?.is_learner)).await?;
    context.step("a learner runs");
    let endpoints = Endpoints::of_cluster(context.client().clone(), &context.namespace, NAME);
    wait::until("clients have an endpoint", LIMIT, async || Ok(!endpoints.now().is_empty())).await?;
    let seen = async {
        while !endpoints.now().contains(&learner.address) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let sent = tokio::time::timeout(SOME_PROBES, seen).await;
    ensure!(sent.is_err(), "clients are sent to a learner");
    ensure!(learner.status().await?.is_learner, "it was promoted while the operator was paused");

    cluster.edit(json!({"spec": {"paused": false}})).await?;
    cluster.wait_until_settled(2).await?;
    cluster.agrees(&Promised::members(2)).await
}

async fn add_learner(context: &Context, cluster: &Operated) -> Result<()> {
    let kubectl = context.kubectl();
    let within = ["--namespace", cluster.namespace.as_str()];
    kubectl.run(&[&within[..], &["scale", "statefulset", NAME, "--replicas=2"]].concat()).await?;
    let has_address = |set: &StatefulSet| set.status.as_ref().is_some_and(|status| status.replicas == 2);
    wait::present(cluster.api::<StatefulSet>(), NAME, "a second pod is there", LIMIT, has_address).await?;
    wait::until("the second pod has an address", LIMIT, async || Ok(cluster.members().await?.len() == 2))
        .await?;
    let url = cluster.names().peer_url(cluster.transport().await?.peers.scheme(), Ordinal(1));
    let add = ["exec", "kv-0", "-c", "etcd", "--", "etcdctl", "member", "add", "kv-1", "--learner"];
    let url = format!("--peer-urls={url}");
    kubectl.run(&[&within[..], &add, &[&url]].concat()).await.map(drop)
}

async fn runs(cluster: &Operated, version: &str) -> Result<()> {
    for member in cluster.members().await? {
        let status = member.status().await?;
        ensure!(format!("v{}", status.version) == version, "{} runs {}", member.name, status.version);
    }
    Ok(())
}
