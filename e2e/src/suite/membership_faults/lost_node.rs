//! Nodes that are lost for longer than the grace, and nodes that return in time. The operator has no right to read nodes here.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{condition, event, reason};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use testbed::fault::{Direction, Fault};

use super::sudden_ends::settled;
use crate::install::NAMESPACE;
use crate::operated::{Operated, is_settled};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{Roster, holds, member, move_leader, node_of, nodes_are};
use crate::suite::lifecycle::{born, judged};
use crate::wait;

/// A member on a node without the operator.
struct Victim {
    pod: String,
    node: String,
    id: String,
}

impl Victim {
    async fn of(context: &Context, cluster: &Operated) -> Result<Self> {
        let operators = Api::<Pod>::namespaced(context.client().clone(), NAMESPACE);
        let operators = operators.list(&ListParams::default()).await?.items;
        let busy: Vec<String> =
            operators.into_iter().filter_map(|pod| pod.spec.and_then(|spec| spec.node_name)).collect();
        for pod in cluster.pod_names(3) {
            let node = node_of(cluster, &pod).await?;
            // The machine itself is node n1.
            if node != "n1" && !busy.contains(&node) {
                let id = id_of(&cluster.object().await?, &pod).context("it has no ID")?;
                // Without the right to read nodes, the loss shows only in a pod that was reported as ready.
                wait::pod_ready(cluster.api::<Pod>(), &pod, LIMIT).await?;
                context.step(format!("{pod} ({id}) runs on {node}"));
                return Ok(Self { pod, node, id });
            }
        }
        anyhow::bail!("no member is on a node of its own")
    }

    async fn is_lost(&self, cluster: &Operated) -> Result<()> {
        let named = |it: &EtcdCluster| {
            let why = member(it, &self.pod).and_then(|member| member.reason.clone()).unwrap_or_default();
            let waits = holds(it, condition::RECONCILING).is_some_and(|it| it.reason == reason::NODE_LOST);
            why.starts_with(&format!("node {} lost", self.node)) && waits
        };
        cluster.wait_for("the status names the lost node", named).await.map(drop)
    }

    /// As another member, on another node.
    async fn is_replaced(&self, context: &Context, cluster: &Operated) -> Result<String> {
        let replaced =
            |it: &EtcdCluster| is_settled(it, 3) && id_of(it, &self.pod).is_some_and(|id| id != self.id);
        let settled = cluster.wait_for("the member is replaced", replaced).await?;
        let (node, id) = (node_of(cluster, &self.pod).await?, id_of(&settled, &self.pod));
        ensure!(node != self.node, "{} is on the lost node {node} again", self.pod);
        let reasons: Vec<_> = cluster.events().await?.into_iter().filter_map(|it| it.reason).collect();
        for expected in [reason::NODE_LOST, event::MEMBER_REMOVED, event::POD_DELETED, event::MEMBER_ADDED] {
            ensure!(reasons.iter().any(|it| it == expected), "no event {expected} in {reasons:?}");
        }
        context.step(format!("{} runs on {node} by now", self.pod));
        id.context("it has no ID")
    }

    async fn node_is(&self, context: &Context, ready: bool) -> Result<()> {
        nodes_are(context, std::slice::from_ref(&self.node), ready).await
    }
}

fn id_of(cluster: &EtcdCluster, pod: &str) -> Option<String> {
    member(cluster, pod)?.id.clone()
}

fn short_grace() -> serde_json::Value {
    json!({"repair": {"nodeLossGraceSeconds": 10}})
}

/// No test takes this long.
fn long_grace() -> serde_json::Value {
    json!({"repair": {"nodeLossGraceSeconds": 3600}})
}

/// The node stays down, and returns when its member is replaced.
pub async fn stays_down(context: &Context) -> Result<()> {
    crashed(context, false).await
}

/// Somebody deletes the pod, which stays Terminating, because no kubelet confirms its end.
pub async fn stays_terminating(context: &Context) -> Result<()> {
    crashed(context, true).await
}

async fn crashed(context: &Context, deleted: bool) -> Result<()> {
    let (cluster, history) = born(context, 3, short_grace()).await?;
    let victim = Victim::of(context, &cluster).await?;
    let crash = context.inject(Fault::CrashNode { node: victim.node.clone() }).await?;
    if deleted {
        super::sudden_ends::deleted(context, &cluster, &[&victim.pod]).await?;
    }
    victim.is_lost(&cluster).await?;
    let successor = victim.is_replaced(context, &cluster).await?;
    context.undo(&crash).await?;
    returned_in_vain(context, &cluster, &victim, &successor).await?;
    judged(context, history).await
}

/// The leader is cut off and runs on, until the connection is back.
pub async fn cut_off(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, short_grace()).await?;
    let victim = Victim::of(context, &cluster).await?;
    move_leader(context, &cluster, &victim.pod).await?;
    let fault = Fault::CutNode { node: victim.node.clone(), direction: Direction::Both };
    let cut = context.inject(fault).await?;
    victim.is_lost(&cluster).await?;
    let successor = victim.is_replaced(context, &cluster).await?;
    context.undo(&cut).await?;
    returned_in_vain(context, &cluster, &victim, &successor).await?;
    judged(context, history).await
}

async fn returned_in_vain(
    context: &Context,
    cluster: &Operated,
    victim: &Victim,
    successor: &str,
) -> Result<()> {
    victim.node_is(context, true).await?;
    settled(cluster, 3).await?;
    let id = id_of(&cluster.object().await?, &victim.pod);
    ensure!(id.as_deref() == Some(successor), "{} is {id:?} now, and was {successor}", victim.pod);
    Ok(())
}

/// The member continues with its data.
pub async fn returns_in_time(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, long_grace()).await?;
    let victim = Victim::of(context, &cluster).await?;
    let before = Roster::of(&cluster).await?;
    let crash = context.inject(Fault::CrashNode { node: victim.node.clone() }).await?;
    victim.is_lost(&cluster).await?;
    context.undo(&crash).await?;
    victim.node_is(context, true).await?;
    before.returns(&cluster).await?;
    judged(context, history).await
}

/// A node that shuts down in good order leaves its pods as Succeeded. Nothing runs in such a pod, so another one takes its
/// place at once, and waits for the node because of its volume.
pub async fn shut_down(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, long_grace()).await?;
    let victim = Victim::of(context, &cluster).await?;
    let before = Roster::of(&cluster).await?;
    let uid = async || {
        let pods = cluster.pods().await?;
        Ok::<_, anyhow::Error>(pods.get(&victim.pod).and_then(|pod| pod.metadata.uid.clone()))
    };
    let first = uid().await?;
    let crash = context.inject(Fault::CrashNode { node: victim.node.clone() }).await?;
    let ended = json!({"status": {"phase": "Succeeded"}}).to_string();
    let patch = ["patch", "pod", &victim.pod, "--namespace", &cluster.namespace, "--subresource=status"];
    context.kubectl().run(&[&patch[..], &["--type=merge", "--patch", &ended]].concat()).await?;
    let another = async || Ok(uid().await?.is_some_and(|uid| Some(uid) != first));
    wait::until(&format!("another pod {}", victim.pod), LIMIT, another).await?;
    victim.node_is(context, false).await?;
    history.goes_on(LIMIT).await?;
    before.is_still_that_of(&cluster).await?;
    context.step("the member waits for its node");
    context.undo(&crash).await?;
    victim.node_is(context, true).await?;
    before.returns(&cluster).await?;
    judged(context, history).await
}
