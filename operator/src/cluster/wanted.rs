//! What an EtcdCluster asks for: its names, and the goal of decisions.

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::decide::{Goal, OnStop};
use etcd_operator_core::intent::Intent;
use etcd_operator_core::names::Names;

/// The domain stays what it was when the cluster was born.
pub fn names_of(cluster: &EtcdCluster, default_domain: &str) -> Names {
    let recorded = cluster.status.as_ref().and_then(|status| status.domain.clone());
    Names {
        namespace: cluster.metadata.namespace.clone().unwrap_or_default(),
        cluster: cluster.metadata.name.clone().unwrap_or_default(),
        domain: recorded.unwrap_or_else(|| default_domain.to_owned()),
    }
}

/// A spec that breaks the rules has no intent, but says what becomes of the volumes all the same.
pub fn goal_of(cluster: &EtcdCluster, intent: Option<&Intent>) -> Goal {
    match intent {
        Some(intent) => Goal::from(intent),
        None => Goal {
            size: 0,
            paused: true,
            on_stop: OnStop::RetainAll,
            on_delete: cluster.spec.storage.on_delete,
            adopts: None,
        },
    }
}
