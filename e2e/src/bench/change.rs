//! One change of one cluster, watched in etcd and in the status, each on its own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use etcd_operator_core::api::EtcdCluster;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use tokio::sync::watch;

use super::samples::Sample;
use crate::access::ClientSecrets;
use crate::etcd::Member;
use crate::operated::{Operated, is_settled};
use crate::wait::{self, Seen};
use crate::{progress, serving};

const LIMIT: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(20);

/// Watches that were opened before the change.
pub struct Change {
    name: String,
    pods: watch::Receiver<Seen<Pod>>,
    clusters: watch::Receiver<Seen<EtcdCluster>>,
    secrets: ClientSecrets,
}

impl Change {
    pub async fn expect(cluster: &Operated) -> Result<Self> {
        let named = watcher::Config::default().fields(&format!("metadata.name={}", cluster.name));
        let mut change = Self {
            name: cluster.name.clone(),
            pods: wait::follow(cluster.api(), watcher::Config::default().labels(&cluster.selector())),
            clusters: wait::follow(cluster.api(), named),
            secrets: cluster.secrets().clone(),
        };
        change.pods.wait_for(Option::is_some).await.context("the watch on pods ended")?;
        change.clusters.wait_for(Option::is_some).await.context("the watch of clusters ended")?;
        change.secrets.listed().await?;
        Ok(change)
    }

    /// Returns when the cluster has so many members, each of them serves, and the status says so.
    pub async fn done(self, began: Instant, size: u8) -> Result<Sample> {
        let Self { name, pods, clusters, secrets } = self;
        let in_status = async |says_so: fn(&EtcdCluster, u8) -> bool| {
            let said = |seen: &Seen<EtcdCluster>| {
                seen.as_ref().and_then(|seen| seen.get(&name)).is_some_and(|it| says_so(it, size))
            };
            clusters.clone().wait_for(said).await.context("the watch of clusters ended")?;
            anyhow::Ok(Instant::now())
        };
        let in_etcd = async { anyhow::Ok(in_etcd(pods, &secrets, usize::from(size)).await) };
        let what = format!("{name} has {size} member(s) and its status shows them");
        let all = async { tokio::try_join!(in_status(is_settled), in_status(shows_members), in_etcd) };
        let Ok(reached) = progress::told(&what, tokio::time::timeout(LIMIT, all)).await else {
            bail!("timed out after {LIMIT:?}: {what}");
        };
        let (settled, shown, etcd) = reached?;
        let time = settled.max(etcd).duration_since(began);
        Ok(Sample { time, status_lag: Some(shown.saturating_duration_since(etcd)), ..Sample::default() })
    }
}

/// What `kubectl get` shows as READY. That pods and volumes are gone, too, is another matter.
fn shows_members(cluster: &EtcdCluster, size: u8) -> bool {
    let ready = cluster.status.as_ref().and_then(|status| status.ready_replicas);
    if size == 0 { is_settled(cluster, size) } else { ready == Some(i32::from(size)) }
}

/// When etcd itself had so many voters and every one of them served; without any, when no pod was left.
async fn in_etcd(mut pods: watch::Receiver<Seen<Pod>>, secrets: &ClientSecrets, size: usize) -> Instant {
    loop {
        let (left, members) = {
            let seen = pods.borrow_and_update();
            (seen.as_ref().map_or(0, |seen| seen.len()), serving::members(seen.as_ref(), secrets))
        };
        let reached = if size == 0 { left == 0 } else { have_voters(&members, size).await };
        if reached {
            return Instant::now();
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The first is asked alone until it tells of the right members: asking costs the machine something, too.
async fn have_voters(members: &[Member], size: usize) -> bool {
    let Some((first, others)) = members.split_first().filter(|_| members.len() >= size) else { return false };
    let lists_them = async |member: &Member| {
        let listed = member.list().await?;
        let started = listed.iter().filter(|it| !it.is_learner && !it.name.is_empty()).count();
        anyhow::ensure!(listed.len() == size && started == size, "{listed:?}");
        anyhow::Ok(listed)
    };
    let Ok(listed) = lists_them(first).await else { return false };
    let is_listed = |member: &&Member| listed.iter().any(|it| it.name == member.name);
    let others: Vec<_> = others.iter().filter(is_listed).collect();
    others.len() + 1 == size && try_join_all(others.into_iter().map(lists_them)).await.is_ok()
}
