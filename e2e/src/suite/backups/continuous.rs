//! The continuous archive while clients write and members restart, and restores of what lies between its copies.

use anyhow::{Result, ensure};
use etcd_operator_core::api::{ArchiveStatus, EtcdBackupStatus, RestorePhase};
use etcd_operator_core::names::condition;
use jiff::Timestamp;
use serde_json::json;

use super::ledger::Ledger;
use super::restored::{delete, restore};
use super::{VERSION, create, create_keys, prepared, status_of, until};
use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::lifecycle::judged;
use crate::wait;

const BACKUP: &str = "every-revision";
const RESTORED: &str = "restored";
const LEDGER: Ledger = Ledger { prefix: "ledger", keys: 50 };
/// Longer than the interval: what was written before it is confirmed before it ends.
const REST: std::time::Duration = std::time::Duration::from_secs(6);

fn is_archiving(status: &EtcdBackupStatus) -> bool {
    status.conditions.iter().any(|it| it.type_ == condition::ARCHIVING && it.status == "True")
}

fn archive(status: &EtcdBackupStatus) -> ArchiveStatus {
    status.archive.clone().unwrap_or_default()
}

pub async fn restored_to_a_revision_and_a_moment(context: &Context) -> Result<()> {
    let (cluster, store) = prepared(context, true).await?;
    create_keys(context).await?;
    create(context, &store, BACKUP, json!({"continuous": {"flushIntervalSeconds": 2}, "compression": true}))
        .await?;
    until(context, BACKUP, "everything is archived", is_archiving).await?;

    // Nothing else writes, so that a moment has one revision.
    let first = LEDGER.write(&cluster, 1).await?;
    tokio::time::sleep(REST).await;
    let moment = Timestamp::now();
    tokio::time::sleep(REST).await;
    LEDGER.write(&cluster, 2).await?;
    // The archive goes on while members restart under clients that write.
    let history = context.writers(&cluster).await?;
    cluster.edit(json!({"spec": {"options": {"snapshotCount": 5000}}})).await?;
    cluster.wait_until_settled(3).await?;
    judged(context, history).await?;
    let second = LEDGER.write(&cluster, 3).await?;
    until(context, BACKUP, "the last revision is archived", |status| {
        is_archiving(status) && archive(status).archived_revision >= Some(second)
    })
    .await?;
    let status = archive(&status_of(context, BACKUP).await?);
    ensure!(status.copies_requested == 1, "the archive had a gap: {status:?}");

    let security = json!({"auth": {"enabled": true}});
    let template = json!({"size": 3, "version": VERSION, "storage": {"size": "1Gi"}, "security": security});
    let spec = |field: &str, target: serde_json::Value| {
        let mut spec = json!({"backupName": BACKUP, "clusterName": RESTORED, "clusterTemplate": template});
        spec[field] = target;
        spec
    };
    let restored = Operated::existing(context.client(), &context.namespace, RESTORED, context.progress);
    for (name, target, revision, round) in [
        ("to-a-moment", spec("toTime", json!(moment.to_string())), Some(first), 1),
        ("to-a-revision", spec("toRevision", json!(second)), Some(second), 3),
    ] {
        let status = restore(context, name, target).await?;
        ensure!(status.phase == Some(RestorePhase::Completed), "not completed: {status:?}");
        ensure!(status.restored_revision == revision, "not revision {revision:?}: {status:?}");
        ensure!(status.served_revision > Some(second), "clients would not notice: {status:?}");
        restored.wait_until_settled(3).await?;
        LEDGER.is_of(&restored, round).await?;
        delete(context, &restored).await?;
    }
    let refused = restore(context, "to-the-future", spec("toRevision", json!(second + 1_000_000))).await?;
    let words =
        refused.conditions.iter().find(|it| it.type_ == condition::STALLED).map(|it| it.message.clone());
    ensure!(words.is_some_and(|it| it.contains("no segment has revision")), "other words: {refused:?}");
    let is_empty = async || Ok(restored.pods().await?.is_empty());
    wait::until("no member was started", crate::operated::LIMIT, is_empty).await
}
