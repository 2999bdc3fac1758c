//! Kinds that are accepted and whose controllers come later: their status says so, and stays true.

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
use crate::scope::Scope;
use crate::telemetry::chain;

const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(15);

/// When a failed write is worth another try, if not when the object changes.
fn retry(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(answer) = error else { return Some(LATER) };
    match answer.code {
        404 => None,
        409 => Some(SOON),
        _ => Some(LATER),
    }
}

/// Tells every EtcdBackup and EtcdRestore; it never ends.
pub async fn run(client: &Client, scope: &Scope) {
    futures::join!(keep_true(client, scope, status::of_backup), keep_true(client, scope, status::of_restore));
}

/// The status to write, or nothing when the one that is there already says the same.
type NextStatus<K, S> = fn(&K, Timestamp) -> Option<S>;

/// Writes what `next` says about every object of one kind.
async fn keep_true<K: Kind, S: Serialize + Send + Sync + 'static>(
    client: &Client,
    scope: &Scope,
    next: NextStatus<K, S>,
) {
    let keep = |api: Api<K>| {
        Controller::new(api, watch_config())
            .run(move |object, client| round(object, client, next), try_again, Arc::new(client.clone()))
            .for_each(async |result| tell(result))
    };
    futures::future::join_all(scope.apis(client).into_iter().map(keep)).await;
}

/// One observation of one object.
async fn round<K: Kind, S: Serialize + Send + Sync>(
    object: Arc<K>,
    client: Arc<Client>,
    next: NextStatus<K, S>,
) -> kube::Result<Action> {
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    if let Some(status) = next(&object, Timestamp::now()) {
        let objects: Api<K> = Api::namespaced(Client::clone(&client), &namespace);
        let patch = serde_json::json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"resourceVersion": object.resource_version()},
            "status": status,
        });
        let parameters = PatchParams::apply(names::FIELD_MANAGER).force();
        objects.patch_status(&name, &parameters, &Patch::Apply(patch)).await?;
        let (object, generation) = (format!("{} {namespace}/{name}", K::kind(&())), object.meta().generation);
        tracing::info!(object, generation, "updated status");
    }
    Ok(Action::await_change())
}

fn try_again<K>(_: Arc<K>, error: &kube::Error, _: Arc<Client>) -> Action {
    retry(error).map_or_else(Action::await_change, Action::requeue)
}

/// The one place where the outcome of a round is logged.
fn tell<T>(result: Result<T, controller::Error<kube::Error, watcher::Error>>) {
    let Err(error) = result else { return };
    match &error {
        controller::Error::ReconcilerFailed(error, object) if retry(error) == Some(LATER) => {
            tracing::warn!(%object, error = %chain(error), "cannot write the status, retrying");
        }
        controller::Error::ReconcilerFailed(_, object) | controller::Error::ObjectNotFound(object) => {
            tracing::debug!(%object, error = %chain(&error), "object changed in the meantime");
        }
        controller::Error::QueueError(_) | controller::Error::RunnerError(_) => {
            tracing::warn!(error = %chain(&error), "cannot watch, retrying: check the CRDs and the operator's RBAC");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16) -> kube::Error {
        kube::Error::Api(kube::core::Status { code, ..kube::core::Status::default() }.boxed())
    }

    #[test]
    fn an_object_that_went_away_is_not_tried_again() {
        assert_eq!(retry(&answered(404)), None);
    }

    #[test]
    fn a_conflict_is_tried_soon_and_anything_else_later() {
        assert_eq!(retry(&answered(409)), Some(SOON));
        assert_eq!(retry(&answered(403)), Some(LATER));
        assert_eq!(retry(&answered(500)), Some(LATER));
    }
}
