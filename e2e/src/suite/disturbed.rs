//! What tests that disturb a cluster or its operator share.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::{EtcdCluster, MemberStatus};
use etcd_operator_core::names::condition;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::fault::{Direction, Fault};

use super::lifecycle::Identity;
use super::{BACK_OFF_LIMIT, LIMIT};
use crate::etcd;
use crate::operated::{Operated, Promised};
use crate::runner::{Context, node_is_ready};
use crate::wait;

/// Asks for a size and returns in the middle of the way there: some member was added or removed, and more is to come.
pub async fn scaling_begins(context: &Context, cluster: &Operated, size: u8) -> Result<()> {
    let before = cluster.member_list().await?.len();
    cluster.scale(size).await?;
    wait::until("etcd lists other members", LIMIT, async || Ok(cluster.member_list().await?.len() != before))
        .await?;
    context.step(format!("scaling from {before} member(s) to {size}"));
    Ok(())
}

/// The condition, if it is true.
pub fn holds<'a>(cluster: &'a EtcdCluster, type_: &str) -> Option<&'a Condition> {
    let conditions = &cluster.status.as_ref()?.conditions;
    conditions.iter().find(|it| it.type_ == type_ && it.status == "True")
}

/// Waits until the operator refuses to go on for this reason, and gives what it says.
pub async fn refused_for(
    context: &Context,
    cluster: &Operated,
    reason: &str,
) -> Result<(EtcdCluster, String)> {
    let stalls = |it: &EtcdCluster| holds(it, condition::STALLED).is_some_and(|it| it.reason == reason);
    let refused = cluster.wait_for(&format!("the status reports {reason}"), stalls).await?;
    let message = holds(&refused, condition::STALLED).context("it stalls")?.message.clone();
    context.step(format!("{reason}: {message}"));
    Ok((refused, message))
}

/// What the status says of the member in a pod.
pub fn member<'a>(cluster: &'a EtcdCluster, pod: &str) -> Option<&'a MemberStatus> {
    cluster.status.as_ref()?.members.iter().find(|it| it.name.as_deref() == Some(pod))
}

/// What the agent and the etcd of a pod have logged since the container was last started.
pub async fn log_of(context: &Context, cluster: &Operated, pod: &str) -> Result<String> {
    context.kubectl().run(&["logs", "--namespace", &cluster.namespace, pod, "--container", "etcd"]).await
}

pub async fn wait_for_log(context: &Context, cluster: &Operated, pod: &str, words: &str) -> Result<()> {
    let said = async || Ok(log_of(context, cluster, pod).await?.contains(words));
    wait::until(&format!("{pod} says {words:?}"), BACK_OFF_LIMIT, said).await
}

/// What an agent says when it follows the order to form a cluster.
const BEGINS: &str = "starting etcd to bootstrap the cluster";

/// These pods were there when the cluster was born, and say so.
pub async fn all_began(context: &Context, cluster: &Operated, pods: &[&str]) -> Result<()> {
    for pod in pods {
        let log = log_of(context, cluster, pod).await?;
        ensure!(log.contains(BEGINS), "{pod} does not say how it began:\n{log}");
    }
    Ok(())
}

/// These pods have not formed a cluster since they were last started: they were let in by the others, or wait.
pub async fn nobody_began_anew(context: &Context, cluster: &Operated, pods: &[&str]) -> Result<()> {
    for pod in pods {
        let log = log_of(context, cluster, pod).await?;
        ensure!(!log.contains(BEGINS), "{pod} has formed a cluster once more:\n{log}");
    }
    Ok(())
}

pub async fn leader(cluster: &Operated) -> Result<String> {
    Ok(etcd::leader(&cluster.members().await?).await?.name)
}

pub async fn move_leader(context: &Context, cluster: &Operated, to: &str) -> Result<()> {
    let from = leader(cluster).await?;
    if from == to {
        return Ok(());
    }
    let listed = cluster.member_list().await?.into_iter().find(|member| member.name == to);
    let id = format!("{:x}", listed.with_context(|| format!("{to} is no member"))?.id);
    let words = ["exec", "--namespace", &cluster.namespace, &from, "--container", "etcd", "--"];
    context.kubectl().run(&[&words[..], &["etcdctl", "move-leader", &id]].concat()).await?;
    context.step(format!("moved leadership from {from} to {to}"));
    Ok(())
}

pub async fn node_of(cluster: &Operated, pod: &str) -> Result<String> {
    let pods = cluster.pods().await?;
    let spec = pods.get(pod).and_then(|pod| pod.spec.as_ref());
    spec.and_then(|spec| spec.node_name.clone()).with_context(|| format!("{pod} is on no node"))
}

