//! Installing, upgrading and removing the operator with clusters present, by the commands of README.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::{ADOPT_ANNOTATION, FINALIZER};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::lifecycle::{Identity, born, judged};
use super::{KEY, LIMIT, VALUE};
use crate::install::{self, API_GROUP, DEPLOYMENT, NAMESPACE};
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::test::{About, Test, Topology};
use crate::{evidence, readme, wait, workspace};

const INSTALL: &str = "Install the operator";
const UPGRADE: &str = "Upgrade the operator";
const REMOVE_OPERATOR: &str = "Remove the operator, keep the clusters";
const REMOVE_EVERYTHING: &str = "Remove everything";
const REMOVE_EVERYTHING_WITHOUT_OPERATOR: &str = "Remove everything after the operator is gone";
const LIST_VOLUMES: &str = "Volumes that stay";
const DELETE_VOLUMES: &str = "Delete the volumes";
/// In the kustomization of README.md.
const IMAGE_OF_README: &str = "registry.example.com/etcd/etcd-operator:0.1";

pub fn tests(field: &Topology) -> Vec<Test> {
    let tests = vec![
        field.exclusive("uninstall::clusters_outlive_the_operator_and_the_next_one_takes_over", |c| {
            operator_replaced(c).boxed_local()
        }),
        field
            .exclusive("uninstall::everything_is_removed_while_clusters_exist", |c| {
                everything(c).boxed_local()
            })
            .smoke(),
        field.exclusive("uninstall::everything_is_removed_after_the_operator_is_gone", |c| {
            everything_without_operator(c).boxed_local()
        }),
    ];
    tests.into_iter().map(|test| test.about(About::Documents)).collect()
}

/// Removed, installed again and upgraded: clients keep writing, and no pod restarts.
async fn operator_replaced(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    let reader = Reader::new(context)?;
    let pods = pods(&cluster).await?;
    let reported = reported(&cluster).await?;

    reader.follow(REMOVE_OPERATOR).await?;
    no_operator(context).await?;
    let stale = cluster.object().await?;
    history.goes_on(LIMIT).await?;
    ensure!(self::reported(&cluster).await? == reported, "the status is not the one of before");
    ensure!(cluster.object().await?.metadata == stale.metadata, "something changed the EtcdCluster");

    reader.follow(INSTALL).await?;
    takes_over(&cluster, "Disabled", &Promised::members(3).without_budget()).await?;
    ensure!(self::pods(&cluster).await? == pods, "a pod restarted after the operator was installed again");

    install::provide_image_as(IMAGE_OF_README, context.bed())?;
    reader.write("my-operator/kustomization.yaml", &readme::block(INSTALL, "yaml")?)?;
    let by_hand = format!("kubectl -n {NAMESPACE} scale deployment {DEPLOYMENT} --replicas=2");
    readme::run(context, &reader.folder, &by_hand).await?;
    reader.follow(UPGRADE).await?;
    ensure!(operator_image(context).await?.as_deref() == Some(IMAGE_OF_README), "another image");
    previous_operators_have_ended(context).await?;
    takes_over(&cluster, "Enabled", &Promised::members(3)).await?;
    ensure!(self::pods(&cluster).await? == pods, "a pod restarted after the operator was upgraded");
    let spec = json!({"size": 1, "storage": {"size": "1Gi"}});
    let new = Operated::create(context.client(), &context.namespace, "new", spec, context.progress).await?;
    new.wait_until_settled(1).await?;
    ensure!(agent_image(&new).await?.as_deref() == Some(IMAGE_OF_README), "another image for the agent");

    context.operator().await?;
    ensure!(operator_image(context).await?.as_deref() != Some(IMAGE_OF_README), "not the suite's operator");
    judged(context, history).await
}

