//! What stands around the members, and what happens when nobody looks after them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::names::condition;
use etcd_operator_core::observed::Ordinal;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::{NAME, born, judged, scaled};
use crate::etcd::Member;
use crate::install;
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::{BACK_OFF_LIMIT, KEY, LIMIT};
use crate::wait;

/// Not the one of the user guide, whose Service may still be there.
const NODE_PORT: u16 = 30380;

/// The operator says that it has seen an edit, and does nothing about it until it is let go on.
pub async fn paused(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    cluster.edit(json!({"spec": {"paused": true, "size": 3}})).await?;
    let noticed = cluster.wait_for("the pause is noticed", |cluster| {
        let status = cluster.status.as_ref();
        status.is_some_and(|status| {
            status.observed_generation == cluster.metadata.generation
                && status.conditions.iter().any(|it| it.type_ == condition::PAUSED && it.status == "True")
        })
    });
    noticed.await?;
    let service = cluster.names().client_service();
    let kubectl = context.kubectl();
    kubectl.run(&["delete", "service", &service, "--namespace", &cluster.namespace]).await?;
    for pod in cluster.pods().await?.into_keys() {
        kubectl.run(&["delete", "pod", &pod, "--namespace", &cluster.namespace]).await?;
    }
    serve(&cluster, 1).await?;
    context.step("Kubernetes recreated the pod");
    let replicas = cluster.api::<StatefulSet>().get(NAME).await?.spec.and_then(|spec| spec.replicas);
    ensure!(replicas == Some(1), "scaled to {replicas:?} while paused");
    ensure!(cluster.member_list().await?.len() == 1, "a member was added while paused");
    let services = cluster.labelled::<Service>().await?;
    ensure!(!services.contains_key(&service), "a Service was made while paused");

    cluster.edit(json!({"spec": {"paused": false}})).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}

pub async fn disruption_budget(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({"podDisruptionBudget": "Disabled"})).await?;
    cluster.agrees(&Promised::members(3).without_budget()).await?;
    for (wanted, promised) in
        [("Enabled", Promised::members(3)), ("Disabled", Promised::members(3).without_budget())]
    {
        cluster.edit(json!({"spec": {"podDisruptionBudget": wanted}})).await?;
        cluster.wait_until_settled(3).await?;
        cluster.agrees(&promised).await?;
    }
    judged(context, history).await
}

/// The testbed enforces no policy, so this shows what the object says and when it changes.
pub async fn network_policy(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({"security": {"networkPolicy": {}}})).await?;
    let promised = || Promised::members(3).with_network_policy();
    cluster.agrees(&promised()).await?;
    let before = uids(&cluster.pods().await?);
    let policies = cluster.api::<NetworkPolicy>();
    let created = policies.get(NAME).await?.spec;
    let text = serde_json::to_string(&created)?;
    for words in
        [install::NAMESPACE, "\"app.kubernetes.io/name\":\"etcd-operator\"", "etcd.etcd.io/client-of"]
    {
        ensure!(text.contains(words), "no {words} in {text}");
    }
    let is_as_created = |it: &NetworkPolicy| it.spec == created;
    let open = json!({"spec": {"ingress": [{}]}}).to_string();
    let by_hand = ["patch", "networkpolicy", NAME, "--type=merge", "--patch", &open];
    context.kubectl().run(&[&["--namespace", cluster.namespace.as_str()], &by_hand[..]].concat()).await?;
    wait::present(policies.clone(), NAME, "an edit by hand is put right", LIMIT, is_as_created).await?;

    let clients = json!({"matchLabels": {"app": "shop"}});
    cluster.edit(json!({"spec": {"security": {"networkPolicy": {"clientSelector": clients}}}})).await?;
    let follows = |it: &NetworkPolicy| serde_json::to_string(it).is_ok_and(|text| text.contains("shop"));
    wait::present(policies, NAME, "it follows the spec", LIMIT, follows).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&promised()).await?;
    cluster.edit(json!({"spec": {"security": {"networkPolicy": null}}})).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    ensure!(uids(&cluster.pods().await?) == before, "a pod restarted");
    judged(context, history).await
}

