//! EtcdRestores are accepted, and their controller comes later: their status says so, and stays true.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::api::EtcdRestore;
use etcd_operator_core::{names, status};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{self, Action};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource, ResourceExt};

use crate::client::watch_config;
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

/// Tells every EtcdRestore; it never ends.
pub async fn run(client: &Client, scope: &Scope) {
    let keep = |api: Api<EtcdRestore>| {
        Controller::new(api, watch_config())
            .run(round, try_again, Arc::new(client.clone()))
            .for_each(async |result| tell(result))
    };
    futures::future::join_all(scope.apis(client).into_iter().map(keep)).await;
}

/// One observation of one object.
async fn round(restore: Arc<EtcdRestore>, client: Arc<Client>) -> kube::Result<Action> {
    let (name, namespace) = (restore.name_any(), restore.namespace().unwrap_or_default());
    if let Some(status) = status::of_restore(&restore, Timestamp::now()) {
        let restores: Api<EtcdRestore> = Api::namespaced(Client::clone(&client), &namespace);
        let patch = serde_json::json!({
            "apiVersion": EtcdRestore::api_version(&()),
            "kind": EtcdRestore::kind(&()),
            "metadata": {"resourceVersion": restore.resource_version()},
            "status": status,
        });
        let parameters = PatchParams::apply(names::FIELD_MANAGER).force();
        restores.patch_status(&name, &parameters, &Patch::Apply(patch)).await?;
        let (object, generation) = (format!("EtcdRestore {namespace}/{name}"), restore.metadata.generation);
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
