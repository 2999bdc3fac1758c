//! An etcd that ends before it has written anything: no cluster forms, which is said, and the way out works.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::{EtcdCluster, Phase};
use etcd_operator_core::names::{condition, reason};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::operated::Promised;
use crate::runner::Context;
use crate::suite::LIMIT;
use crate::suite::disturbed::{holds, refused_for};
use crate::suite::lifecycle::{asked_for, born, judged};
use crate::wait;

pub async fn told_and_made_anew(context: &Context) -> Result<()> {
    // etcd takes this argument, and finds out what it is worth when it starts.
    let loud = json!({"options": {"extraArguments": {"log-level": "loud"}}});
    let cluster = asked_for(context, 3, loud).await?;
    let (refused, _) = refused_for(context, &cluster, reason::BOOTSTRAP_FAILED).await?;
    let pods = cluster.pod_names(3);
    // Two are enough for that; the third is told when it has tried, too.
    let names_all = |it: &EtcdCluster| {
        holds(it, condition::STALLED).is_some_and(|it| pods.iter().all(|pod| it.message.contains(pod)))
    };
    cluster.wait_for("all three are named", names_all).await?;
    let phase = refused.status.and_then(|status| status.phase);
    ensure!(phase == Some(Phase::Failed), "it is {phase:?}");
    let words = ["logs", "--namespace", &cluster.namespace, "kv-0", "--previous"];
    // The agent tells of the end before the kubelet does.
    let tells = async || Ok(context.kubectl().run(&words).await.is_ok_and(|log| log.contains("loud")));
    wait::until("the previous log contains the cause", LIMIT, tells).await?;

    cluster.delete().await?;
    cluster.wait_until_gone().await?;
    let claims = cluster.api::<PersistentVolumeClaim>();
    let ours = ListParams::default().labels(&cluster.selector());
    claims.delete_collection(&DeleteParams::default(), &ours).await.context("cannot delete the claims")?;
    wait::until("the volumes are gone", LIMIT, async || Ok(cluster.claims().await?.is_empty())).await?;
    context.step("cluster and volumes are deleted");
    let (cluster, history) = born(context, 3, json!({})).await?;
    cluster.agrees(&Promised::members(3)).await?;
    judged(context, history).await
}
