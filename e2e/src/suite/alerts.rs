//! Alerts fire for real faults and clear when those end, as Prometheus sees them with the configuration and the rules that we ship.

use std::collections::BTreeSet;

use ::testbed::monitoring::{Firing, Monitoring, Prometheus};
use anyhow::{Result, ensure};
use etcd_operator_core::api::{BackupPhase, EtcdBackupStatus};
use futures::FutureExt;
use serde_json::json;

use super::BACK_OFF_LIMIT;
use super::backups::{correct_keys, create, create_wrong_keys, edit, prepared, until as until_backup};
use super::disturbed::cut_off;
use super::lifecycle::{NAME, judged};
use crate::operated::Operated;
use crate::runner::Context;
use crate::test::{Test, Topology};
use crate::wait;

/// Those that the faults of this test decide about. Others can fire on a slow machine.
const WATCHED: [&str; 5] =
    ["EtcdBackupFailed", "EtcdMemberDown", "EtcdQuorumLost", "EtcdQuorumMarginZero", "EtcdRolloutStalled"];

pub fn tests(field: &Topology) -> Vec<Test> {
    vec![field.exclusive("alerts::fire_for_real_faults_and_clear", |c| fire_and_clear(c).boxed_local())]
}

async fn fire_and_clear(context: &Context) -> Result<()> {
    let (cluster, store) = prepared(context, false).await?;
    create_wrong_keys(context).await?;
    let history = context.writers(&cluster).await?;
    let monitoring = Monitoring::start(context.client().clone(), Firing::AtOnce).await?;
    let fired = async {
        let watched = Watched { context, prometheus: monitoring.prometheus() };
        watched.until_read().await?;
        watched.until("none fires", &[]).await?;
        member_down(&watched, &cluster).await?;
        rollout_stalled(&watched, &cluster).await?;
        create(context, &store, "once", json!({})).await?;
        watched.until("the store rejects a copy", &["EtcdBackupFailed"]).await?;
        correct_keys(context).await?;
        edit(context, "once", json!({"compression": true})).await?;
        let is_taken = |it: &EtcdBackupStatus| it.phase == Some(BackupPhase::Completed);
        until_backup(context, "once", "the copy is taken", is_taken).await?;
        watched.until("the store accepts a copy", &[]).await
    };
    let fired = fired.await;
    monitoring.end().await?;
    fired?;
    judged(context, history).await
}

/// The operator does not reach it, and neither do the others.
async fn member_down(watched: &Watched<'_>, cluster: &Operated) -> Result<()> {
    let context = watched.context;
    let cut = context.inject(cut_off(cluster, "kv-2")).await?;
    watched.until("a member is down", &["EtcdMemberDown", "EtcdQuorumMarginZero"]).await?;
    context.undo(&cut).await?;
    watched.until("the member is back", &[]).await
}

async fn rollout_stalled(watched: &Watched<'_>, cluster: &Operated) -> Result<()> {
    let repository = cluster.object().await?.spec.repository;
    cluster.edit(json!({"spec": {"repository": "quay.io/coreos/no-such-etcd"}})).await?;
    watched.until("the rollout is stalled", &["EtcdRolloutStalled"]).await?;
    cluster.edit(json!({"spec": {"repository": repository}})).await?;
    watched.until("the edit is reverted", &[]).await
}

struct Watched<'a> {
    context: &'a Context,
    prometheus: &'a Prometheus,
}

impl Watched<'_> {
    /// Until Prometheus reads all members, and with a token the operator that leads.
    async fn until_read(&self) -> Result<()> {
        let of = format!("namespace=\"{}\",name=\"{NAME}\"", self.context.namespace);
        let all = format!(
            "count(etcd_server_has_leader{{{of}}}) == 3 and on () etcd_operator_cluster_ready_members{{{of}}} == 3"
        );
        let is_read = async || Ok(!self.prometheus.query(&all).await?.is_empty());
        let read =
            wait::until("Prometheus reads the operator and all members", BACK_OFF_LIMIT, is_read).await;
        read.map_err(|error| error.context(self.prometheus.log()))
    }

    /// Until exactly these of the alerts that are watched fire for the cluster.
    async fn until(&self, what: &str, expected: &[&str]) -> Result<()> {
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        ensure!(expected.iter().all(|it| WATCHED.contains(it)), "{expected:?} are not watched");
        let namespace = &self.context.namespace;
        let query = format!("ALERTS{{alertstate=\"firing\",namespace=\"{namespace}\",name=\"{NAME}\"}}");
        let fire = async || {
            let found = self.prometheus.query(&query).await?;
            let names = found.iter().filter_map(|it| it.labels["alertname"].as_str());
            Ok(names.filter(|it| WATCHED.contains(it)).collect::<BTreeSet<&str>>() == expected)
        };
        wait::until(&format!("{what}: {expected:?} fire"), BACK_OFF_LIMIT, fire).await?;
        self.context.step(format!("{what}, and these alerts fire: {expected:?}"));
        Ok(())
    }
}
