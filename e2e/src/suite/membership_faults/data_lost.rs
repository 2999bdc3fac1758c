//! Volumes that are empty where data should be: such a member never runs again as who it was, and no second cluster is
//! ever formed in the place of the first.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::Phase;
use etcd_operator_core::names::reason;
use serde_json::json;
use testbed::fault::Fault;

use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::BACK_OFF_LIMIT;
use crate::suite::disturbed::{all_began, leader, nobody_began_anew, refused_for, wait_for_log};
use crate::suite::kill;
use crate::suite::lifecycle::{Identity, born, judged};
use crate::wait;

/// Several times as long as an agent waits between two looks.
const SOME_LOOKS: Duration = Duration::from_secs(5);
const AGENT_KNOWS: &str = "DataLost";

/// All members are on one node, whose kubelet may still know the order that formed the cluster when a pod comes back with
/// an empty volume. The operator is away at first, so that nothing but the agent stands in between.
pub async fn beside_a_sibling(context: &Context) -> Result<()> {
    let on_n1 = json!({"podTemplate": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}});
    let (cluster, history) = born(context, 3, on_n1).await?;
    cluster.agrees(&Promised::members(3)).await?;
    all_began(context, &cluster, &["kv-0", "kv-1", "kv-2"]).await?;
    let before = Identity::of(&cluster).await?;
    let operator = context.operator().await?;
    operator.stop().await?;
    let former = replaced_volume(context, &cluster, "kv-1").await?;
    wait_for_log(context, &cluster, "kv-1", AGENT_KNOWS).await?;
    tokio::time::sleep(SOME_LOOKS).await;
    nobody_began_anew(context, &cluster, &["kv-1"]).await?;
    ensure!(cluster.member_list().await?.len() == 3, "membership changed while the operator was away");
    context.step("the agent waits for the operator to replace its member");

    operator.start().await?;
    former.gets_replaced(context, &cluster, &before).await?;
    let former = replaced_volume(context, &cluster, "kv-2").await?;
    former.gets_replaced(context, &cluster, &before).await?;
    judged(context, history).await
}

/// Nothing is left that a cluster could be made of, and this is said instead of a new one being made.
pub async fn single(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    cluster.agrees(&Promised::members(1)).await?;
    judged(context, history).await?;
    let id = cluster.status().await?.cluster_id;
    wiped(context, &cluster, "kv-0").await?;
    let (refused, message) = refused_for(context, &cluster, reason::DATA_LOST).await?;
    ensure!(message.contains("restore"), "no way out: {message}");
    let status = refused.status.context("a status")?;
    ensure!(status.phase == Some(Phase::Failed), "it is {:?}", status.phase);
    tokio::time::sleep(SOME_LOOKS).await;
    ensure!(cluster.member_list().await.is_err(), "an etcd answers without data");
    nobody_began_anew(context, &cluster, &["kv-0"]).await?;
    let status = cluster.status().await?;
    ensure!(status.cluster_id == id, "{:?} was {id:?}", status.cluster_id);
    ensure!(status.ready_replicas.unwrap_or(0) == 0, "ready: {:?}", status.ready_replicas);
    cluster.delete().await?;
    cluster.wait_until_gone().await
}

/// Once a follower, once the leader.
pub async fn one_of_three(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let before = Identity::of(&cluster).await?;
    let leads = leader(&cluster).await?;
    let follower = cluster.pod_names(3).into_iter().find(|pod| *pod != leads).context("a follower")?;
    for pod in [follower, leads] {
        let former = wiped(context, &cluster, &pod).await?;
        former.gets_replaced(context, &cluster, &before).await?;
    }
    judged(context, history).await
}

/// All files are deleted under the running etcd, which then dies. Returns who it was.
pub(super) async fn wiped(context: &Context, cluster: &Operated, pod: &str) -> Result<Former> {
    let former = Former::of(cluster, pod).await?;
    let claim = format!("data-{pod}");
    context.inject(Fault::WipeVolume { claim, namespace: cluster.namespace.clone() }).await?;
    context.inject(kill(context, pod)).await?;
    Ok(former)
}

/// Pod and claim are deleted together, and Kubernetes makes both anew.
async fn replaced_volume(context: &Context, cluster: &Operated, pod: &str) -> Result<Former> {
    let former = Former::of(cluster, pod).await?;
    let (claim, within) = (format!("data-{pod}"), ["--namespace", cluster.namespace.as_str()]);
    let uid = async || {
        let claims = cluster.claims().await?;
        Ok::<_, anyhow::Error>(claims.get(&claim).and_then(|claim| claim.metadata.uid.clone()))
    };
    let before = uid().await?;
    let kubectl = context.kubectl();
    kubectl.run(&[&within[..], &["delete", "pvc", &claim, "--wait=false"]].concat()).await?;
    kubectl.run(&[&within[..], &["delete", "pod", pod, "--wait=false"]].concat()).await?;
    let another = async || Ok(uid().await?.is_some_and(|uid| Some(uid) != before));
    wait::until(&format!("{pod} has another volume"), BACK_OFF_LIMIT, another).await?;
    context.step(format!("{pod} came back with an empty volume"));
    Ok(former)
}

/// A member that has lost its data, or has other data.
pub(super) struct Former {
    pod: String,
    id: u64,
}

impl Former {
    pub(super) async fn of(cluster: &Operated, pod: &str) -> Result<Self> {
        let listed = cluster.member_list().await?.into_iter().find(|member| member.name == pod);
        Ok(Self { pod: pod.to_owned(), id: listed.with_context(|| format!("{pod} is no member"))?.id })
    }

    /// Waits until another member is in its place, in the same cluster with all its data.
    pub(super) async fn gets_replaced(
        self,
        context: &Context,
        cluster: &Operated,
        before: &Identity,
    ) -> Result<()> {
        let Self { pod, id } = self;
        let gone = async || Ok(cluster.member_list().await?.iter().all(|member| member.id != id));
        wait::until(&format!("the previous member of {pod} is removed"), BACK_OFF_LIMIT, gone).await?;
        cluster.wait_until_settled(3).await?;
        cluster.agrees(&Promised::members(3)).await?;
        before.is_still_that_of(cluster).await?;
        nobody_began_anew(context, cluster, &[&pod]).await
    }
}
