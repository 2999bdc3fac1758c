//! Kinds that are accepted and whose controllers come later: their status says so, and stays true.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::{names, status};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{self, Action};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use crate::client::watch_config;
use crate::kind::Kind;
use crate::telemetry::chain;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write the status of {object}")]
    WriteStatus { object: String, source: kube::Error },
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

/// Tells every EtcdBackup and EtcdRestore; it never ends.
pub async fn run(client: Client) {
    futures::join!(keep_true(client.clone(), status::of_backup), keep_true(client, status::of_restore));
}

/// The status to write, or nothing when the one that is there already says the same.
type NextStatus<K, S> = fn(&K, Timestamp) -> Option<S>;

/// Writes what `next` says about every object of one kind.
async fn keep_true<K: Kind, S: Serialize + Send + Sync + 'static>(client: Client, next: NextStatus<K, S>) {
    Controller::new(Api::<K>::all(client.clone()), watch_config())
        .run(move |object, client| round(object, client, next), try_again, Arc::new(client))
        .for_each(async |result| tell(result))
        .await;
}

/// One look at one object.
async fn round<K: Kind, S: Serialize + Send + Sync>(
    object: Arc<K>,
    client: Arc<Client>,
    next: NextStatus<K, S>,
) -> Result<Action, Error> {
    if let Some(status) = next(&object, Timestamp::now()) {
        write_status(&client, &*object, &status).await?;
        let generation = object.meta().generation;
        tracing::info!(object = full_name(&*object), generation, "updated status");
    }
    Ok(Action::await_change())
}

async fn write_status<K: Kind>(
    client: &Client,
    object: &K,
    status: &(impl Serialize + Sync),
) -> Result<(), Error> {
    let objects: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let patch = serde_json::json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "status": status,
    });
    let parameters = PatchParams::apply(names::FIELD_MANAGER).force();
    objects
        .patch_status(&object.name_any(), &parameters, &Patch::Apply(patch))
        .await
        .map(|_| ())
        .map_err(|source| Error::WriteStatus { object: full_name(object), source })
}

fn try_again<K>(_: Arc<K>, error: &Error, _: Arc<Client>) -> Action {
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
            Retry::Backoff => {
                tracing::warn!(kind = error.kind(), error = %chain(&error), "reconcile failed, retrying")
            }
            Retry::Soon | Retry::OnChange => {
                tracing::debug!(kind = error.kind(), error = %chain(&error), "object changed during reconcile");
            }
        },
        Err(controller::Error::ObjectNotFound(object)) => {
            tracing::debug!(%object, "object was deleted before reconcile");
        }
        Err(controller::Error::QueueError(error)) => {
            tracing::warn!(error = %chain(&error), "cannot watch, retrying: check the CRDs and the operator's RBAC");
        }
        Err(controller::Error::RunnerError(error)) => {
            tracing::warn!(error = %chain(&error), "reconcile queue failed");
        }
    }
}

fn full_name<K: Kind>(object: &K) -> String {
    format!("{} {}/{}", K::kind(&()), object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16) -> Error {
        let answer = Status { code, ..Status::default() };
        Error::WriteStatus { object: "EtcdCluster ns/kv".into(), source: kube::Error::Api(answer.boxed()) }
    }

    #[test]
    fn an_object_that_went_away_is_not_tried_again() {
        assert_eq!(answered(404).retry(), Retry::OnChange);
    }

    #[test]
    fn a_conflict_is_tried_soon_and_anything_else_later() {
        assert_eq!(answered(409).retry(), Retry::Soon);
        assert_eq!(answered(403).retry(), Retry::Backoff);
        assert_eq!(answered(500).retry(), Retry::Backoff);
    }
}
