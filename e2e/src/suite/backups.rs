//! Backups to a real S3 server over TLS, while clients write.

mod continuous;
mod ledger;
mod replaced;
mod restored;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ::testbed::store::{Options, S3};
use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::{BackupPhase, EtcdBackup, EtcdBackupStatus, EtcdCluster};
use etcd_operator_core::auth::User;
use etcd_operator_core::backup::manifest::Manifest;
use etcd_operator_core::names::{condition, reason};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::BACK_OFF_LIMIT;
use crate::suite::disturbed::{etcdctl, holds};
use crate::suite::lifecycle::{NAME, asked_for, judged};
use crate::test::{Test, Topology};
use crate::wait;

const VERSION: &str = "v3.6.16";
const PREVIOUS: &str = "v3.5.35";
const PATH: &str = "e2e";
const KEYS: &str = "s3-credentials";
const AUTHORITY: &str = "s3-authority";

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field.shared("backups::on_demand_over_tls", |c| on_demand(c).boxed_local()).smoke(),
        field.shared("backups::scheduled_with_retention", |c| scheduled(c).boxed_local()),
        field
            .shared("backups::restored_after_everything_was_deleted", |c| {
                restored::after_everything_was_deleted(c).boxed_local()
            })
            .smoke(),
        field.shared("backups::restored_to_a_revision_and_a_moment", |c| {
            continuous::restored_to_a_revision_and_a_moment(c).boxed_local()
        }),
        field.shared("backups::data_of_a_cluster_is_replaced", |c| replaced::by_a_copy(c).boxed_local()),
        field.shared("backups::a_missing_key_is_named", |c| missing_key(c).boxed_local()),
        field.shared("backups::an_upgrade_waits_for_a_copy", |c| upgrade(c).boxed_local()),
    ]
}

/// A cluster with TLS, and a store.
pub(super) async fn prepared(context: &Context, with_auth: bool) -> Result<(Operated, S3)> {
    prepared_with(context, VERSION, with_auth).await
}

async fn prepared_with(context: &Context, version: &str, with_auth: bool) -> Result<(Operated, S3)> {
    ::testbed::image::ensure_etcd(version).await.context("cannot create the image")?;
    context.operator().await?;
    let security = json!({"auth": {"enabled": with_auth}});
    let cluster = asked_for(context, 3, json!({"version": version, "security": security})).await?;
    cluster.wait_until_settled(3).await?;
    if with_auth {
        // Tests write as an application does, which has no rights at first.
        let is_enabled = |it: &_| holds(it, condition::AUTH_READY).is_some();
        cluster.wait_for("authentication is enabled", is_enabled).await?;
        etcdctl(context, &cluster, "kv-0", &["user", "grant-role", User::Client.name(), "root"]).await?;
    }
    let store = S3::start_for_pods(Options { tls: true, ..Options::default() }).await?;
    create_secret(context, AUTHORITY, json!({"ca.crt": std::fs::read_to_string(store.authority())?})).await?;
    Ok((cluster, store))
}

async fn create_secret(context: &Context, name: &str, content: Value) -> Result<()> {
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": name}, "stringData": content}))?;
    let secrets = Api::<Secret>::namespaced(context.client().clone(), &context.namespace);
    secrets.create(&PostParams::default(), &secret).await.map(drop).context("cannot create a Secret")
}

