//! Edits that cannot be: refused at once, or accepted with a word about what they do not do.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::disturbed::holds;
use crate::suite::lifecycle::{born, judged, scaled};
use crate::wait;

const OTHER_VERSION: &str = "v3.6.16";

pub async fn refused_or_explained(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let before = lives(&cluster.pods().await?);
    let refusals = [
        (json!({"size": 10}), "less than or equal to 9"),
        (json!({"size": -1}), "greater than or equal to 0"),
        (json!({"version": "v3.4.27"}), "out of support"),
        (json!({"version": "3.5.1"}), "corrupt"),
        (json!({"version": "latest"}), "version"),
        (json!({"storage": {"onStop": "Archive"}}), "Archive"),
    ];
    for (change, word) in refusals {
        refused(context, &cluster, change, word).await?;
    }

    let version = cluster.object().await?.spec.version;
    cluster.edit(json!({"spec": {"version": OTHER_VERSION}})).await?;
    let told = |it: &EtcdCluster| not_rolled_out(it).is_some_and(|message| message.contains("spec.version"));
    let seen = cluster.wait_for("it is not ready, because the version is not rolled out", told).await?;
    context.step(not_rolled_out(&seen).unwrap_or_default());
    let shown = seen.status.and_then(|status| status.version);
    ensure!(shown.as_ref() == Some(&version), "VERSION is {shown:?}, and {version} runs");
    cluster.scale(2).await?;
    let seen = cluster.wait_until_settled(2).await?;
    ensure!(not_rolled_out(&seen).is_some(), "it is ready without the edit: {:?}", seen.status);
    for member in cluster.members().await? {
        let runs = member.status().await?.version;
        ensure!(version.ends_with(&runs), "{} runs {runs}, not {version}", member.name);
    }
    cluster.edit(json!({"spec": {"version": version}})).await?;
    cluster.wait_for("it is ready", |it| holds(it, condition::READY).is_some()).await?;
    scaled(&cluster, 1).await?;
    let after = lives(&cluster.pods().await?);
    ensure!(after == before, "a pod was replaced or restarted: {before:?}, {after:?}");
    judged(context, history).await
}

async fn refused(context: &Context, cluster: &Operated, change: Value, word: &str) -> Result<()> {
    let patch = json!({"spec": change}).to_string();
    let edit = ["patch", "etcd", &cluster.name, "--namespace", &cluster.namespace, "--type=merge", "--patch"];
    let said = context.kubectl().ask(&[&edit[..], &[&patch]].concat()).await?;
    ensure!(!said.ok, "{patch} was accepted");
    ensure!(said.err.contains(word), "no word of {word:?} when {patch} is refused: {}", said.err);
    context.step(said.err.lines().last().context("no message")?);
    Ok(())
}

fn not_rolled_out(cluster: &EtcdCluster) -> Option<String> {
    let mut conditions = cluster.status.as_ref()?.conditions.iter();
    let ready = conditions.find(|it| it.type_ == condition::READY && it.status == "False")?;
    (ready.reason == reason::NOT_ROLLED_OUT).then(|| ready.message.clone())
}

/// Which pods there are, and how often each was started anew.
fn lives(pods: &BTreeMap<String, Pod>) -> Vec<(String, Option<String>, i32)> {
    pods.iter().map(|(name, pod)| (name.clone(), pod.metadata.uid.clone(), wait::restarts(pod))).collect()
}