/// A fixed port on every node, whose addresses are in the certificate, and network tools in every pod, which shows as 2/2.
pub async fn from_outside(context: &Context) -> Result<()> {
    let nodes: Vec<_> = context.bed().nodes().iter().map(|node| node.address().to_string()).collect();
    let more = json!({
        "externalAccess": {"nodePort": {"port": NODE_PORT}},
        "security": {"tls": {"certificates": {"ipAddresses": nodes}}},
        "debugSidecar": {},
    });
    let (cluster, history) = born(context, 1, more).await?;
    cluster.agrees(&Promised::members(1).with_node_port()).await?;
    let (id, access) = (cluster.cluster_id().await?, cluster.access().await?);
    for node in context.bed().nodes() {
        let address = (node.address(), NODE_PORT).into();
        let access = access.clone().to(node.address().to_string());
        let member = Member { name: node.name(), address, access };
        let answers = async || Ok(member.status().await?.cluster_id == id);
        wait::until(&format!("{node} answers on port {NODE_PORT}"), LIMIT, answers).await?;
    }
    context.step("every node answers");
    cluster.scale(3).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3).with_node_port()).await?;
    let within = ["--namespace", cluster.namespace.as_str()];
    let shown = context.kubectl().run(&[&within[..], &["get", "pods", "--no-headers"]].concat()).await?;
    let both_run = |line: &&str| line.split_whitespace().nth(1) == Some("2/2");
    ensure!(shown.lines().filter(both_run).count() == 3, "not three pods with two containers:\n{shown}");
    let host = cluster.names().pod_host(Ordinal(1));
    let tools = ["exec", "kv-0", "-c", "netshoot", "--", "nslookup", &host];
    let said = context.kubectl().run(&[&within[..], &tools].concat()).await?;
    ensure!(said.contains(&format!("Name:\t{host}")), "the tools do not find {host}:\n{said}");
    let delete = ["delete", "pod", "kv-2", "--wait=false"];
    context.kubectl().run(&[&within[..], &delete].concat()).await?;
    let what = "the tools container exits on SIGTERM, before it is killed";
    wait::present(context.pods(), "kv-2", what, LIMIT, |pod| exit_code(pod, "netshoot") == Some(0)).await?;

    cluster.edit(json!({"spec": {"externalAccess": null}})).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}

/// A quota on requests and limits refuses every pod that has a container without them.
pub async fn compute_quota(context: &Context) -> Result<()> {
    let quota = json!({
        "metadata": {"name": "compute"},
        "spec": {"hard": {
            "requests.cpu": "2", "requests.memory": "2Gi", "limits.cpu": "4", "limits.memory": "4Gi",
        }},
    });
    let quota: ResourceQuota = serde_json::from_value(quota)?;
    let quotas: Api<ResourceQuota> = Api::namespaced(context.client().clone(), &context.namespace);
    quotas.create(&PostParams::default(), &quota).await.context("cannot create the quota")?;
    let amounts = json!({"cpu": "200m", "memory": "128Mi"});
    let more = json!({"resources": {"requests": amounts, "limits": amounts}, "debugSidecar": {}});
    let (cluster, history) = born(context, 3, more).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}

/// Members form a cluster on it, and joining ones receive the data.
pub async fn smallest_volume(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({"storage": {"size": "512Mi"}})).await?;
    scaled(&cluster, 5).await?;
    judged(context, history).await
}

/// All pods are lost at once, and nobody but Kubernetes is there to bring them back.
pub async fn operator_away(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let operator = context.operator().await?;
    operator.stop().await?;
    context.step("the operator is down");
    let before = uids(&cluster.pods().await?);
    let all = ["delete", "pods", "--namespace", &cluster.namespace, "--selector", "etcd.etcd.io/cluster=kv"];
    context.kubectl().run(&all).await?;
    serve(&cluster, 3).await?;
    let after = uids(&cluster.pods().await?);
    ensure!(before.iter().all(|uid| !after.contains(uid)), "the same pods: {before:?}, {after:?}");
    history.goes_on(BACK_OFF_LIMIT).await?;
    context.step("all pods recovered without the operator");
    operator.start().await?;
    scaled(&cluster, 3).await?;
    judged(context, history).await
}

/// Waits until so many pods are there and each serves.
async fn serve(cluster: &Operated, size: usize) -> Result<()> {
    let all = async || {
        let members = cluster.members().await?;
        ensure!(members.len() == size, "pods with an address: {members:?}");
        for member in members {
            member.linearizable_read(KEY).await.with_context(|| member.name.clone())?;
        }
        Ok(true)
    };
    wait::until(&format!("{size} pod(s) of {} serve", cluster.name), BACK_OFF_LIMIT, all).await
}

fn exit_code(pod: &Pod, container: &str) -> Option<i32> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let state = containers.iter().find(|it| it.name == container)?.state.as_ref()?;
    state.terminated.as_ref().map(|terminated| terminated.exit_code)
}

fn uids(pods: &BTreeMap<String, Pod>) -> Vec<Option<String>> {
    pods.values().map(|pod| pod.metadata.uid.clone()).collect()
}