async fn create_keys(context: &Context) -> Result<()> {
    let keys = json!({"AWS_ACCESS_KEY_ID": S3::ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": S3::SECRET_KEY});
    create_secret(context, KEYS, keys).await
}

/// The store rejects them.
pub(super) async fn create_wrong_keys(context: &Context) -> Result<()> {
    let wrong = json!({"AWS_ACCESS_KEY_ID": S3::ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": "wrong"});
    create_secret(context, KEYS, wrong).await
}

pub(super) async fn correct_keys(context: &Context) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(context.client().clone(), &context.namespace);
    let right = Patch::Merge(json!({"stringData": {"AWS_SECRET_ACCESS_KEY": S3::SECRET_KEY}}));
    secrets.patch(KEYS, &PatchParams::default(), &right).await.map(drop).context("cannot patch a Secret")
}

/// Of the spec of an EtcdBackup.
pub(super) async fn edit(context: &Context, name: &str, spec: Value) -> Result<()> {
    let change = Patch::Merge(json!({"spec": spec}));
    let edited = backups(context).patch(name, &PatchParams::default(), &change).await;
    edited.map(drop).context("cannot edit an EtcdBackup")
}

fn backups(context: &Context) -> Api<EtcdBackup> {
    Api::namespaced(context.client().clone(), &context.namespace)
}

fn s3(store: &S3) -> Value {
    json!({
        "bucket": S3::BUCKET, "region": S3::REGION, "endpoint": store.endpoint(), "caSecret": AUTHORITY, "path": PATH,
        "accessKeySecret": KEYS, "secretKeySecret": KEYS,
    })
}

pub(super) async fn create(context: &Context, store: &S3, name: &str, more: Value) -> Result<()> {
    let mut spec = json!({"clusterName": NAME, "storageType": "S3", "s3": s3(store)});
    for (field, value) in more.as_object().context("not an object")? {
        spec[field] = value.clone();
    }
    let backup = EtcdBackup::new(name, serde_json::from_value(spec)?);
    backups(context)
        .create(&PostParams::default(), &backup)
        .await
        .map(drop)
        .context("cannot create an EtcdBackup")
}

async fn status_of(context: &Context, name: &str) -> Result<EtcdBackupStatus> {
    Ok(backups(context).get(name).await?.status.unwrap_or_default())
}

pub(super) async fn until(
    context: &Context,
    name: &str,
    what: &str,
    holds: impl Fn(&EtcdBackupStatus) -> bool,
) -> Result<()> {
    wait::until(what, BACK_OFF_LIMIT, async || Ok(holds(&status_of(context, name).await?))).await?;
    context.step(what);
    Ok(())
}

/// What the cluster has in the store.
async fn folder(cluster: &Operated, store: &S3) -> Result<PathBuf> {
    let cluster = cluster.api::<EtcdCluster>().get(NAME).await?;
    let id = cluster.status.and_then(|status| status.cluster_id).context("it has no ID")?;
    Ok(store.bucket().join(PATH).join(id))
}

fn manifest_names(folder: &Path) -> Result<BTreeSet<String>> {
    let entries = std::fs::read_dir(folder.join("copies")).context("there are no copies")?;
    let names =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().trim_end_matches(".json").to_owned()));
    names.collect()
}

async fn on_demand(context: &Context) -> Result<()> {
    let (cluster, store) = prepared(context, false).await?;
    create_keys(context).await?;
    let history = context.writers(&cluster).await?;
    create(context, &store, "once", json!({"compression": true})).await?;
    until(context, "once", "the backup completed", |it| it.phase == Some(BackupPhase::Completed)).await?;
    let status = status_of(context, "once").await?;
    let (copy, folder) = (status.copies.first().context("no copy")?, folder(&cluster, &store).await?);
    ensure!(manifest_names(&folder)? == BTreeSet::from([copy.name.clone()]), "other copies in the store");
    let manifest = std::fs::read(folder.join("copies").join(format!("{}.json", copy.name)))?;
    let manifest: Manifest = serde_json::from_slice(&manifest)?;
    let data = std::fs::metadata(folder.join("data").join(&manifest.data.file))?;
    ensure!(
        i64::try_from(data.len()).ok() == status.backup_size,
        "another size than {:?}",
        status.backup_size
    );
    let reported = |it: &EtcdCluster| {
        let status = it.status.clone().unwrap_or_default();
        let is_healthy =
            status.conditions.iter().any(|it| it.type_ == condition::BACKUP_HEALTHY && it.status == "True");
        is_healthy && status.last_backup_time.as_ref() == Some(&copy.time)
    };
    cluster.wait_for("the cluster reports its backup", reported).await?;
    judged(context, history).await
}

/// Three times, of which the last two stay.
async fn scheduled(context: &Context) -> Result<()> {
    let (cluster, store) = prepared(context, false).await?;
    create_keys(context).await?;
    let history = context.writers(&cluster).await?;
    let schedule = json!({"schedule": "* * * * *", "retentionPolicy": {"maxBackups": 2}});
    create(context, &store, "often", schedule).await?;
    let mut seen = Vec::new();
    for count in 1..=3 {
        let is_new = |it: &EtcdBackupStatus| it.copies.first().is_some_and(|copy| !seen.contains(&copy.name));
        until(context, "often", &format!("copy {count} of 3"), is_new).await?;
        seen.push(status_of(context, "often").await?.copies[0].name.clone());
    }
    edit(context, "often", json!({"suspend": true})).await?;
    let rests =
        |it: &EtcdBackupStatus| it.next_run_time.is_none() && it.phase == Some(BackupPhase::Completed);
    until(context, "often", "the schedule is suspended", rests).await?;
    let status = status_of(context, "often").await?;
    let listed: BTreeSet<_> = status.copies.iter().map(|copy| copy.name.clone()).collect();
    let stored = manifest_names(&folder(&cluster, &store).await?)?;
    ensure!(stored == listed && stored.len() == 2, "stored {stored:?}, listed {listed:?}");
    ensure!(!stored.contains(&seen[0]), "the oldest copy is still there");
    judged(context, history).await?;
    backups(context).delete("often", &DeleteParams::default()).await?;
    Ok(())
}

/// Also: etcd's authentication is enabled, and no client has rights but the operator and the Job.
async fn missing_key(context: &Context) -> Result<()> {
    let (_cluster, store) = prepared(context, true).await?;
    create(context, &store, "once", json!({})).await?;
    let named = |it: &EtcdBackupStatus| it.conditions.iter().any(|it| it.message.contains(KEYS));
    until(context, "once", "the missing Secret is named", named).await?;
    create_keys(context).await?;
    until(context, "once", "the backup completed", |it| it.phase == Some(BackupPhase::Completed)).await
}

/// No member restarts while the store rejects the copy; with the right keys the copy is taken, and then the members restart.
async fn upgrade(context: &Context) -> Result<()> {
    let (cluster, store) = prepared_with(context, PREVIOUS, false).await?;
    ::testbed::image::ensure_etcd(VERSION).await.context("cannot create the image")?;
    create_wrong_keys(context).await?;
    create(context, &store, "yearly", json!({"schedule": "0 0 1 1 *"})).await?;
    let history = context.writers(&cluster).await?;
    let pods = uids(&cluster).await?;
    cluster.edit(json!({"spec": {"version": VERSION}})).await?;
    let stalled = |it: &EtcdCluster| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|it| {
            it.type_ == condition::ROLLOUT_STALLED
                && it.status == "True"
                && it.reason == reason::BACKUP_FAILED
        })
    };
    cluster.wait_for("the rollout is stalled, because the copy failed", stalled).await?;
    ensure!(uids(&cluster).await? == pods, "a member restarted without a copy");
    correct_keys(context).await?;
    edit(context, "yearly", json!({"compression": true})).await?;
    let is_taken =
        |it: &EtcdBackupStatus| it.last_requested_run.as_ref().is_some_and(|run| run.failure.is_none());
    until(context, "yearly", "the copy is taken", is_taken).await?;
    let upgraded = |it: &EtcdCluster| {
        let status = it.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().any(|it| it.type_ == condition::READY && it.status == "True");
        ready && status.version.as_deref() == Some(VERSION)
    };
    cluster.wait_for("all members run the new version", upgraded).await?;
    let status = status_of(context, "yearly").await?;
    let taken_from = status.etcd_version.context("no copy")?;
    ensure!(PREVIOUS.ends_with(&taken_from), "the copy is of {taken_from}");
    let copied_at = status.copies.first().context("no copy")?.time.0.as_second();
    for (name, pod) in cluster.pods().await? {
        let created = pod.metadata.creation_timestamp.context("no time")?.0.as_second();
        ensure!(created >= copied_at, "{name} restarted before the copy");
    }
    judged(context, history).await
}

async fn uids(cluster: &Operated) -> Result<BTreeSet<Option<String>>> {
    Ok(cluster.pods().await?.into_values().map(|pod| pod.metadata.uid).collect())
}
