//! The operator as it is shipped panics in every round of one cluster: others do not notice, and neither does its pod.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, reason};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use crate::install::{DEPLOYMENT, NAMESPACE, Operator};
use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::lifecycle::{born, judged, scaled};

const OTHER: &str = "other";
/// Of the operator's own process: NAMESPACE/NAME of the cluster whose rounds panic.
const VARIABLE: &str = "ETCD_OPERATOR_PLANT_PANIC";

pub async fn in_one_cluster(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let other = context.operated(OTHER, json!({"size": 1, "storage": {"size": "1Gi"}})).await?;
    other.wait_until_settled(1).await?;
    let others_history = context.writers(&other).await?;

    let operator = context.operator().await?;
    plant(context, operator, &format!("{}={}/{}", VARIABLE, cluster.namespace, cluster.name)).await?;
    let before = only_pod(operator).await?;
    let reported = cluster.wait_for("the panic is reported", is_reported).await?;
    let ready = find_ready(&reported).context("Ready")?;
    context.step(format!("{}: {}", ready.reason, ready.message));
    let warned = |reason: Option<&str>| reason == Some(reason::WORKER_PANICKED);
    let events = cluster.events().await?;
    ensure!(events.iter().any(|it| warned(it.reason.as_deref())), "no event reports it: {events:?}");

    scaled(&other, 3).await?;
    others_history.goes_on(LIMIT).await?;
    judged(context, others_history).await?;
    history.goes_on(LIMIT).await?;
    ensure!(is_reported(&cluster.object().await?), "the worker of {} did not go on panicking", cluster.name);
    let after = only_pod(operator).await?;
    ensure!(
        restarts(&after) == 0 && after.metadata.uid == before.metadata.uid,
        "the operator restarted: {after:?}"
    );
    context.step("meanwhile the other cluster was scaled out, and the operator did not restart");

    plant(context, operator, &format!("{}-", VARIABLE)).await?;
    cluster.wait_for("a good round overwrites the status", |it| !is_reported(it)).await?;
    cluster.wait_until_settled(1).await?;
    cluster.agrees(&Promised::members(1)).await?;
    judged(context, history).await
}

/// Sets or unsets the variable of the operator's own process, and waits until the pods that have the former value are
/// gone.
async fn plant(context: &Context, operator: &Operator, assignment: &str) -> Result<()> {
    let deployment = format!("deployment/{DEPLOYMENT}");
    context.kubectl().run(&["set", "env", &deployment, "--namespace", NAMESPACE, assignment]).await?;
    operator.ready().await?;
    context.step(format!("the operator runs with {assignment}"));
    Ok(())
}

async fn only_pod(operator: &Operator) -> Result<Pod> {
    let mut pods = operator.ready_pods().await?;
    ensure!(pods.len() == 1, "not one operator: {}", pods.len());
    pods.pop().context("no operator")
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

fn find_ready(cluster: &EtcdCluster) -> Option<&Condition> {
    cluster.status.as_ref()?.conditions.iter().find(|it| it.type_ == condition::READY)
}

fn is_reported(cluster: &EtcdCluster) -> bool {
    find_ready(cluster).is_some_and(|it| it.status == "Unknown" && it.reason == reason::WORKER_PANICKED)
}