/// Volumes stay or are deleted as each cluster's spec says, and those that stay can be adopted after a new installation.
async fn everything(context: &Context) -> Result<()> {
    let (kept, history) = born(context, 3, json!({})).await?;
    judged(context, history).await?;
    kept.members().await?.first().context("a member")?.put(KEY, VALUE).await?;
    let before = Identity::of(&kept).await?;
    let uid = kept.object().await?.uid().context("a UID")?;
    let spec = json!({"size": 1, "storage": {"size": "1Gi", "onDelete": "Delete"}});
    let deleted = context.operated("volatile", spec).await?;
    deleted.wait_until_settled(1).await?;

    let reader = Reader::new(context)?;
    reader.follow(REMOVE_EVERYTHING).await?;
    nothing_is_left(context, &[&kept, &deleted]).await?;
    let volumes = reader.follow(LIST_VOLUMES).await?;
    ensure!(kept.claim_names(3).iter().all(|name| volumes.contains(name)), "not listed:\n{volumes}");
    ensure!(claims(&kept).await? == kept.claim_names(3), "other volumes than those of three members");
    ensure!(claims(&deleted).await?.is_empty(), "onDelete: Delete, but volumes stay");

    context.operator().await?;
    let again = json!({"metadata": {"name": kept.name, "annotations": {ADOPT_ANNOTATION: uid}},
                       "spec": {"size": 3, "storage": {"size": "1Gi"}}});
    let again: EtcdCluster = serde_json::from_value(again)?;
    kept.api::<EtcdCluster>().create(&Default::default(), &again).await?;
    kept.wait_until_settled(3).await?;
    before.is_still_that_of(&kept).await?;
    context.step("the data and the identity are back");
    Ok(())
}

/// First with clusters as they are, then with a deletion of everything that hangs because no operator finishes it.
async fn everything_without_operator(context: &Context) -> Result<()> {
    let reader = Reader::new(context)?;
    context.operator().await?;
    clusters_of_other_tests_are_gone(context).await?;
    let spec = |on_delete: &str| json!({"size": 1, "storage": {"size": "1Gi", "onDelete": on_delete}});
    let first = context.operated("first", spec("Retain")).await?;
    let second = context.operated("second", spec("Delete")).await?;
    for cluster in [&first, &second] {
        cluster.wait_until_settled(1).await?;
    }
    reader.follow(REMOVE_OPERATOR).await?;
    reader.follow(REMOVE_EVERYTHING_WITHOUT_OPERATOR).await?;
    nothing_is_left(context, &[&first, &second]).await?;
    for cluster in [&first, &second] {
        ensure!(claims(cluster).await? == cluster.claim_names(1), "the volume of {} is gone", cluster.name);
    }

    let third = context.operated("third", spec("Retain")).await?;
    third.wait_until_settled(1).await?;
    // One command would race with the operator, which might still finish the deletion.
    reader.follow(REMOVE_OPERATOR).await?;
    let everything = "kubectl delete -k config/everything --ignore-not-found --wait=false";
    readme::run(context, &reader.folder, everything).await?;
    let hangs = |cluster: &EtcdCluster| {
        cluster.metadata.deletion_timestamp.is_some() && cluster.finalizers().iter().any(|it| it == FINALIZER)
    };
    third.wait_for("the deletion hangs without an operator", hangs).await?;
    reader.follow(REMOVE_EVERYTHING_WITHOUT_OPERATOR).await?;
    nothing_is_left(context, &[&third]).await?;
    ensure!(claims(&third).await? == third.claim_names(1), "the volume is gone");

    reader.follow(DELETE_VOLUMES).await?;
    for cluster in [&first, &second, &third] {
        ensure!(claims(cluster).await?.is_empty(), "volumes of {} are left", cluster.name);
    }
    context.operator().await.map(drop)
}

/// A folder like the tree's own, where a reader of README.md types.
struct Reader<'a> {
    context: &'a Context,
    folder: PathBuf,
}

impl<'a> Reader<'a> {
    fn new(context: &'a Context) -> Result<Self> {
        let folder = evidence::directory(context.test).join("tree");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        std::os::unix::fs::symlink(workspace::root().join("config"), folder.join("config"))
            .context("cannot link config")?;
        Ok(Self { context, folder })
    }

