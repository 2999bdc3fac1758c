//! A status that is never wrong: whatever is not as the spec asks for is reported, and holds nothing else up.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use etcd_operator_core::api::{EtcdCluster, Phase};
use etcd_operator_core::names::{condition, reason};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::{NAME, asked_for, born, judged};
use crate::operated::{Operated, Promised};
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{cut_off, holds, member, refused_for};

/// Not the ports of other tests, whose Services may still be there.
const NODE_PORT: u16 = 30381;
const SMALL_QUOTA: u64 = 16 << 20;

/// The API server accepts a request above its limit. The cluster goes on as it is, and a lost member is replaced.
pub async fn invalid_spec(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let too_much = json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}});
    cluster.edit(json!({"spec": {"size": 5, "resources": too_much}})).await?;
    let (refused, message) = refused_for(context, &cluster, reason::INVALID_SPEC).await?;
    ensure!(message.contains("spec.resources"), "the field is not named: {message}");
    serves_as_before(&refused)?;

    let within = ["--namespace", cluster.namespace.as_str()];
    for lost in [["pvc", "data-kv-1"], ["pod", "kv-1"]] {
        context.kubectl().run(&[&within[..], &["delete"], &lost, &["--wait=false"]].concat()).await?;
    }
    let former = member_id(&cluster, "kv-1").await?;
    let replaced = |it: &EtcdCluster| {
        let id = member(it, "kv-1").filter(|it| it.ready).and_then(|it| it.id.clone());
        id.is_some_and(|id| id != former)
    };
    let seen = cluster.wait_for("the lost member is replaced", replaced).await?;
    serves_as_before(&seen)?;
    ensure!(cluster.member_list().await?.len() == 3, "scaled while the spec is invalid");
    context.step("a lost member was replaced, and nothing was scaled");

    cluster.edit(json!({"spec": {"size": 3, "resources": null}})).await?;
    cluster.wait_for("it is ready again", |it| holds(it, condition::READY).is_some()).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}

fn serves_as_before(cluster: &EtcdCluster) -> Result<()> {
    let status = cluster.status.as_ref().context("a status")?;
    ensure!(status.phase == Some(Phase::Running), "it is {:?}", status.phase);
    ensure!(status.ready_replicas == Some(3), "READY is {:?}", status.ready_replicas);
    ensure!(holds(cluster, condition::AVAILABLE).is_some(), "not available: {:?}", status.conditions);
    let ready = unready(cluster).context("it is ready with an invalid spec")?;
    ensure!(ready.reason == reason::INVALID_SPEC, "not ready because of {}", ready.reason);
    Ok(())
}

async fn member_id(cluster: &Operated, pod: &str) -> Result<String> {
    let status = cluster.object().await?;
    member(&status, pod).and_then(|it| it.id.clone()).with_context(|| format!("{pod} is no member"))
}

/// Two clusters ask for the same port: the second one lacks its Service and nothing else.
pub async fn taken_node_port(context: &Context) -> Result<()> {
    let port = || json!({"externalAccess": {"nodePort": {"port": NODE_PORT}}});
    let (cluster, history) = born(context, 1, port()).await?;
    let spec = json!({"size": 1, "storage": {"size": "1Gi"}, "externalAccess": port()["externalAccess"]});
    let second = context.operated("second", spec).await?;
    second.scale(3).await?;
    let named = |it: &EtcdCluster| {
        let ready = it.status.as_ref().and_then(|status| status.ready_replicas);
        let failed = holds(it, condition::WRITE_FAILED);
        ready == Some(3) && failed.is_some_and(|it| it.message.contains("second-nodeport"))
    };
    let seen = second.wait_for("three members serve, and the Service is named", named).await?;
    let ready = unready(&seen).context("it is ready without its Service")?;
    ensure!(ready.reason == reason::WRITE_FAILED, "not ready because of {}", ready.reason);
    context.step(ready.message.clone());

    cluster.edit(json!({"spec": {"externalAccess": null}})).await?;
    second.wait_for("it has its Service", |it| holds(it, condition::READY).is_some()).await?;
    second.agrees(&Promised::members(3).with_node_port()).await?;
    second.delete().await?;
    second.wait_until_gone().await?;
    judged(context, history).await
}

