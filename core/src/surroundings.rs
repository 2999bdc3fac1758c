//! What surrounds the members: Services and the disruption budget. They are corrected whenever they differ, and need no
//! decision.

use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::json;

use crate::decide::grace_seconds;
use crate::desired::{Desired, contained, services};
use crate::observe::{Objects, image};
use crate::observed::{Observed, Seen};
use crate::request::{Change, Object, OnlyIf, Role, Write};

/// The writes that correct them, each on its own.
pub fn surroundings(desired: &Desired<'_>, objects: &Objects, seen: &Observed) -> Vec<Write> {
    let wanted = services(desired);
    let service = |role: Role| {
        let there = objects.services.get(&role).map(|there| &**there);
        correction(Object::Service(role), wanted.get(&role), there)
    };
    let mut writes: Vec<Write> = Role::ALL.into_iter().filter_map(service).collect();
    // The budget follows the voters that exist, so it changes only when they are known.
    let voters = match &seen.etcd.members {
        Seen::Known(members) => Some(members.voters().count()),
        Seen::Unknown(_) => seen.pods.is_empty().then_some(0),
    };
    if let Some(voters) = voters {
        let wanted = desired.disruption_budget(voters);
        writes.extend(correction(Object::Budget, wanted.as_ref(), objects.budget.as_deref()));
    }
    writes
}

/// Ends the pods of a deleted cluster quickly, where that loses nothing. A deletion with a shorter time shortens an earlier
/// one, and a later one does not lengthen it.
pub fn quick_ends(objects: &Objects) -> Vec<Write> {
    let Objects { cluster, set, pods, .. } = objects;
    if cluster.metadata.deletion_timestamp.is_none() || set.is_some() || objects.is_taken(Object::Set) {
        return Vec::new();
    }
    let end = |(&ordinal, pod): (_, &std::sync::Arc<_>)| {
        let seconds = grace_seconds(cluster.spec.storage.on_delete, image(pod)?)?;
        let granted = pod.metadata.deletion_grace_period_seconds;
        let only_if = OnlyIf::Same(pod.uid()?);
        let write = Write { object: Object::Pod(ordinal), only_if, change: Change::DeleteWithin(seconds) };
        granted.is_none_or(|granted| granted > i64::from(seconds)).then_some(write)
    };
    pods.iter().filter_map(end).collect()
}

fn correction<K: Resource + Serialize>(
    object: Object,
    wanted: Option<&K>,
    there: Option<&K>,
) -> Option<Write> {
    let same = |there: &K| OnlyIf::Same(there.uid().unwrap_or_default());
    let (only_if, change) = match (wanted.map(|it| json!(it)), there) {
        (Some(wanted), None) => (OnlyIf::Absent, Change::Create(wanted)),
        (Some(wanted), Some(there)) if !contained(&wanted, &json!(there)) => {
            (same(there), Change::Apply(wanted))
        }
        (None, Some(there)) if there.meta().deletion_timestamp.is_none() => (same(there), Change::Delete),
        (Some(_) | None, Some(_)) | (None, None) => return None,
    };
    Some(Write { object, only_if, change })
}
