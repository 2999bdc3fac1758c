//! A form that passes its trial and does not start: it reaches no further member, every other pod that is created meanwhile has the form that all
//! members ran together last, and taking the edit back is all that users do.

use std::os::unix::fs::PermissionsExt;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::FORM_ANNOTATION;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use serde_json::{Value, json};

use super::{form, forms, ready};
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::disturbed::{member, move_leader};
use crate::suite::lifecycle::{born, judged};
use crate::suite::{BACK_OFF_LIMIT, LIMIT};
use crate::wait;

/// In the volume of a member. etcd ends at once where it is to log and there is no such directory.
const DIRECTORY: &str = "logs";

pub async fn crash_at_the_second(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let before = form(&cluster).await?;
    // So kv-2 is the first, and kv-1 the second.
    move_leader(context, &cluster, "kv-0").await?;
    make_directory(context, &cluster, "data-kv-2").await?;
    let log = format!("/var/lib/etcd/{DIRECTORY}/etcd.log");
    cluster.edit(json!({"spec": {"options": {"extraArguments": {"log-outputs": log}}}})).await?;
    let second = async || Ok(forms(&cluster).await?.get("kv-1").is_some_and(|form| *form != before));
    wait::until("the second pod has the new form", LIMIT, second).await?;
    named(context, &cluster, "kv-1", "exits repeatedly").await?;
    let first = |it: &EtcdCluster| member(it, "kv-2").is_some_and(|it| it.ready);
    cluster.wait_for("the first member serves in the new form", first).await?;
    history.goes_on(LIMIT).await?;
    returns_in(context, &cluster, Some("kv-1"), &before).await?;
    reverted(context, &cluster, json!({"spec": {"options": {"extraArguments": null}}}), &before).await?;
    judged(context, history).await
}

/// The status says which member does not start, and why.
async fn named(context: &Context, cluster: &Operated, pod: &str, word: &str) -> Result<()> {
    let what = format!("the status says why {pod} does not start");
    let reason = |it: &EtcdCluster| member(it, pod).and_then(|it| it.reason.clone());
    let why = |it: &EtcdCluster| reason(it).filter(|reason| reason.contains(word));
    let seen =
        wait::present(cluster.api(), &cluster.name, &what, BACK_OFF_LIMIT, |it| why(it).is_some()).await?;
    context.step(format!("{pod}: {}", why(&seen).unwrap_or_default()));
    Ok(())
}

/// A pod that still has the old form is deleted, and has it when it is back.
pub async fn returns_in(
    context: &Context,
    cluster: &Operated,
    stuck: Option<&str>,
    form: &str,
) -> Result<()> {
    let old = forms(cluster).await?.into_iter().find(|(pod, it)| Some(pod.as_str()) != stuck && it == form);
    let pod = old.context("no pod has the old form")?.0;
    let template = |it: &StatefulSet| {
        it.spec
            .as_ref()
            .and_then(|it| it.template.metadata.as_ref()?.annotations.as_ref()?.get(FORM_ANNOTATION))
            .is_some_and(|it| it == form)
    };
    wait::present(cluster.api(), &cluster.name, "new pods get the old form", LIMIT, template).await?;
    let uid = async || {
        Ok::<_, anyhow::Error>(cluster.pods().await?.get(&pod).and_then(|it| it.metadata.uid.clone()))
    };
    let before = uid().await?;
    let delete = ["delete", "pod", &pod, "--namespace", &cluster.namespace, "--wait=false"];
    context.kubectl().run(&delete).await?;
    let another = async || Ok(uid().await?.is_some_and(|uid| Some(uid) != before));
    wait::until(&format!("{pod} is created again"), LIMIT, another).await?;
    let now = forms(cluster).await?.get(&pod).cloned().unwrap_or_default();
    ensure!(now == form, "{pod} came back with form {now}, not {form}");
    wait::pod_ready(cluster.api(), &pod, LIMIT).await?;
    context.step(format!("{pod} came back in the old form"));
    Ok(())
}

pub async fn reverted(context: &Context, cluster: &Operated, edit: Value, before: &str) -> Result<()> {
    cluster.edit(edit).await?;
    ready(cluster, 3).await?;
    let after = form(cluster).await?;
    ensure!(after == before, "pods have form {after}, not {before} as before");
    cluster.agrees(&Promised::members(3)).await?;
    context.step("the edit is reverted, and every pod has the old form");
    Ok(())
}

async fn make_directory(context: &Context, cluster: &Operated, claim: &str) -> Result<()> {
    let claims = cluster.claims().await?;
    let volume = claims.get(claim).and_then(|it| it.spec.as_ref()?.volume_name.clone());
    let volume = volume.with_context(|| format!("{claim} has no volume"))?;
    let volume = Api::<PersistentVolume>::all(context.client().clone()).get(&volume).await?;
    let path = volume.spec.and_then(|it| Some(it.local?.path)).context("not a volume of the testbed")?;
    let directory = std::path::Path::new(&path).join(DIRECTORY);
    std::fs::create_dir(&directory).with_context(|| format!("cannot create a directory in {claim}"))?;
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777))?;
    Ok(())
}
