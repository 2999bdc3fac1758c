//! Watches EtcdClusters and keeps their status true.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::api::{EtcdCluster, EtcdClusterStatus};
use etcd_operator_core::{names, status};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{self, Action};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource, ResourceExt};

use crate::http::Ready;
use crate::telemetry::chain;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write the status of {cluster}")]
    WriteStatus { cluster: String, source: kube::Error },
}

/// When a failed round is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Soon,
    Backoff,
    OnChange,
}

impl Error {
    /// A fixed name for each kind of failure.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::WriteStatus { .. } => "WriteStatus",
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            Error::WriteStatus { source: kube::Error::Api(answer), .. } => match answer.code {
                404 => Retry::OnChange,
                409 => Retry::Soon,
                _ => Retry::Backoff,
            },
            Error::WriteStatus { .. } => Retry::Backoff,
        }
    }
}

/// How long rounds that are under way may take to end after a stop.
const GRACE: Duration = Duration::from_secs(5);

/// Runs rounds until `stop` comes, and marks us ready when all clusters are known.
pub async fn run(client: Client, ready: Ready, stop: impl Future<Output = ()> + Send + 'static) {
    let stop = stop.shared();
    let controller = Controller::new(Api::<EtcdCluster>::all(client.clone()), watcher::Config::default())
        .graceful_shutdown_on(stop.clone());
    let clusters = controller.store();
    let announce = async {
        if clusters.wait_until_ready().await.is_ok() {
            ready.set();
            tracing::info!(clusters = clusters.len(), "watching clusters");
        }
        std::future::pending().await
    };
    // The controller itself does not end before its first list has arrived, which may never happen.
    let give_up = async {
        stop.await;
        if ready.get() {
            tokio::time::sleep(GRACE).await;
            tracing::warn!("stopped before every round had ended");
        }
    };
    let rounds = controller.run(round, try_again, Arc::new(client)).for_each(async |result| tell(result));
    tokio::select! {
        () = rounds => {}
        () = give_up => {}
        () = announce => {}
    }
}

/// One look at one cluster.
async fn round(cluster: Arc<EtcdCluster>, client: Arc<Client>) -> Result<Action, Error> {
    if let Some(next) = status::update(&cluster, Timestamp::now()) {
        write_status(&client, &cluster, &next).await?;
        tracing::info!(
            cluster = full_name(&cluster),
            generation = cluster.metadata.generation,
            phase = next.phase.map(tracing::field::debug),
            "wrote status"
        );
    }
    Ok(Action::await_change())
}

async fn write_status(
    client: &Client,
    cluster: &EtcdCluster,
    status: &EtcdClusterStatus,
) -> Result<(), Error> {
    let clusters: Api<EtcdCluster> =
        Api::namespaced(client.clone(), &cluster.namespace().unwrap_or_default());
    let object = serde_json::json!({
        "apiVersion": EtcdCluster::api_version(&()),
        "kind": EtcdCluster::kind(&()),
        "status": status,
    });
    clusters
        .patch_status(
            &cluster.name_any(),
            &PatchParams::apply(names::FIELD_MANAGER).force(),
            &Patch::Apply(object),
        )
        .await
        .map(|_| ())
        .map_err(|source| Error::WriteStatus { cluster: full_name(cluster), source })
}

fn try_again(_: Arc<EtcdCluster>, error: &Error, _: Arc<Client>) -> Action {
    match error.retry() {
        Retry::Soon => Action::requeue(Duration::from_secs(1)),
        Retry::Backoff => Action::requeue(Duration::from_secs(15)),
        Retry::OnChange => Action::await_change(),
    }
}

/// The one place where the outcome of a round is logged.
fn tell<T>(result: Result<T, controller::Error<Error, watcher::Error>>) {
    match result {
        Ok(_) => {}
        Err(controller::Error::ReconcilerFailed(error, _)) => match error.retry() {
            Retry::Backoff => tracing::warn!(kind = error.kind(), error = %chain(&error), "a round failed"),
            Retry::Soon | Retry::OnChange => {
                tracing::debug!(kind = error.kind(), error = %chain(&error), "a round was overtaken");
            }
        },
        Err(controller::Error::ObjectNotFound(cluster)) => {
            tracing::debug!(%cluster, "a cluster went before its round");
        }
        Err(controller::Error::QueueError(error)) => {
            tracing::warn!(error = %chain(&error), "cannot watch clusters: are the CRDs installed and may we read them?");
        }
        Err(controller::Error::RunnerError(error)) => {
            tracing::warn!(error = %chain(&error), "the queue of rounds failed");
        }
    }
}

fn full_name(cluster: &EtcdCluster) -> String {
    format!("{}/{}", cluster.namespace().unwrap_or_default(), cluster.name_any())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16) -> Error {
        let answer = Status { code, ..Status::default() };
        Error::WriteStatus { cluster: "ns/kv".into(), source: kube::Error::Api(answer.boxed()) }
    }

    #[test]
    fn a_cluster_that_went_away_is_not_tried_again() {
        assert_eq!(answered(404).retry(), Retry::OnChange);
    }

    #[tokio::test]
    async fn a_stop_is_heeded_although_the_clusters_were_never_listed() {
        let nobody = "http://127.0.0.1:1".parse().expect("an address");
        let client = Client::try_from(kube::Config::new(nobody)).expect("a client");
        let ready = Ready::default();
        let ended = tokio::time::timeout(Duration::from_secs(60), run(client, ready.clone(), async {})).await;
        assert!(ended.is_ok() && !ready.get());
    }

    #[test]
    fn a_conflict_is_tried_soon_and_anything_else_later() {
        assert_eq!(answered(409).retry(), Retry::Soon);
        assert_eq!(answered(403).retry(), Retry::Backoff);
        assert_eq!(answered(500).retry(), Retry::Backoff);
    }
}
