//! From what is wanted and what is seen to what is done next.
//!
//! What is certain comes in a fixed order: deletion, pause, volumes of others, the bootstrap. In a formed cluster the concerns
//! about its members speak in turn (`step.rs`), and each says what later ones must leave alone (`opinion.rs`).

mod bootstrap;
mod delete;
mod membership;
mod opinion;
mod step;
mod stop;

pub use crate::api::DeletePolicy as OnDelete;
use crate::api::EtcdClusterSpec;
use crate::intent::Intent;
pub use crate::intent::OnStop;
use crate::observed::{Claim, Members, Observed, Ordinal, Seen, Unanswered};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
pub use delete::grace_seconds;

/// What is wanted, as far as members and volumes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// How many members; 0 stops the cluster.
    pub size: u8,
    pub paused: bool,
    pub on_stop: OnStop,
    pub on_delete: OnDelete,
    /// The UID of the former cluster whose volumes are taken over.
    pub adopts: Option<String>,
}

impl From<&Intent> for Goal {
    fn from(intent: &Intent) -> Self {
        Self {
            size: intent.size,
            paused: intent.paused,
            on_stop: intent.storage.on_stop,
            on_delete: intent.storage.on_delete,
            adopts: intent.adopts.clone(),
        }
    }
}

impl Goal {
    /// What is in effect while the spec breaks rules: as many members as the StatefulSet keeps pods. Lost members are
    /// replaced; nothing is scaled, stopped or bootstrapped.
    pub fn in_effect(spec: &EtcdClusterSpec, replicas: u8) -> Self {
        Self {
            size: replicas,
            paused: spec.paused || replicas == 0,
            on_stop: OnStop::RetainAll,
            on_delete: spec.storage.on_delete,
            adopts: None,
        }
    }
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
    if let Some(plan) = foreign_volumes(goal, seen) {
        return plan;
    }
    let formed = seen.formed();
    if let Some(cluster) = formed.filter(|_| seen.cluster.formed.is_none()) {
        return Plan::act(Action::RecordFormed { cluster });
    }
    if formed.is_none() && !seen.claims_tell_of_members() {
        return bootstrap::plan(goal, seen);
    }
    if let Some(ending) = bootstrap::end_of_order(goal, seen) {
        return ending;
    }
    match goal.size {
        0 => stop::plan(goal, seen),
        size => membership::plan(size, seen),
    }
}

/// Volumes of a former cluster are used only if somebody said so, and only before there is a cluster of our own: what is
/// foreign to that would be thrown away. What is being deleted is awaited instead: a cluster that adopted it would have
/// lost its data before it begins.
fn foreign_volumes(goal: &Goal, seen: &Observed) -> Option<Plan> {
    let foreign = seen.claims.iter().filter(|(_, claim)| claim.cluster_uid != seen.cluster.uid);
    let (going, staying): (Vec<_>, Vec<_>) = foreign.partition(|(_, claim)| claim.terminating);
    let ordinals = |claims: &[(&Ordinal, &Claim)]| claims.iter().map(|&(&ordinal, _)| ordinal).collect();
    let adoptable = seen.cluster.formed.is_none() && seen.set.is_none() && seen.order.is_none();
    let asked_for = |claim: &Claim| adoptable && goal.adopts.as_ref() == Some(&claim.cluster_uid);
    if let Some((_, first)) = staying.first().filter(|_| !staying.iter().all(|(_, claim)| asked_for(claim))) {
        let cluster_uid = first.cluster_uid.clone();
        let ordinals = ordinals(&staying);
        return Some(Plan::refuse(Refusal::ForeignVolumes { ordinals, cluster_uid, adoptable }));
    }
    let adopt =
        |&(&ordinal, claim): &(&Ordinal, &Claim)| Action::AdoptClaim { ordinal, uid: claim.uid.clone() };
    let mut plan = Plan { actions: staying.iter().map(adopt).collect(), ..Plan::default() };
    if !going.is_empty() {
        plan.waiting.push(WaitingOn::ClaimsGone { ordinals: ordinals(&going) });
    }
    (!plan.is_settled()).then_some(plan)
}

/// The members, if they answer and all of them are ours.
fn our_members(seen: &Observed) -> Result<&Members, Unusable> {
    let members = match &seen.etcd.members {
        Seen::Known(members) => members,
        Seen::Unknown(cause) => return Err(Unusable::Unknown(cause.clone())),
    };
    if let Some(expected) = seen.formed()
        && expected != members.cluster
    {
        return Err(Unusable::Foreign(Refusal::ForeignCluster { expected, found: members.cluster }));
    }
    let stranger = members.list.iter().find(|(_, member)| member.ordinal.is_none());
    match stranger {
        Some((&member, _)) => Err(Unusable::Foreign(Refusal::UnknownMember { member })),
        None => Ok(members),
    }
}

/// Why nothing can be decided about the members.
enum Unusable {
    Unknown(Unanswered),
    Foreign(Refusal),
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

fn pods_gone(seen: &Observed) -> Plan {
    let ordinals: Vec<Ordinal> = seen.pods.keys().copied().collect();
    if ordinals.is_empty() { Plan::default() } else { Plan::wait(WaitingOn::PodsGone { ordinals }) }
}