/// Every member serves reads, but the database is full.
pub async fn alarm(context: &Context) -> Result<()> {
    let cluster = asked_for(context, 1, json!({"options": {"quotaBackendBytes": SMALL_QUOTA}})).await?;
    cluster.wait_until_settled(1).await?;
    let member = cluster.members().await?.into_iter().next().context("a member")?;
    let told = |it: &EtcdCluster| {
        let available = condition_of(it, condition::AVAILABLE);
        available.is_some_and(|it| it.status == "False" && it.reason == reason::ALARM_ACTIVE)
            && holds(it, condition::STALLED).is_some_and(|it| it.reason == reason::DATABASE_FULL)
    };
    // The operator reclaims space once. What is written then fills the database for good.
    let fill = async {
        for written in 0..64 {
            while member.put(&format!("fill/{written}"), vec![b'x'; 1 << 20]).await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    };
    let seen = tokio::select! {
        seen = cluster.wait_for("the alarm is reported, and that the data needs the quota", told) => seen?,
        () = fill => bail!("etcd takes more than its quota"),
    };
    let ready = unready(&seen).context("it is ready although it rejects writes")?;
    ensure!(ready.message.contains("NOSPACE on kv-0"), "not named: {}", ready.message);
    context.step(ready.message.clone());

    let etcdctl = ["--namespace", &cluster.namespace, "exec", "kv-0", "--container", "etcd", "--", "etcdctl"];
    let ask = async |words: &[&str]| context.kubectl().run(&[&etcdctl[..], words].concat()).await;
    // A deletion is a write, which etcd takes in spite of the alarm. The operator has compacted what was before.
    ask(&["del", "fill/", "--prefix"]).await?;
    let revision = cluster.revision().await?.to_string();
    for words in [&["compaction", &revision][..], &["defrag"], &["alarm", "disarm"]] {
        ask(words).await?;
    }
    cluster.wait_for("it is ready again", |it| holds(it, condition::READY).is_some()).await?;
    Ok(())
}

/// The API server rejects pods, which only the events of the StatefulSet tell.
pub async fn pods_rejected(context: &Context) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::namespaced(context.client().clone(), &context.namespace);
    let quota = json!({"metadata": {"name": "few-pods"}, "spec": {"hard": {"pods": "1"}}});
    let quota: ResourceQuota = serde_json::from_value(quota)?;
    quotas.create(&PostParams::default(), &quota).await?;
    let cluster = asked_for(context, 3, json!({})).await?;
    let named = |it: &EtcdCluster| {
        let reconciling = holds(it, condition::RECONCILING);
        reconciling.is_some_and(|it| it.message.contains("exceeded quota: few-pods"))
    };
    let seen = cluster.wait_for("the quota is named", named).await?;
    context.step(holds(&seen, condition::RECONCILING).context("it waits")?.message.clone());
    quotas.delete("few-pods", &DeleteParams::default()).await?;
    // The StatefulSet tries again by itself only after minutes.
    let poke = ["annotate", "statefulset", NAME, "poke=1", "--namespace", &cluster.namespace];
    context.kubectl().run(&poke).await?;
    cluster.wait_for("it is ready", |it| holds(it, condition::READY).is_some()).await?;
    cluster.agrees(&Promised::members(3)).await
}

/// A member that is down for long is not "nothing to do".
pub async fn member_down(context: &Context) -> Result<()> {
    let (cluster, history) = born(context, 3, json!({})).await?;
    let cut = context.inject(cut_off(&cluster, "kv-2")).await?;
    let told = |it: &EtcdCluster| {
        let reconciling = holds(it, condition::RECONCILING);
        reconciling.is_some_and(|it| it.reason == reason::AWAITING_RECOVERY && it.message.contains("kv-2"))
    };
    let seen = cluster.wait_for("the member is waited for", told).await?;
    let message = holds(&seen, condition::RECONCILING).context("it waits")?.message.clone();
    ensure!(message.contains(" since 20"), "it does not say since when: {message}");
    context.step(message);
    history.goes_on(LIMIT).await?;
    context.undo(&cut).await?;
    cluster.wait_for("it is ready again", |it| holds(it, condition::READY).is_some()).await?;
    judged(context, history).await
}

fn condition_of<'a>(cluster: &'a EtcdCluster, type_: &str) -> Option<&'a Condition> {
    cluster.status.as_ref()?.conditions.iter().find(|it| it.type_ == type_)
}

/// The condition Ready, if it is false.
fn unready(cluster: &EtcdCluster) -> Option<&Condition> {
    condition_of(cluster, condition::READY).filter(|it| it.status == "False")
}