    /// Runs the commands below a heading.
    async fn follow(&self, heading: &str) -> Result<String> {
        readme::run(self.context, &self.folder, &readme::block(heading, "sh")?).await
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.folder.join(name);
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// The operator follows an edit that restarts nothing.
async fn takes_over(cluster: &Operated, budget: &str, promised: &Promised) -> Result<()> {
    cluster.edit(json!({"spec": {"podDisruptionBudget": budget}})).await?;
    cluster.wait_until_settled(promised.size).await?;
    cluster.agrees(promised).await
}

/// One that vanishes between two commands of a chain would end the chain.
async fn clusters_of_other_tests_are_gone(context: &Context) -> Result<()> {
    let all = Api::<EtcdCluster>::all(context.client().clone());
    let what = "the clusters of other tests are gone";
    wait::objects(all, Default::default(), what, LIMIT, BTreeMap::is_empty).await.map(drop)
}

/// What tells one run of each pod from another.
async fn pods(cluster: &Operated) -> Result<BTreeMap<String, (Option<String>, i32)>> {
    let pods = cluster.pods().await?.into_iter();
    Ok(pods.map(|(name, pod)| (name, (pod.metadata.uid.clone(), wait::restarts(&pod)))).collect())
}

/// What the status says, without its age.
async fn reported(cluster: &Operated) -> Result<Value> {
    let status = cluster.status().await?;
    Ok(json!([status.phase, status.ready_replicas, status.cluster_id, status.conditions]))
}

async fn claims(cluster: &Operated) -> Result<BTreeSet<String>> {
    Ok(cluster.claims().await?.into_keys().collect())
}

async fn operator_image(context: &Context) -> Result<Option<String>> {
    let deployments = Api::<Deployment>::namespaced(context.client().clone(), NAMESPACE);
    let pod = deployments.get(DEPLOYMENT).await?.spec.and_then(|spec| spec.template.spec);
    Ok(pod.and_then(|pod| pod.containers.into_iter().next()?.image))
}

/// `rollout status` does not wait for pods that are terminating, and one of them can lead until it has ended.
async fn previous_operators_have_ended(context: &Context) -> Result<()> {
    let pods = Api::<Pod>::namespaced(context.client().clone(), NAMESPACE);
    let is_new = |pod: &Pod| {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        container.and_then(|it| it.image.as_deref()) == Some(IMAGE_OF_README)
    };
    let what = "the previous operators have ended";
    wait::objects(pods, Default::default(), what, LIMIT, |pods| pods.values().all(is_new)).await.map(drop)
}

async fn agent_image(cluster: &Operated) -> Result<Option<String>> {
    let set = cluster.api::<StatefulSet>().get(&cluster.name).await?;
    let pod = set.spec.and_then(|spec| spec.template.spec);
    Ok(pod.and_then(|pod| pod.init_containers?.into_iter().next()?.image))
}

/// The command has returned, so this holds already.
async fn no_operator(context: &Context) -> Result<()> {
    let client = || context.client().clone();
    let roles = Api::<ClusterRole>::all(client()).get_opt(DEPLOYMENT).await?;
    let bindings = Api::<ClusterRoleBinding>::all(client()).get_opt(DEPLOYMENT).await?;
    ensure!(roles.is_none() && bindings.is_none(), "rights of the operator are left");
    let what = format!("namespace {NAMESPACE} is gone");
    wait::gone(Api::<Namespace>::all(client()), NAMESPACE, &what, LIMIT).await
}

async fn nothing_is_left(context: &Context, clusters: &[&Operated]) -> Result<()> {
    no_operator(context).await?;
    let definitions = Api::<CustomResourceDefinition>::all(context.client().clone());
    let definitions = definitions.list(&Default::default()).await?.into_iter();
    let ours: Vec<_> = definitions.filter(|it| it.spec.group == API_GROUP).map(|it| it.name_any()).collect();
    ensure!(ours.is_empty(), "definitions are left: {ours:?}");
    for cluster in clusters {
        let sets = cluster.labelled::<StatefulSet>().await?;
        ensure!(sets.is_empty(), "of {}: {:?}", cluster.name, sets.keys());
        let secrets = cluster.labelled::<Secret>().await?;
        ensure!(secrets.is_empty(), "private keys of {} are left: {:?}", cluster.name, secrets.keys());
        // The operator deletes the StatefulSet first, so pods that terminate no longer hold the command up.
        for (name, pod) in cluster.pods().await? {
            ensure!(pod.metadata.deletion_timestamp.is_some(), "{name} is left");
            wait::gone(cluster.api::<Pod>(), &name, &format!("pod {name} is gone"), LIMIT).await?;
        }
    }
    Ok(())
}
