//! A cluster that has bootstrapped, on its way to its size: pods first, and members one step at a time.

use super::step::Step;
use super::{Volumes, Wishes, delete_claims, our_members, set_replicas};
use crate::assess::Assessment;
use crate::observed::{Members, Observed, Ordinal, Unanswered};
use crate::plan::{Action, Plan, Refusal, WaitingOn};

pub fn plan(wishes: Wishes<'_>, facts: &Assessment<'_>) -> Plan {
    let Wishes { size, roll, .. } = wishes;
    let members = match our_members(facts, |cause| keep_running(facts, cause)) {
        Ok(members) => members,
        Err(plan) => return plan,
    };
    let forms = roll.map_or_else(Plan::default, |roll| roll.accept_restart().then(roll.keep_forms()));
    let orderly = forms.then(keep_in_order(size.max(members.span()), facts, members, wishes));
    // Members change only when nothing else is left to do, and one at a time.
    if orderly.actions.is_empty() { orderly.then(Step { wishes, facts, members }.next()) } else { orderly }
}

/// The members are not known, so nothing is removed.
fn keep_running(facts: &Assessment<'_>, cause: Unanswered) -> Plan {
    if facts.data_lost {
        return Plan::refuse(Refusal::DataLost);
    }
    keep_pods(facts.seen).then(Plan::wait(WaitingOn::Quorum { cause }))
}

/// Kubernetes creates deleted pods again; after a stop, as many pods are created as there are volumes.
pub fn keep_pods(seen: &Observed) -> Plan {
    match seen.span().max(seen.replicas()) {
        0 => Plan::default(),
        wanted => set_replicas(seen, wanted),
    }
}

/// So many pods, every volume labelled, no volume of a removed member: what can be done at once.
fn keep_in_order(replicas: u8, facts: &Assessment<'_>, members: &Members, wishes: Wishes<'_>) -> Plan {
    let (seen, volumes) = (facts.seen, wishes.volumes);
    let recreate = volumes.map(Volumes::recreate_set).unwrap_or_default();
    if !recreate.is_settled() {
        return recreate;
    }
    let pods = set_replicas(seen, replicas);
    let volumes = labels(seen, members).then(stale_volumes(replicas, facts, members, wishes));
    // A volume that is not being deleted counts as a member's while no quorum lists the members, and gets its pod again.
    if replicas < seen.replicas() { volumes.then(pods) } else { pods.then(volumes) }
}

/// The label of a claim says whose data it holds. It is written before that member can be removed, so that afterwards the
/// claim is known to be stale.
pub fn labels(seen: &Observed, members: &Members) -> Plan {
    let mut plan = Plan::default();
    for (member, listed) in members.by_ordinal() {
        let claim = listed.ordinal.and_then(|ordinal| Some((ordinal, seen.claims.get(&ordinal)?)));
        if let Some((ordinal, claim)) = claim.filter(|(_, claim)| claim.member.is_none()) {
            plan.actions.push(Action::LabelClaim { ordinal, uid: claim.uid.clone(), member });
        }
    }
    plan
}

/// Volumes of removed members, of ordinals that no longer exist, and claims that never get a volume. No volume is deleted while the order
/// exists: its pod would bootstrap once more.
fn stale_volumes(replicas: u8, facts: &Assessment<'_>, members: &Members, wishes: Wishes<'_>) -> Plan {
    let (seen, volumes) = (facts.seen, wishes.volumes);
    if seen.order.is_some() {
        return Plan::default();
    }
    let stale = |ordinal: Ordinal| {
        let is_unused = ordinal.0 >= replicas && members.at(ordinal).is_none();
        // Nothing was ever written to it, also if a member is listed that lost its volume before.
        let is_abandoned = volumes.is_some_and(|it| it.is_abandoned(ordinal));
        facts.has_stale_volume(ordinal) || is_unused || is_abandoned
    };
    let mut plan = delete_claims(seen, stale);
    // No kubelet confirms the end of a pod on a lost node.
    let grace = wishes.node_loss_grace_seconds;
    if let Some((&ordinal, pod)) = seen.pods.iter().find(|(it, pod)| facts.is_fenced(**it, pod, grace)) {
        plan.actions.push(Action::ForceDeletePod { ordinal, uid: pod.uid.clone() });
        return plan;
    }
    // A claim is deleted only when its pod ends; the StatefulSet creates both again, and a claim only with its pod.
    let without_volume = |ordinal: Ordinal| {
        let was_abandoned = volumes.is_some_and(|it| it.lacks_claim(ordinal));
        !seen.claims.contains_key(&ordinal) && members.at(ordinal).is_none() || was_abandoned
    };
    let pod = seen.pods.iter().find(|(ordinal, pod)| {
        !pod.terminating && ordinal.0 < replicas && (stale(**ordinal) || without_volume(**ordinal))
    });
    if let Some((&ordinal, pod)) = pod {
        plan.actions.push(Action::DeletePod { ordinal, uid: pod.uid.clone() });
    }
    plan
}
