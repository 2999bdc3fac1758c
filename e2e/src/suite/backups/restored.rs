//! A cluster is deleted with everything that it had, and comes back from the store.

use ::testbed::store::S3;
use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::{BackupPhase, EtcdBackup, EtcdRestore, EtcdRestoreStatus, RestorePhase};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::{PATH, VERSION, create, create_keys, prepared, s3, status_of, until};
use crate::operated::{LIMIT, Operated};
use crate::runner::Context;
use crate::suite::BACK_OFF_LIMIT;
use crate::wait;

const KEYS: usize = 200;
const RESTORED: &str = "restored";

fn restores(context: &Context) -> Api<EtcdRestore> {
    Api::namespaced(context.client().clone(), &context.namespace)
}

pub async fn restore(context: &Context, name: &str, spec: Value) -> Result<EtcdRestoreStatus> {
    let restore = EtcdRestore::new(name, serde_json::from_value(spec)?);
    restores(context)
        .create(&PostParams::default(), &restore)
        .await
        .context("cannot create an EtcdRestore")?;
    let status = async || anyhow::Ok(restores(context).get(name).await?.status.unwrap_or_default());
    let is_over = async || Ok(status().await?.completion_time.is_some());
    wait::until(&format!("EtcdRestore {name} is over"), BACK_OFF_LIMIT, is_over).await?;
    context.step(format!("EtcdRestore {name} is over"));
    status().await
}

pub fn value(number: usize) -> String {
    format!("value {number}")
}

async fn fill(cluster: &Operated) -> Result<()> {
    let members = cluster.members().await?;
    let member = members.first().context("no member")?;
    for number in 0..KEYS {
        member.put(&format!("restored/{number}"), value(number)).await?;
    }
    Ok(())
}

/// The only things left are the store and the Secrets with its credentials.
async fn delete_everything(context: &Context, cluster: &Operated) -> Result<()> {
    let backups: Api<EtcdBackup> = Api::namespaced(context.client().clone(), &context.namespace);
    backups.delete("once", &DeleteParams::default()).await?;
    delete(context, cluster).await
}

pub async fn delete(context: &Context, cluster: &Operated) -> Result<()> {
    cluster.delete().await?;
    cluster.wait_until_gone().await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client().clone(), &context.namespace);
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let is_empty = async || Ok(claims.list(&ListParams::default()).await?.items.is_empty());
    wait::until("the volumes are gone", LIMIT, is_empty).await
}

pub async fn after_everything_was_deleted(context: &Context) -> Result<()> {
    let (cluster, store) = prepared(context, false).await?;
    create_keys(context).await?;
    fill(&cluster).await?;
    let last = cluster.revision().await?;
    create(context, &store, "once", json!({"compression": true})).await?;
    until(context, "once", "the backup completed", |it| it.phase == Some(BackupPhase::Completed)).await?;
    let copy = status_of(context, "once").await?.copies[0].name.clone();
    let id = cluster.cluster_id().await?;
    delete_everything(context, &cluster).await?;

    let source = |store: &S3| json!({"storageType": "S3", "s3": s3(store)});
    let template = |version: &str| json!({"size": 3, "version": version, "storage": {"size": "1Gi"}});
    let spec = |version: &str| json!({"source": source(&store), "clusterName": RESTORED, "clusterTemplate": template(version)});
    // An older etcd cannot read the data, and nothing of it is started.
    let refused = restore(context, "older", spec("v3.5.35")).await?;
    let reason = refused.conditions.iter().find(|it| it.type_ == "Stalled").map(|it| it.reason.clone());
    ensure!(reason.as_deref() == Some("CopyUnusable"), "another reason: {refused:?}");
    let restored = Operated::existing(context.client(), &context.namespace, RESTORED, context.progress);
    ensure!(restored.pods().await?.is_empty(), "a member was started");
    delete(context, &restored).await?;

    let status = restore(context, "newest", spec(VERSION)).await?;
    ensure!(status.phase == Some(RestorePhase::Completed), "not completed: {status:?}");
    ensure!(status.copy_name.as_ref() == Some(&copy), "another copy: {status:?}");
    ensure!(status.restored_revision == Some(last), "not revision {last}: {status:?}");
    restored.wait_until_settled(3).await?;
    ensure!(restored.cluster_id().await? != id, "it has the ID of the old cluster");
    let served = status.served_revision.context("no revision")?;
    ensure!(restored.revision().await? >= served && served > last, "clients would not notice: {status:?}");
    for member in restored.members().await? {
        for number in 0..KEYS {
            let key = format!("restored/{number}");
            let found = member.linearizable_read(&key).await?;
            let expected = value(number);
            ensure!(
                found.as_ref() == Some(&expected),
                "{key} of {}: {found:?}, not {expected:?}",
                member.name
            );
        }
    }
    ensure!(store.bucket().join(PATH).join(format!("{id:x}")).exists(), "the copies of the old cluster stay");
    Ok(())
}
