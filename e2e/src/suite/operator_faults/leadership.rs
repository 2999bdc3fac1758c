//! Who leads: one that is killed, one that ends in good order, and one that stands still and comes back.

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::fault::Fault;

use crate::install::{DEPLOYMENT, NAMESPACE, Operator};
use crate::operated::{LIMIT, Operated, Promised};
use crate::runner::Context;
use crate::suite::disturbed::scaling_begins;
use crate::suite::elected::{CONTAINER, kill_operator, leader, next_leader};
use crate::suite::lifecycle::{born, judged, scaled};
use crate::wait;

/// The kubelet starts it again, and nobody told anybody that it was gone.
pub async fn killed_in_its_pod(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    killed_while_scaling(context, &cluster).await?;
    judged(context, history).await
}

/// Either of them goes on when the Lease is over: the one that watched, or the one that came back.
pub async fn one_of_two_is_killed(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let operator = two_operators(context).await?;
    killed_while_scaling(context, &cluster).await?;
    operator.start().await?;
    judged(context, history).await
}

async fn killed_while_scaling(context: &Context, cluster: &Operated) -> Result<()> {
    for size in [3, 1] {
        scaling_begins(context, cluster, size).await?;
        kill_operator(context).await?;
        cluster.wait_until_settled(size).await?;
        cluster.agrees(&Promised::members(size)).await?;
    }
    Ok(())
}

/// A rolling update or a drain: its pod is deleted, and the other operator goes on at once.
pub async fn handed_over(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let operator = two_operators(context).await?;
    for size in [3, 1] {
        let former = leader(context).await?;
        scaling_begins(context, &cluster, size).await?;
        context.kubectl().run(&["delete", "pod", &former, "--namespace", NAMESPACE, "--wait=false"]).await?;
        context.step(format!("terminating {former}"));
        let next = next_leader(context, &former).await?;
        context.step(format!("{next} leads"));
        cluster.wait_until_settled(size).await?;
        cluster.agrees(&Promised::members(size)).await?;
        operator.ready().await?;
    }
    operator.start().await?;
    judged(context, history).await
}

/// Stopped in the middle of a scaling, it does not know that time passes. The other takes over when the Lease is over;
/// the first one notices that before it does anything else.
pub async fn stood_still(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let operator = two_operators(context).await?;
    let former = leader(context).await?;
    scaling_begins(context, &cluster, 3).await?;
    let fault = Fault::PauseProcess {
        pod: former.clone(),
        namespace: NAMESPACE.into(),
        container: Some(CONTAINER.into()),
        process: None,
    };
    let pause = context.inject(fault).await?;
    let next = next_leader(context, &former).await?;
    context.step(format!("{next} leads"));
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    // It wakes up while the other is at work, with plans that are long out of date.
    scaling_begins(context, &cluster, 1).await?;
    context.undo(&pause).await?;
    let gave_up = async || {
        let said = context.kubectl().run(&["logs", "--namespace", NAMESPACE, &former]).await?;
        Ok(said.contains("lost leadership"))
    };
    wait::until("the previous leader reports that it lost leadership", LIMIT, gave_up).await?;
    cluster.wait_until_settled(1).await?;
    cluster.agrees(&Promised::members(1)).await?;
    ensure!(leader(context).await? == next, "the previous leader leads again");
    scaled(&cluster, 3).await?;
    operator.start().await?;
    judged(context, history).await
}

/// One acts, the other watches. Whoever asks for the operator next gets back the one that is usual.
async fn two_operators(context: &Context) -> Result<&Operator> {
    let operator = context.operator().await?;
    let deployment = format!("deployment/{DEPLOYMENT}");
    context.kubectl().run(&["scale", &deployment, "--namespace", NAMESPACE, "--replicas=2"]).await?;
    operator.ready().await?;
    context.step(format!("two operators; {} leads", leader(context).await?));
    Ok(operator)
}
