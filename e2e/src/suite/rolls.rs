//! Edits that restart members, one at a time, with clients that write and read all the time.

mod disturbed;
mod planned;
mod preflight;
mod stopped;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{FORM_ANNOTATION, condition};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::LIMIT;
use super::disturbed::holds;
use crate::operated::{Operated, Promised, is_settled};
use crate::runner::Context;
use crate::test::{Test, Topology};
use crate::wait;

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field.exclusive("rolls::three_members_get_other_resources", |c| {
            planned::resources(c, 3).boxed_local()
        }),
        field
            .exclusive("rolls::five_members_get_other_resources", |c| planned::resources(c, 5).boxed_local()),
        field
            .shared("rolls::the_only_member_gets_other_resources", |c| planned::only_one(c).boxed_local())
            .smoke(),
        field.exclusive("rolls::a_patch_upgrade", |c| planned::patch_upgrade(c).boxed_local()),
        field.exclusive("rolls::every_minor_version_and_back", |c| {
            planned::minor_versions_and_back(c).boxed_local()
        }),
        field.shared("rolls::a_missing_image_stops_no_member_and_is_taken_back", |c| {
            preflight::missing_image(c).boxed_local()
        }),
        field.exclusive("rolls::an_argument_that_etcd_rejects_stops_no_member", |c| {
            preflight::rejected_argument(c).boxed_local()
        }),
        field.shared("rolls::an_upgrade_is_tried_once_on_each_node", |c| {
            preflight::once_on_each_node(c).boxed_local()
        }),
        field.shared("rolls::a_crash_at_the_second_member_goes_no_further_and_is_taken_back", |c| {
            stopped::crash_at_the_second(c).boxed_local()
        }),
        field
            .exclusive("rolls::the_operator_dies_meanwhile", |c| disturbed::operator_killed(c).boxed_local()),
        field.exclusive("rolls::a_node_is_drained_meanwhile", |c| disturbed::node_drained(c).boxed_local()),
        field.shared("rolls::a_member_that_is_down_comes_first", |c| disturbed::one_is_down(c).boxed_local()),
    ]
}

/// What members ask for after the edit.
const MEMORY: &str = "48Mi";

fn other_resources() -> Value {
    json!({"spec": {"resources": {"requests": {"memory": MEMORY}}}})
}

/// The form of each pod that is not ending.
async fn forms(cluster: &Operated) -> Result<BTreeMap<String, String>> {
    let pods = cluster.pods().await?.into_iter();
    let staying = pods.filter(|(_, pod)| pod.metadata.deletion_timestamp.is_none());
    Ok(staying
        .map(|(name, pod)| (name, pod.annotations().get(FORM_ANNOTATION).cloned().unwrap_or_default()))
        .collect())
}

/// What all pods have; an error if they differ.
pub(super) async fn form(cluster: &Operated) -> Result<String> {
    let forms = forms(cluster).await?;
    let first = forms.values().next().context("there is no pod")?;
    ensure!(forms.values().all(|form| form == first), "pods of different forms: {forms:?}");
    Ok(first.clone())
}

/// As `kubectl wait --for=condition=Ready` waits for the newest spec.
async fn ready(cluster: &Operated, size: u8) -> Result<()> {
    let done = |it: &EtcdCluster| is_settled(it, size) && holds(it, condition::READY).is_some();
    cluster.wait_for(&format!("{} is ready", cluster.name), done).await.map(drop)
}

/// Waits until nothing is left to do, and every pod has another form than before.
pub(super) async fn rolled(context: &Context, cluster: &Operated, size: u8, before: &str) -> Result<()> {
    ready(cluster, size).await?;
    let after = form(cluster).await?;
    ensure!(after != before, "no pod has another form than before");
    cluster.agrees(&Promised::members(size)).await?;
    context.step(format!("every pod has form {after} instead of {before}"));
    Ok(())
}

/// Waits until one pod has another form than before, and returns its name.
async fn first_rolled(context: &Context, cluster: &Operated, before: &str) -> Result<String> {
    let mut found = None;
    let another = async || {
        found = forms(cluster).await?.into_iter().find(|(_, form)| form != before).map(|it| it.0);
        Ok(found.is_some())
    };
    wait::until("a pod has the new form", LIMIT, another).await?;
    let pod = found.context("no pod has the new form")?;
    context.step(format!("{pod} has the new form"));
    Ok(pod)
}

fn memory(pod: &Pod) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.first()?;
    Some(container.resources.as_ref()?.requests.as_ref()?.get("memory")?.0.clone())
}