/// What `etcdctl` prints in a pod.
pub async fn etcdctl(context: &Context, cluster: &Operated, pod: &str, words: &[&str]) -> Result<String> {
    let exec = ["exec", "--namespace", &cluster.namespace, pod, "--container", "etcd", "--", "etcdctl"];
    context.kubectl().run(&[&exec[..], words].concat()).await
}

pub async fn nodes_are(context: &Context, names: &[String], ready: bool) -> Result<()> {
    for name in names {
        let nodes = Api::<Node>::all(context.client().clone());
        let what = format!("{name} is ready: {ready}");
        wait::present(nodes, name, &what, LIMIT, |node| node_is_ready(node) == ready).await?;
    }
    Ok(())
}

/// Which pods there are, and how often each was started anew.
pub fn lives(pods: &BTreeMap<String, Pod>) -> Vec<(String, Option<String>, i32)> {
    pods.iter().map(|(name, pod)| (name.clone(), pod.metadata.uid.clone(), wait::restarts(pod))).collect()
}

/// Waits until etcd, Kubernetes and the status agree. Right after a fault the status can be from before it.
pub async fn becomes_whole(cluster: &Operated, size: u8) -> Result<()> {
    let promised = Promised::members(size);
    let agree = async || cluster.agrees(&promised).await.map(|()| true);
    wait::until(&format!("{} is whole, with {size} member(s)", cluster.name), BACK_OFF_LIMIT, agree).await?;
    cluster.wait_until_settled(size).await.map(drop)
}

/// The members by their IDs and their volumes, which no fault may change that leaves the data alone.
pub struct Roster {
    members: BTreeMap<String, u64>,
    volumes: BTreeMap<String, Option<String>>,
    identity: Identity,
}

impl Roster {
    /// Of a settled cluster.
    pub async fn of(cluster: &Operated) -> Result<Self> {
        let members = cluster.member_list().await?.into_iter().map(|it| (it.name, it.id)).collect();
        let volumes = cluster.claims().await?.into_iter().map(|(name, claim)| (name, claim.metadata.uid));
        Ok(Self { members, volumes: volumes.collect(), identity: Identity::of(cluster).await? })
    }

    /// Waits until the cluster is whole again, with the same members on the same volumes.
    pub async fn returns(&self, cluster: &Operated) -> Result<()> {
        becomes_whole(cluster, u8::try_from(self.members.len())?).await?;
        self.is_still_that_of(cluster).await
    }

    /// Also while not all of them serve.
    pub async fn is_still_that_of(&self, cluster: &Operated) -> Result<()> {
        let now = Self::of(cluster).await?;
        ensure!(now.members == self.members, "members: {:?}, were {:?}", now.members, self.members);
        ensure!(now.volumes == self.volumes, "volumes: {:?}, were {:?}", now.volumes, self.volumes);
        self.identity.is_still_that_of(cluster).await
    }
}

pub fn cut_off(cluster: &Operated, pod: &str) -> Fault {
    Fault::CutPod { pod: pod.into(), namespace: cluster.namespace.clone(), direction: Direction::Both }
}

/// Nodes on which there is room for the members of one test: those that carry a label of its own, so that a test that
/// fails leaves nothing behind that another one would notice.
pub struct Room<'a> {
    context: &'a Context,
    label: String,
}

impl<'a> Room<'a> {
    pub fn new(context: &'a Context) -> Self {
        Self { context, label: format!("e2e.etcd.io/{}", context.namespace) }
    }

    /// For a `podTemplate`: pods go nowhere else, and if asked for, no two of them to the same node.
    pub fn template(&self, cluster: &str, one_per_node: bool) -> Value {
        let mut template = json!({"nodeSelector": {&self.label: "room"}});
        if one_per_node {
            template["affinity"] = json!({"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"etcd.etcd.io/cluster": cluster}},
                }],
            }});
        }
        template
    }

    pub async fn on(&self, nodes: &[&str]) -> Result<()> {
        let all = Api::<Node>::all(self.context.client().clone());
        for node in self.context.bed().nodes() {
            let room = nodes.contains(&node.name().as_str()).then_some("room");
            let change = Patch::Merge(json!({"metadata": {"labels": {&self.label: room}}}));
            let patched = all.patch(&node.name(), &PatchParams::default(), &change).await;
            patched.with_context(|| format!("cannot label {node}"))?;
        }
        self.context.step(format!("members can run on {nodes:?}"));
        Ok(())
    }
}
