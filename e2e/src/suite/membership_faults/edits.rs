//! Edits that cannot be are refused at once, and change nothing.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::disturbed::lives;
use crate::suite::lifecycle::{born, judged};

pub async fn refused_at_once(context: &Context) -> Result<()> {
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
