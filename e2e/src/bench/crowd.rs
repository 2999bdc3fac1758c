//! Many clusters at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::CLUSTER_LABEL;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client};

use super::operation::{CROWD, Subject};
use super::samples::Sample;
use super::stage::spec;
use crate::access::ClientSecrets;
use crate::operated::{Operated, is_settled};
use crate::plain::Plain;
use crate::progress::Progress;
use crate::serving::Serving;
use crate::wait;

const LIMIT: Duration = Duration::from_secs(300);
/// Between two looks: nearly all of the crowd are silent for most of the time.
const PAUSE: Duration = Duration::from_millis(100);

/// From the first write to the API until each of them has served.
pub async fn plain(client: &Client, namespace: &str) -> Result<Sample> {
    let crowd: Vec<_> = names().map(|name| Plain::new(namespace, name, 1)).collect();
    let serving = serving(client, namespace, "app.kubernetes.io/name=etcd", ClientSecrets::none());
    let began = Instant::now();
    try_join_all(crowd.iter().map(|one| one.apply(client))).await?;
    serving.wait("all plain StatefulSets serve", LIMIT, |_| {}).await?;
    Ok(Sample { time: began.elapsed(), ..Sample::default() })
}

/// Until the status of each says so, too.
pub async fn operated(
    client: &Client,
    namespace: &str,
    subject: Subject,
    progress: Progress,
) -> Result<Sample> {
    let clusters = Api::<EtcdCluster>::namespaced(client.clone(), namespace);
    let mut statuses = wait::follow(clusters, watcher::Config::default());
    let secrets = ClientSecrets::of_namespace(client.clone(), namespace);
    secrets.listed().await?;
    let serving = serving(client, namespace, CLUSTER_LABEL, secrets);
    let began = Instant::now();
    let asked = names()
        .map(async |name| Operated::create(client, namespace, &name, spec(1, subject), progress).await);
    try_join_all(asked).await?;
    let in_etcd = async {
        serving.wait("all clusters serve", LIMIT, |_| {}).await?;
        anyhow::Ok(Instant::now())
    };
    let in_status = async {
        let all_settled = statuses.wait_for(|seen| {
            seen.as_ref().is_some_and(|seen| {
                seen.len() == CROWD && seen.values().all(|cluster| is_settled(cluster, 1))
            })
        });
        let waited = tokio::time::timeout(LIMIT, all_settled).await;
        waited.context("not all clusters are running")?.context("the watch of clusters ended")?;
        anyhow::Ok(Instant::now())
    };
    let (etcd, status) = tokio::try_join!(in_etcd, in_status)?;
    Ok(Sample {
        time: status.max(etcd).duration_since(began),
        status_lag: Some(status.saturating_duration_since(etcd)),
        ..Sample::default()
    })
}

fn names() -> impl Iterator<Item = String> {
    (1..=CROWD).map(|number| format!("kv{number:02}"))
}

fn serving(client: &Client, namespace: &str, selector: &str, secrets: ClientSecrets) -> Serving {
    Serving {
        pods: Api::<Pod>::namespaced(client.clone(), namespace),
        selector: selector.into(),
        count: CROWD,
        secrets,
        pause: PAUSE,
    }
}
