//! The cluster is deleted: no etcd is asked, so a dead one is no obstacle.

use super::{Goal, OnDelete, delete_claims, pods_gone};
use crate::observed::{Observed, Ordinal};
use crate::plan::{Action, Plan};

pub fn plan(goal: &Goal, seen: &Observed) -> Plan {
    if !seen.cluster.finalizer {
        return Plan::default();
    }
    match goal.on_delete {
        // What belongs to the cluster goes with it; claims belong to nobody and stay.
        OnDelete::Retain => Plan::act(Action::RemoveFinalizer),
        OnDelete::Delete => remove_volumes(seen),
    }
}

/// Pods go first: a claim in use would stay, and a StatefulSet would make it anew.
fn remove_volumes(seen: &Observed) -> Plan {
    if let Some(set) = &seen.set {
        return Plan::act(Action::DeleteSet { uid: set.uid.clone() });
    }
    let ours = |ordinal: Ordinal| {
        seen.claims.get(&ordinal).is_some_and(|claim| claim.cluster_uid == seen.cluster.uid)
    };
    let plan = pods_gone(seen).then(delete_claims(seen, ours));
    if plan.is_settled() { Plan::act(Action::RemoveFinalizer) } else { plan }
}
