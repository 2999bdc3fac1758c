//! etcd's own authentication, with clients that write all the time.

use anyhow::{Context as _, Result, ensure};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::auth::{PASSWORD_KEY, User};
use etcd_operator_core::names::{condition, reason};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::etcd::Member;
use crate::history::History;
use crate::operated::Operated;
use crate::runner::Context;
use crate::suite::lifecycle::{NAME, asked_for, judged, scaled};
use crate::suite::rolls::{form, rolled};
use crate::suite::{BACK_OFF_LIMIT, KEY};
use crate::test::{Test, Topology};
use crate::wait;

const ROOT: &str = "kv-root";
const VERSIONS: [&str; 3] = ["v3.5.35", "v3.6.16", "v3.7.3"];

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![
        field.shared("auth::scaling_under_authentication", |c| scaling(c).boxed_local()).smoke(),
        field.shared("auth::what_somebody_changes_by_hand_is_changed_back", |c| by_hand(c).boxed_local()),
        field.shared("auth::an_old_etcd_3_5_is_ready_under_authentication", |c| {
            probed_by_command(c).boxed_local()
        }),
        field.shared("auth::minor_versions_under_authentication", |c| upgrades(c).boxed_local()),
    ]
}

/// With authentication from the beginning, and a password for root.
async fn guarded(context: &Context, size: u8, version: &str) -> Result<Operated> {
    ::testbed::image::ensure_etcd(version).await.context("cannot create the image")?;
    context.operator().await?;
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": ROOT}, "stringData": {PASSWORD_KEY: "first"}}))?;
    let secrets = kube::Api::<Secret>::namespaced(context.client().clone(), &context.namespace);
    secrets.create(&PostParams::default(), &secret).await?;
    let auth = json!({"enabled": true, "rootPasswordSecret": ROOT});
    let cluster = asked_for(context, size, json!({"version": version, "security": {"auth": auth}})).await?;
    cluster.wait_until_settled(size).await?;
    cluster.wait_for("authentication is enabled", is_enabled).await?;
    Ok(cluster)
}

fn is_enabled(cluster: &EtcdCluster) -> bool {
    let mut conditions = cluster.status.iter().flat_map(|it| &it.conditions);
    conditions.any(|it| it.type_ == condition::AUTH_READY && it.reason == reason::AUTH_ENABLED)
}

/// etcdctl logs in within its dial timeout, and the two seconds that it has by default are not enough on a busy machine.
async fn etcdctl(context: &Context, arguments: &[&str]) -> Result<String> {
    let pod = format!("{NAME}-0");
    let exec = ["--namespace", &context.namespace, "exec", &pod, "-c", "etcd", "--"];
    let etcdctl = ["etcdctl", "--dial-timeout=30s", "--command-timeout=30s"];
    context.kubectl().run(&[&exec[..], &etcdctl, arguments].concat()).await
}

async fn first_member(cluster: &Operated) -> Result<Member> {
    cluster.members().await?.into_iter().next().context("there is no member")
}

/// The checks of a cluster ask for more than an application does, so its user becomes an administrator. Before, it has no
/// rights at all.
async fn with_clients(context: &Context, cluster: &Operated) -> Result<History> {
    let refused = first_member(cluster).await?.linearizable_read(KEY).await;
    ensure!(refused.is_err(), "a client without rights can read");
    etcdctl(context, &["user", "grant-role", User::Client.name(), "root"]).await?;
    first_member(cluster).await?.linearizable_read(KEY).await.context("a client with rights")?;
    for works in [&["member", "list"][..], &["endpoint", "health"], &["user", "list"]] {
        etcdctl(context, works).await.with_context(|| format!("etcdctl {works:?}"))?;
    }
    context.step("the user of applications has rights");
    context.writers(cluster).await
}

/// Also: the password of root changes with its Secret.
async fn scaling(context: &Context) -> Result<()> {
    let cluster = guarded(context, 1, "v3.6.16").await?;
    let history = with_clients(context, &cluster).await?;
    for size in [3, 2, 3] {
        scaled(&cluster, size).await?;
    }
    etcdctl(context, &["--user", "root:first", "user", "list"]).await.context("the first password")?;
    let change = Patch::Merge(json!({"stringData": {PASSWORD_KEY: "second"}}));
    cluster.api::<Secret>().patch(ROOT, &PatchParams::default(), &change).await?;
    let changed = async || Ok(etcdctl(context, &["--user", "root:second", "user", "list"]).await.is_ok());
    wait::until("the password is changed", BACK_OFF_LIMIT, changed).await?;
    let refused = etcdctl(context, &["--user", "root:first", "user", "list"]).await;
    let refused = refused.err().context("the first one works")?;
    ensure!(format!("{refused:#}").contains("authentication failed"), "the first one: {refused:#}");
    judged(context, history).await
}

async fn by_hand(context: &Context) -> Result<()> {
    let cluster = guarded(context, 3, "v3.5.21").await?;
    let history = with_clients(context, &cluster).await?;
    etcdctl(context, &["auth", "disable"]).await?;
    let enabled = async || Ok(etcdctl(context, &["auth", "status"]).await?.contains("true"));
    wait::until("authentication is enabled again", BACK_OFF_LIMIT, enabled).await?;
    cluster.edit(json!({"spec": {"security": {"auth": {"enabled": false}}}})).await?;
    let disabled = async || Ok(etcdctl(context, &["auth", "status"]).await?.contains("false"));
    wait::until("authentication is disabled", BACK_OFF_LIMIT, disabled).await?;
    etcdctl(context, &["auth", "enable"]).await?;
    wait::until("authentication is disabled again", BACK_OFF_LIMIT, disabled).await?;
    judged(context, history).await
}

/// Its readiness probe is a command in the pod, which has the certificate of the operator.
async fn probed_by_command(context: &Context) -> Result<()> {
    let cluster = guarded(context, 1, "v3.5.9").await?;
    let history = with_clients(context, &cluster).await?;
    scaled(&cluster, 3).await?;
    judged(context, history).await
}

async fn upgrades(context: &Context) -> Result<()> {
    let (first, others) = VERSIONS.split_first().context("no version")?;
    let cluster = guarded(context, 3, first).await?;
    let history = with_clients(context, &cluster).await?;
    for version in others {
        ::testbed::image::ensure_etcd(version).await.context("cannot create the image")?;
        let before = form(&cluster).await?;
        cluster.edit(json!({"spec": {"version": version}})).await?;
        rolled(context, &cluster, 3, &before).await?;
        cluster.wait_for("authentication is enabled", is_enabled).await?;
        context.step(format!("all members run {version}"));
    }
    judged(context, history).await
}
