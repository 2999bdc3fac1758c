//! Too few members are left to agree on anything, not even on going.

use anyhow::{Result, ensure};
use etcd_operator_core::names::condition;
use serde_json::json;

use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::disturbed::{cut_off, holds};
use crate::suite::lifecycle::{born, judged};
use crate::suite::pause;
use crate::wait;

/// Deleting goes through, with the volumes as the policy says.
pub async fn deleted(context: &Context) -> Result<()> {
    for (policy, kept) in [("Retain", 3), ("Delete", 0)] {
        let (cluster, history) = born(context, 3, json!({"storage": {"onDelete": policy}})).await?;
        judged(context, history).await?;
        // One stands still, so that it does not even end when it is told to; one cannot be reached.
        context.inject(pause(context, "kv-1")).await?;
        context.inject(cut_off(&cluster, "kv-2")).await?;
        let lost = |it: &_| holds(it, condition::QUORUM_LOST).is_some();
        cluster.wait_for("the quorum is known to be lost", lost).await?;
        cluster.delete().await?;
        cluster.wait_until_gone().await?;
        let left = cluster.claims().await?;
        ensure!(
            left.keys().cloned().collect::<std::collections::BTreeSet<_>>() == cluster.claim_names(kept),
            "{policy}: volumes that are left: {left:?}"
        );
        context.step(format!("deleted without quorum, {policy}: {kept} volume(s) remain"));
        remove_volumes(context, &cluster).await?;
    }
    Ok(())
}

/// So that the next cluster can have the same name.
async fn remove_volumes(context: &Context, cluster: &Operated) -> Result<()> {
    let all = ["delete", "pvc", "--namespace", &cluster.namespace, "--all", "--wait=false"];
    context.kubectl().run(&all).await?;
    let gone = async || Ok(cluster.claims().await?.is_empty());
    wait::until("the volumes are gone", crate::suite::LIMIT, gone).await
}
