//! Images come from this machine alone.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;

use super::LIMIT;
use crate::runner::Context;
use crate::tools::{IMAGE, Spec};
use crate::wait;

pub async fn unknown(context: &Context) -> Result<()> {
    let pod = Spec::named("unknown").image("registry.invalid/nobody/nothing:v1", "IfNotPresent").pod()?;
    context.pods().create(&PostParams::default(), &pod).await?;
    let refused = |pod: &Pod| waiting(pod).is_some_and(|(reason, _)| reason == "ImagePullBackOff");
    wait::present(context.pods(), "unknown", "the pull was given up for now", LIMIT, refused).await?;
    // A plain "not found" is our registry's answer. Had the node gone elsewhere, the complaint would be about
    // a name that does not resolve or a host that does not answer.
    let kubectl = context.kubectl();
    let events = kubectl
        .run(&["get", "events", "--namespace", &context.namespace, "--output=jsonpath={.items[*].message}"])
        .await?;
    ensure!(events.contains("not found"), "not our registry's answer: {events}");
    for elsewhere in ["no such host", "dial tcp", "i/o timeout", "lookup "] {
        ensure!(!events.contains(elsewhere), "the node asked another machine: {events}");
    }
    Ok(())
}

pub async fn pulled_always(context: &Context) -> Result<()> {
    let spec = Spec::named("always").image(IMAGE, "Always");
    let tools = spec.start(context.client(), &context.kubectl(), &context.namespace).await?;
    tools.run(&["true"]).await?;
    let kubectl = context.kubectl();
    let events = kubectl
        .run(&["get", "events", "--namespace", &context.namespace, "--output=jsonpath={.items[*].reason}"])
        .await?;
    ensure!(events.contains("Pulled"), "nothing was pulled: {events}");
    Ok(())
}

pub async fn any_etcd(context: &Context) -> Result<()> {
    let version = "v3.5.9";
    testbed::image::ensure_etcd(version).await.context("cannot create the image")?;
    context.step("created the image");
    let etcd = context.plain(1).version(version);
    let members = etcd.create(context.client(), LIMIT).await?;
    let status = members[0].status().await?;
    ensure!(format!("v{}", status.version) == version, "asked for {version}, got {status:?}");
    Ok(())
}

fn waiting(pod: &Pod) -> Option<(String, String)> {
    let state = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?;
    let waiting = state.waiting.as_ref()?;
    Some((waiting.reason.clone().unwrap_or_default(), waiting.message.clone().unwrap_or_default()))
}
