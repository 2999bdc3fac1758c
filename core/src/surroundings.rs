//! What changes without a restart: Services, the disruption budget, the network policy, what other programs are asked for, what new
//! pods are rendered from, and labels and annotations of running pods. They are corrected whenever they differ, and need no
//! decision.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::json;

use crate::assess::assess;
use crate::decide::grace_seconds;
use crate::desired::{Desired, contained, restricts_as_wanted, services};
use crate::form::{Form, Record};
use crate::observe::{Objects, image};
use crate::observed::{Observed, Ordinal, Seen};
use crate::request::{Change, Object, OnlyIf, Role, Write};
use crate::tls::{Profiles, Purpose};

/// The writes that correct them, each on its own.
pub fn surroundings(
    desired: &Desired<'_>,
    certificates: &Profiles,
    objects: &Objects,
    seen: &Observed,
) -> Vec<Write> {
    let wanted = services(desired);
    let service = |role: Role| {
        let there = objects.services.get(&role).map(|there| &**there);
        correction(Object::Service(role), wanted.get(&role), there, is_contained)
    };
    let mut writes: Vec<Write> = Role::ALL.into_iter().filter_map(service).collect();
    // The budget follows the voters that exist, so it changes only when they are known.
    let voters = match &seen.etcd.members {
        Seen::Known(members) => Some(members.voters().count()),
        Seen::Unknown(_) => seen.pods.is_empty().then_some(0),
    };
    if let Some(voters) = voters {
        let facts = assess(seen);
        let apart = facts.knows_links() && facts.apart(None).is_some();
        let wanted = desired.disruption_budget(voters, apart);
        writes.extend(correction(Object::Budget, wanted.as_ref(), objects.budget.as_deref(), is_contained));
    }
    let (wanted, there) = (desired.network_policy(), objects.network_policy.as_deref());
    writes.extend(correction(Object::NetworkPolicy, wanted.as_ref(), there, restricts_as_wanted));
    // While it is not known whether there is one, none is written.
    if let Seen::Known(there) = &objects.certificate {
        let wanted = certificates.get(&Purpose::Server).and_then(|it| desired.certificate(it));
        writes.extend(correction(Object::Certificate, wanted.as_ref(), there.as_deref(), is_contained));
    }
    if let Seen::Known(there) = &objects.pod_monitor {
        let wanted = desired.pod_monitor();
        writes.extend(correction(Object::PodMonitor, wanted.as_ref(), there.as_deref(), is_contained));
    }
    writes.extend(rendering(desired, objects, seen));
    writes.extend(metadata_of_pods(desired, objects));
    writes
}

/// The template keeps its form: which one it has is for the plan to decide. One that an earlier operator wrote is the only
/// trace of what its members run until that is recorded.
fn rendering(desired: &Desired<'_>, objects: &Objects, seen: &Observed) -> Option<Write> {
    let (set, there) = (objects.set.as_deref()?, seen.set.as_ref()?);
    if there.unmarked && seen.record.is_none() {
        return None;
    }
    let digest = there.template.as_ref()?;
    let recorded = || Some(Record::parse(objects.record.as_deref()?)?.form);
    let wanted = Some(desired.intent.form.clone());
    let is_it = |form: &Form| form.digest() == *digest;
    let form = wanted.filter(is_it).or_else(|| recorded().filter(is_it))?;
    if desired.is_rendered(set, &form) {
        return None;
    }
    let only_if = OnlyIf::Unchanged(there.uid.clone(), seen.versions.set.clone()?);
    Some(Write { object: Object::Set, only_if, change: Change::SetTemplate(digest.clone()) })
}

/// Of the pods that our StatefulSet keeps: those of a previous cluster can have the same names.
fn metadata_of_pods(desired: &Desired<'_>, objects: &Objects) -> Vec<Write> {
    let set = objects.set.as_ref().and_then(|set| set.uid());
    let is_kept = |metadata: &ObjectMeta| {
        let mut owners = metadata.owner_references.iter().flatten();
        let kept = owners.any(|it| it.controller == Some(true) && Some(&it.uid) == set.as_ref());
        kept && metadata.deletion_timestamp.is_none()
    };
    let pods = objects.pods.iter().filter(|(_, pod)| is_kept(&pod.metadata));
    let write = |(&ordinal, pod): (&Ordinal, &Arc<Pod>)| {
        let change = Change::Merge(desired.metadata_patch(&pod.metadata)?);
        Some(Write { object: Object::Pod(ordinal), only_if: OnlyIf::Same(pod.uid()?), change })
    };
    pods.filter_map(write).collect()
}

/// Ends the pods of a deleted cluster quickly, where that loses nothing. A deletion with a shorter time shortens an earlier
/// one, and a later one does not lengthen it.
pub fn quick_ends(objects: &Objects) -> Vec<Write> {
    let Objects { cluster, set, pods, .. } = objects;
    if cluster.metadata.deletion_timestamp.is_none() || set.is_some() || objects.is_taken(Object::Set) {
        return Vec::new();
    }
    let end = |(&ordinal, pod): (_, &Arc<Pod>)| {
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
    is_as_wanted: fn(&K, &K) -> bool,
) -> Option<Write> {
    let same = |there: &K| OnlyIf::Same(there.uid().unwrap_or_default());
    let (only_if, change) = match (wanted, there) {
        (Some(wanted), None) => (OnlyIf::Absent, Change::Create(json!(wanted))),
        (Some(wanted), Some(there)) if !is_as_wanted(wanted, there) => {
            (same(there), Change::Apply(json!(wanted)))
        }
        (None, Some(there)) if there.meta().deletion_timestamp.is_none() => (same(there), Change::Delete),
        (Some(_) | None, Some(_)) | (None, None) => return None,
    };
    Some(Write { object, only_if, change })
}

/// A selector has to be the same: with a label more it selects fewer pods, or none.
fn is_contained<K: Serialize>(wanted: &K, there: &K) -> bool {
    let (wanted, there) = (json!(wanted), json!(there));
    let selector = "/spec/selector";
    contained(&wanted, &there) && wanted.pointer(selector) == there.pointer(selector)
}

#[cfg(test)]
pub(crate) mod tests;
