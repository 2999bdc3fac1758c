//! Pods that can never start, by their image or by their volume: named in the status, and given up on request.

use anyhow::{Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::condition;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{holds, member};
use crate::suite::lifecycle::{asked_for, born, judged, scaled};

const QUOTA: &str = "one-volume";

/// The registry has no such image.
pub async fn by_image(context: &Context) -> Result<()> {
    let cluster = asked_for(context, 3, json!({"repository": "registry.invalid/nobody/etcd"})).await?;
    let named =
        |it: &EtcdCluster| ["kv-0", "kv-1", "kv-2"].iter().all(|pod| reason(it, pod).contains("Pull"));
    let seen = cluster.wait_for("the status names the image's failure for each pod", named).await?;
    context.step(reason(&seen, "kv-0"));
    ensure!(holds(&seen, condition::AVAILABLE).is_none(), "it is available: {:?}", seen.status);
    cluster.delete().await?;
    cluster.wait_until_gone().await
}

/// No StorageClass provides the volumes of a new cluster.
pub async fn by_storage_class(context: &Context) -> Result<()> {
    let cluster = asked_for(context, 1, json!({"storage": {"storageClassName": "absent"}})).await?;
    let named = |it: &EtcdCluster| {
        let why = reason(it, "kv-0");
        why.contains("PersistentVolumeClaim") || why.contains("storageclass")
    };
    let seen = cluster.wait_for("the status names the volume", named).await?;
    context.step(reason(&seen, "kv-0"));
    cluster.delete().await?;
    cluster.wait_until_gone().await
}

/// A quota lets no second volume be created, so the cluster stays as it is until the edit is reverted or there is room.
pub async fn by_volume(context: &Context) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::namespaced(context.client().clone(), &context.namespace);
    let (cluster, history) = born(context, 1, json!({})).await?;
    let quota = json!({"metadata": {"name": QUOTA}, "spec": {"hard": {"persistentvolumeclaims": "1"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    cluster.scale(3).await?;
    let named = |it: &EtcdCluster| {
        let reconciling = holds(it, condition::RECONCILING);
        reconciling.is_some_and(|it| it.message.contains(&format!("exceeded quota: {QUOTA}")))
    };
    let seen = cluster.wait_for("the status names the quota", named).await?;
    ensure!(holds(&seen, condition::AVAILABLE).is_some(), "it does not serve: {:?}", seen.status);
    ensure!(cluster.member_list().await?.len() == 1, "a member was added whose pod cannot start");
    history.goes_on(LIMIT).await?;

    scaled(&cluster, 1).await?;
    context.step("reverted the edit");
    quotas.delete(QUOTA, &DeleteParams::default()).await?;
    cluster.scale(3).await?;
    cluster.wait_until_settled(3).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}

/// Why the member in a pod does not serve.
fn reason(cluster: &EtcdCluster, pod: &str) -> String {
    member(cluster, pod).and_then(|it| it.reason.clone()).unwrap_or_default()
}
