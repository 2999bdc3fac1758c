//! The data of a cluster with TLS and authentication goes back to a copy, with consent, and the cluster keeps everything else.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::{BackupPhase, RestorePhase};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::ledger::Ledger;
use super::restored::restore;
use super::{create, create_keys, prepared, status_of, until};
use crate::runner::Context;

const LEDGER: Ledger = Ledger { prefix: "replaced", keys: 100 };

async fn claims(context: &Context) -> Result<Vec<String>> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client().clone(), &context.namespace);
    let list = claims.list(&ListParams::default()).await?;
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

pub async fn by_a_copy(context: &Context) -> Result<()> {
    let (cluster, store) = prepared(context, true).await?;
    create_keys(context).await?;
    let copied = LEDGER.write(&cluster, 1).await?;
    create(context, &store, "once", json!({})).await?;
    until(context, "once", "the backup completed", |it| it.phase == Some(BackupPhase::Completed)).await?;
    let copy = status_of(context, "once").await?.copies[0].name.clone();
    let last = LEDGER.write(&cluster, 2).await?;
    let (id, before) = (cluster.cluster_id().await?, claims(context).await?);

    let spec = json!({
        "backupName": "once", "clusterName": cluster.name, "restoreType": "Replace",
        "replace": {"clusterID": format!("{id:x}"), "oldVolumes": "Retain"},
    });
    let status = restore(context, "back", spec).await?;
    ensure!(status.phase == Some(RestorePhase::Completed), "not completed: {status:?}");
    ensure!(status.copy_name.as_ref() == Some(&copy), "another copy: {status:?}");
    ensure!(
        status.restored_revision.is_some_and(|it| it >= copied && it < last),
        "another revision: {status:?}"
    );
    cluster.wait_until_settled(3).await?;
    LEDGER.is_of(&cluster, 1).await?;
    ensure!(cluster.cluster_id().await? != id, "it has the ID of the data that was replaced");
    let served = status.served_revision.context("no revision")?;
    ensure!(served > last && cluster.revision().await? >= served, "clients would not notice: {status:?}");
    // What was there is kept, and named.
    let replaced = status.replaced.context("nothing was replaced")?;
    let mut left = replaced.volumes.clone();
    left.sort();
    let mut expected = before.clone();
    expected.sort();
    ensure!(left == expected, "other volumes: {replaced:?}");
    let after = claims(context).await?;
    ensure!(before.iter().all(|it| after.contains(it)), "a previous volume is gone: {after:?}");
    // Copies of the new data do not mix with those of the previous one.
    LEDGER.write(&cluster, 3).await?;
    create(context, &store, "afterwards", json!({})).await?;
    until(context, "afterwards", "the backup completed", |it| it.phase == Some(BackupPhase::Completed))
        .await?;
    let location = status_of(context, "afterwards").await?.copies[0].location.clone();
    ensure!(!location.contains(&format!("/{id:x}/")), "among the copies of the previous data: {location}");
    Ok(())
}
