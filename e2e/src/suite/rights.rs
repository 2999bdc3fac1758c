//! Other ways to install the operator: with rights in one namespace only, and twice.
//!
//! All tests run with the rights that are shipped, in namespaces that enforce Pod Security "restricted", and the operator's
//! own namespace does so, too.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use futures::FutureExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::LIMIT;
use super::disturbed::scaling_begins;
use super::elected::{leader, next_leader};
use super::lifecycle::{born, judged, scaled};
use crate::history::Endpoints;
use crate::install::{DEPLOYMENT, NAMESPACE};
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::test::{Test, Topology};
use crate::wait;

const NAMESPACED: &str = "namespaced";
const HIGHLY_AVAILABLE: &str = "highly-available";
/// Of `config/namespaced`.
const WATCHED: &str = "etcd";

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field.exclusive("rights::an_operator_of_one_namespace_leaves_others_alone", |c| {
            installed_as(c, NAMESPACED, in_one_namespace(c).boxed_local()).boxed_local()
        }),
        field.exclusive("rights::one_of_two_operators_continues_when_the_other_is_deleted", |c| {
            installed_as(c, HIGHLY_AVAILABLE, one_of_two(c).boxed_local()).boxed_local()
        }),
    ]
}

/// The usual operator is back after the test, whatever became of it.
async fn installed_as(context: &Context, folder: &str, test: impl Future<Output = Result<()>>) -> Result<()> {
    let operator = context.operator().await?;
    let outcome = test.await;
    operator.remove_as(folder).await.context("cannot remove the operator of the test")?;
    operator.start().await.context("cannot install the usual operator again")?;
    outcome
}

async fn in_one_namespace(context: &Context) -> Result<()> {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let watched: Namespace =
        serde_json::from_value(json!({"metadata": {"name": WATCHED, "labels": labels}}))?;
    let namespaces = Api::<Namespace>::all(context.client().clone());
    let operator = context.operator().await?;
    namespaces
        .create(&PostParams::default(), &watched)
        .await
        .context("cannot create the watched namespace")?;
    let outcome = async {
        operator.install_as(NAMESPACED).await?;
        works_only_there(context).await
    };
    let outcome = outcome.await;
    context.kubectl().run(&["delete", "namespace", WATCHED, "--wait=false"]).await?;
    outcome
}

async fn works_only_there(context: &Context) -> Result<()> {
    let client = context.client();
    let roles = Api::<ClusterRole>::all(client.clone()).get_opt(DEPLOYMENT).await?;
    let bindings = Api::<ClusterRoleBinding>::all(client.clone()).get_opt(DEPLOYMENT).await?;
    ensure!(roles.is_none() && bindings.is_none(), "the operator has rights in all namespaces");
    let spec = || json!({"size": 1, "storage": {"size": "1Gi"}});
    let ignored = Operated::create(client, &context.namespace, "kv", spec(), context.progress).await?;
    let cluster = Operated::create(client, WATCHED, "kv", spec(), context.progress).await?;
    cluster.wait_until_settled(1).await?;
    let history = context.history_at(Endpoints::of_cluster(client.clone(), WATCHED, "kv")).await?;
    history.goes_on(LIMIT).await?;
    for size in [3, 1] {
        scaled(&cluster, size).await?;
    }
    cluster
        .edit(json!({"spec": {"security": {"networkPolicy": {}}, "externalAccess": {"nodePort": {}}}}))
        .await?;
    cluster.wait_until_settled(1).await?;
    cluster.agrees(&Promised::members(1).with_node_port().with_network_policy()).await?;
    judged(context, history).await?;

    let object = ignored.object().await?;
    ensure!(object.status.is_none() && object.metadata.finalizers.is_none(), "it was touched: {object:?}");
    ensure!(ignored.labelled::<StatefulSet>().await?.is_empty(), "objects in another namespace");
    context.step("the cluster in another namespace is as it was created");
    // Before the usual operator comes back and begins to work on it.
    ignored.delete().await?;
    wait::gone(ignored.api::<EtcdCluster>(), "kv", "it is deleted without an operator", LIMIT).await?;
    cluster.delete().await?;
    cluster.wait_until_gone().await
}

async fn one_of_two(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 1, json!({})).await?;
    let operator = context.operator().await?;
    operator.install_as(HIGHLY_AVAILABLE).await?;
    let pods = operator.ready_pods().await?;
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let nodes: BTreeSet<_> = pods.iter().filter_map(node).collect();
    ensure!(pods.len() == 2 && nodes.len() == 2, "not two operators on two nodes: {nodes:?}");
    let budgets = Api::<PodDisruptionBudget>::namespaced(context.client().clone(), NAMESPACE);
    let one_to_spare =
        |it: &PodDisruptionBudget| it.status.as_ref().is_some_and(|it| it.disruptions_allowed == 1);
    wait::present(budgets, DEPLOYMENT, "a drain can end one of the two", LIMIT, one_to_spare).await?;

    for size in [3, 1] {
        let former = leader(context).await?;
        scaling_begins(context, &cluster, size).await?;
        context.kubectl().run(&["delete", "pod", &former, "--namespace", NAMESPACE, "--wait=false"]).await?;
        let next = next_leader(context, &former).await?;
        context.step(format!("{former} was deleted, {next} leads"));
        cluster.wait_until_settled(size).await?;
        cluster.agrees(&Promised::members(size)).await?;
        operator.ready().await?;
    }
    judged(context, history).await
}
