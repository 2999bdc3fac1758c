//! From what is wanted and what is seen to what is done next.
//!
//! The concerns come in a fixed order, and the first that has something to do speaks. Nothing is remembered
//! between two rounds but what Kubernetes and etcd hold.

mod bootstrap;
mod delete;
mod membership;
mod stop;

use crate::observed::{Observed, Ordinal};
use crate::plan::{Action, Plan, Refusal, WaitingOn};

/// What is wanted, as far as members and volumes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// How many members; 0 stops the cluster.
    pub size: u8,
    pub paused: bool,
    pub on_stop: OnStop,
    pub on_delete: OnDelete,
}

/// What becomes of the volumes when the cluster is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStop {
    /// The last member's volume stays.
    Retain,
    /// All stay, and all members start again as they were.
    RetainAll,
    Delete,
}

/// What becomes of the volumes when the cluster is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    Retain,
    Delete,
}

/// The next step. The same snapshot gives the same plan, and a settled world an empty one.
pub fn decide(goal: &Goal, seen: &Observed) -> Plan {
    if seen.cluster.deleting {
        return delete::plan(goal, seen);
    }
    if goal.paused {
        return Plan::wait(WaitingOn::Unpause);
    }
    if !seen.cluster.finalizer {
        return Plan::act(Action::AddFinalizer);
    }
    if let Some(refusal) = foreign_volumes(seen) {
        return Plan::refuse(refusal);
    }
    let formed = seen.formed().is_some() || seen.claimed_span() > 0;
    match (formed, goal.size) {
        (false, _) => bootstrap::plan(goal, seen),
        (true, 0) => stop::plan(goal, seen),
        (true, size) => membership::plan(size, seen),
    }
}

fn foreign_volumes(seen: &Observed) -> Option<Refusal> {
    let foreign = seen.claims.iter().filter(|(_, claim)| claim.cluster_uid != seen.cluster.uid);
    let ordinals: Vec<Ordinal> = foreign.clone().map(|(&ordinal, _)| ordinal).collect();
    let cluster_uid = foreign.map(|(_, claim)| claim.cluster_uid.clone()).next()?;
    Some(Refusal::ForeignVolumes { ordinals, cluster_uid })
}

/// Sets the number of pods, unless it is so already.
fn set_replicas(seen: &Observed, replicas: u8) -> Plan {
    match &seen.set {
        Some(set) if set.replicas == replicas => Plan::default(),
        Some(_) | None => Plan::act(Action::SetReplicas { replicas }),
    }
}

/// Deletes the claims of these ordinals that are there and not going already, and waits for them to go.
fn delete_claims(seen: &Observed, which: impl Fn(Ordinal) -> bool) -> Plan {
    let mut plan = Plan::default();
    let mut going = Vec::new();
    for (&ordinal, claim) in seen.claims.iter().filter(|(ordinal, _)| which(**ordinal)) {
        if !claim.terminating {
            plan.actions.push(Action::DeleteClaim { ordinal, uid: claim.uid.clone() });
        }
        going.push(ordinal);
    }
    if !going.is_empty() {
        plan.waiting.push(WaitingOn::ClaimsGone { ordinals: going });
    }
    plan
}
