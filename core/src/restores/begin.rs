//! Before the cluster is there: everything that can be checked, and then its creation.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;

use super::intent::{Intent, Obstacle};
use super::mark::Mark;
use super::request::Write;
use super::{Next, Seen, Standing, is_created_by, replace};
use crate::api::{EtcdCluster, EtcdRestore, EtcdRestoreStatus, RestorePhase, RestoreType};
use crate::names::{condition, reason};
use crate::runs::Failed;
use crate::status::find;

/// Before it is recorded that the cluster is there: nothing exists that could be lost.
pub(super) fn begin(seen: &Seen<'_>, before: &EtcdRestoreStatus) -> Next {
    let stand = |standing| Next::new(before.clone(), standing);
    if awaits_edit(seen.restore) {
        return stand(Standing::AwaitsEdit);
    }
    if let Err(obstacle) = Intent::of(seen.restore, seen.backup) {
        return stand(match obstacle {
            Obstacle::Invalid(problems) => Standing::Invalid(problems),
            Obstacle::Blocks(reason, message) => Standing::Blocked(reason, message),
            Obstacle::Waits(reason, message) => Standing::Waits(reason, message),
        });
    }
    if seen.restore.spec.restore_type == Some(RestoreType::Replace) {
        return replace::begin(seen, before);
    }
    let name = &seen.restore.spec.cluster_name;
    match seen.cluster {
        Some(cluster) if is_created_by(seen.restore, cluster) => {
            let recorded = EtcdRestoreStatus {
                start_time: Some(cluster.metadata.creation_timestamp.clone().unwrap_or(Time(seen.now))),
                restored_cluster: Some(name.clone()),
                incarnation: cluster.uid(),
                ..before.clone()
            };
            Next::new(recorded, Standing::Works(format!("created EtcdCluster {name}")))
        }
        Some(_) => {
            let message = format!(
                "EtcdCluster {name} exists already, and this restore would need a new one: create another EtcdRestore with \
                 another clusterName, or delete the cluster and its volumes before"
            );
            Next::failed(before, reason::CLUSTER_EXISTS, &message)
        }
        None => match left_volumes(seen) {
            Some(standing) => stand(standing),
            None => match new_cluster(seen.restore) {
                Some(cluster) => {
                    let create = vec![Write::CreateCluster(Box::new(cluster))];
                    Next::working(before, &format!("creating EtcdCluster {name}"), create)
                }
                None => stand(Standing::Waits(reason::INVALID_SPEC, "clusterTemplate is missing".into())),
            },
        },
    }
}

/// With its volumes, a previous cluster of the name could be meant.
fn left_volumes(seen: &Seen<'_>) -> Option<Standing> {
    let (terminating, staying): (Vec<_>, Vec<_>) =
        seen.claims.values().partition(|claim| claim.metadata.deletion_timestamp.is_some());
    let names = |claims: &[&PersistentVolumeClaim]| {
        claims.iter().map(|claim| claim.name_any()).collect::<Vec<_>>().join(", ")
    };
    if !staying.is_empty() {
        let message = format!(
            "volumes of a previous cluster of this name exist: {}; create another EtcdRestore with another clusterName, or \
             delete them before if you do not need their data",
            names(&staying)
        );
        return Some(Standing::Failed(Failed::new(reason::FOREIGN_VOLUMES, &message)));
    }
    (!terminating.is_empty()).then(|| {
        let message = format!("volumes of a previous cluster are being deleted: {}", names(&terminating));
        Standing::Waits(reason::VOLUMES_TERMINATING, message)
    })
}

/// That it is restored is part of the request that creates it.
fn new_cluster(restore: &EtcdRestore) -> Option<EtcdCluster> {
    let mut cluster = EtcdCluster::new(&restore.spec.cluster_name, restore.spec.cluster_template.clone()?);
    cluster.metadata = ObjectMeta {
        name: cluster.metadata.name,
        namespace: restore.namespace(),
        annotations: Some(Mark::of(restore).annotation()),
        ..ObjectMeta::default()
    };
    Some(cluster)
}

/// Versions that restored nothing marked every object, and what had no effect takes effect with an edit only.
fn awaits_edit(restore: &EtcdRestore) -> bool {
    let Some(status) = &restore.status else { return false };
    match find(&status.conditions, condition::STALLED) {
        Some(it) => {
            [reason::NOT_IMPLEMENTED, reason::AWAITING_EDIT].contains(&it.reason.as_str())
                && it.observed_generation == restore.metadata.generation
        }
        None => {
            status.phase == Some(RestorePhase::Failed)
                && status.observed_generation == restore.metadata.generation
        }
    }
}
