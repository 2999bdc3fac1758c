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

/// Two of three volumes are lost for good. One member continues with consent that follows the loss, and with no other.
pub async fn recovered(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    judged(context, history).await?;
    let put = [
        "exec",
        "--namespace",
        &cluster.namespace,
        "kv-1",
        "-c",
        "etcd",
        "--",
        "etcdctl",
        "put",
        "key",
        "kept",
    ];
    context.kubectl().run(&put).await?;
    let id = cluster.status().await?.cluster_id;
    let consent = json!({"spec": {"recovery": {"acceptDataLoss": {"clusterID": id}}}});
    // Before the loss it has no effect, and it does not wait for one.
    cluster.edit(consent.clone()).await?;
    let volumes =
        ["delete", "pvc", "--namespace", &cluster.namespace, "--wait=false", "data-kv-0", "data-kv-2"];
    context.kubectl().run(&volumes).await?;
    let pods = ["delete", "pod", "--namespace", &cluster.namespace, "--wait=false", "kv-0", "kv-2"];
    context.kubectl().run(&pods).await?;
    let is_refused = |it: &_| {
        holds(it, condition::STALLED).is_some_and(|it| it.message.contains("acceptDataLoss has no effect"))
    };
    cluster.wait_for("the early consent is refused", is_refused).await?;
    cluster.edit(json!({"spec": {"recovery": null}})).await?;
    let is_offered = |it: &_| {
        holds(it, condition::QUORUM_LOST).is_some_and(|it| it.message.contains("kv-1 has the most data"))
    };
    cluster.wait_for("the consent to give is reported", is_offered).await?;
    cluster.edit(consent).await?;
    cluster.wait_until_settled(3).await?;
    let status = cluster.status().await?;
    ensure!(status.incarnation.is_some() && status.cluster_id == id, "{status:?}");
    for pod in ["kv-0", "kv-1", "kv-2"] {
        let get =
            ["exec", "--namespace", &cluster.namespace, pod, "-c", "etcd", "--", "etcdctl", "get", "key"];
        let found = context.kubectl().run(&get).await?;
        ensure!(found.contains("kept"), "{pod}: {found}");
    }
    context.step("three voters with the data of the survivor");
    Ok(())
}

/// So that the next cluster can have the same name.
async fn remove_volumes(context: &Context, cluster: &Operated) -> Result<()> {
    let all = ["delete", "pvc", "--namespace", &cluster.namespace, "--all", "--wait=false"];
    context.kubectl().run(&all).await?;
    let gone = async || Ok(cluster.claims().await?.is_empty());
    wait::until("the volumes are gone", crate::suite::LIMIT, gone).await
}
