//! The data of a cluster gives way to what an EtcdRestore has prepared on another volume, with the consent of a user.
//!
//! Nothing here touches the previous volumes, beyond a label: the members stop, and start again with volumes of another name. Until
//! the status names these, every step can be reverted by starting the members again as they were.

use std::collections::BTreeSet;

use super::{Goal, OnStop, pods_gone, set_replicas};
use crate::assess::Assessment;
use crate::observed::{Claim, Observed, Ordinal};
use crate::plan::{Action, Obstacle, Plan, Refusal, WaitingOn};
use crate::restores::Replacement;

/// None if no data is replaced, or no more: consent is for one cluster ID, and the new data has another one. An obstacle keeps
/// nothing else from being done.
pub fn plan(goal: &Goal, facts: &Assessment<'_>) -> Option<Result<Plan, WaitingOn>> {
    let seen = facts.seen;
    let order = pending(seen)?;
    let refused = |obstacle| Err(WaitingOn::Replacement { restore: order.restore.clone(), obstacle });
    Some(obstacle(goal, facts, order).map_or_else(|| Ok(exchange(seen, order)), refused))
}

fn pending(seen: &Observed) -> Option<&Replacement> {
    let order = seen.cluster.replacement.as_ref()?;
    seen.cluster.formed.as_ref().filter(|formed| formed.id == order.replaces)?;
    Some(order)
}

/// Whether the members stop now, to start with other data.
pub fn is_due(goal: &Goal, facts: &Assessment<'_>) -> bool {
    plan(goal, facts).is_some_and(|plan| plan.is_ok())
}

/// Why the members do not stop yet, or are started again.
fn obstacle(goal: &Goal, facts: &Assessment<'_>, order: &Replacement) -> Option<Obstacle> {
    let seen = facts.seen;
    let Some(wanted) = &goal.form else { return Some(Obstacle::InvalidSpec) };
    let restored = seen.restored.as_ref().filter(|claim| claim.uid == order.claim && !claim.terminating);
    let Some(restored) = restored.filter(|claim| claim.cluster_uid == seen.cluster.uid) else {
        return Some(Obstacle::VolumeGone);
    };
    if restored.member.is_none() || !restored.bound {
        return Some(Obstacle::NotPrepared);
    }
    if goal.size == 0 && goal.on_stop == OnStop::Delete {
        return Some(Obstacle::StopDeletes);
    }
    if seen.order.is_some() {
        return Some(Obstacle::Bootstrapping);
    }
    if seen.recovery.as_ref().is_some_and(|recovery| recovery.start.is_some()) {
        return Some(Obstacle::Recovering);
    }
    // Nobody confirms the end of a pod there, and it might serve until then.
    let lost = seen.pods.iter().filter(|(_, pod)| pod.loss.is_some()).map(|(&ordinal, _)| ordinal);
    let ordinals: Vec<Ordinal> = lost.collect();
    if !ordinals.is_empty() {
        return Some(Obstacle::NodeLost { ordinals });
    }
    // The first pod starts in the form that all members ran together last.
    let first = seen.record.as_ref().map_or(wanted.version, |record| record.version);
    if first.minor() != wanted.version.minor() {
        return Some(Obstacle::ChangesVersion { from: first, to: wanted.version });
    }
    if first.minor() != order.version.minor() {
        return Some(Obstacle::OtherVersion { prepared: order.version, runs: first });
    }
    if seen.transport.is_some_and(|transport| transport.peers.scheme() != order.peers) {
        return Some(Obstacle::OtherTransport);
    }
    let highest = facts.answers().filter_map(|answer| Some(answer.space?.revision)).max();
    let (revision, above) = highest.zip(order.above)?;
    (revision >= above).then_some(Obstacle::Revisions { revision, above })
}

/// Members stop, the StatefulSet goes, and the status says what they start with.
fn exchange(seen: &Observed, order: &Replacement) -> Plan {
    if let Some(recovery) = &seen.recovery {
        return Plan::act(Action::EndRecovery { uid: recovery.uid.clone() });
    }
    let stop = stop(seen);
    if !stop.is_settled() {
        return stop;
    }
    let mut plan = Plan::default();
    let by = &order.uid;
    for (&ordinal, claim) in seen.claims.iter().filter(|(_, claim)| claim.replaced_by.as_ref() != Some(by)) {
        plan.actions.push(Action::RetireClaim { ordinal, uid: claim.uid.clone(), by: by.clone() });
    }
    if !plan.is_settled() {
        return plan;
    }
    let set = delete_set(seen);
    if set.is_settled() { Plan::act(Action::ReplaceData { replacement: order.clone() }) } else { set }
}

/// Without a quorum, too, and without a change of the members: they are as they were if they start again.
fn stop(seen: &Observed) -> Plan {
    let scaled = match &seen.set {
        Some(set) if set.terminating => return Plan::wait(WaitingOn::SetGone),
        // It adopts the pods that are left, and ends them.
        None if !seen.pods.values().all(|pod| pod.terminating) => set_replicas(seen, 0),
        None => Plan::default(),
        Some(_) => set_replicas(seen, 0),
    };
    scaled.then(pods_gone(seen))
}

fn delete_set(seen: &Observed) -> Plan {
    match &seen.set {
        Some(set) if set.terminating => Plan::wait(WaitingOn::SetGone),
        Some(set) => Plan::act(Action::OrphanSet { uid: set.uid.clone() }),
        None => Plan::default(),
    }
}

/// What volumes are those of the cluster, where its status does not say so: it was lost, or the cluster adopts those of a former one.
/// And no member starts with what was replaced.
pub fn unclear_volumes(goal: &Goal, seen: &Observed) -> Option<Plan> {
    // Only a status that names its volumes leads to a StatefulSet with these.
    if let Some(volumes) = seen.set.as_ref().and_then(|set| set.other_volumes.clone())
        && !seen.cluster.names_volumes
    {
        return Some(Plan::act(Action::RecordVolumes { volumes }));
    }
    if seen.cluster.formed.is_some() {
        return left_set(seen);
    }
    if let Some(plan) = elsewhere(goal, seen).filter(|_| !seen.cluster.names_volumes) {
        return Some(plan);
    }
    let replaced = seen.claims.iter().filter(|(_, claim)| claim.replaced_by.is_some() && !claim.terminating);
    let ordinals: Vec<Ordinal> = replaced.map(|(&ordinal, _)| ordinal).collect();
    (!ordinals.is_empty())
        .then(|| Plan::refuse(Refusal::ReplacedVolumes { ordinals }))
        .or_else(|| left_set(seen))
}

/// Claims with data under another name than the cluster would use.
fn elsewhere(goal: &Goal, seen: &Observed) -> Option<Plan> {
    let is_new = seen.set.is_none() && seen.order.is_none();
    let has_data =
        |claim: &Claim| claim.member.is_some() && claim.replaced_by.is_none() && !claim.terminating;
    let theirs: Vec<_> = seen.elsewhere.iter().filter(|(_, claim)| has_data(claim)).collect();
    let wanted = |claim: &Claim| {
        claim.cluster_uid == seen.cluster.uid || is_new && goal.adopts.as_ref() == Some(&claim.cluster_uid)
    };
    let mut volumes: BTreeSet<&str> =
        theirs.iter().filter(|(_, claim)| wanted(claim)).map(|(name, _)| volumes_of(name)).collect();
    let has_others = seen.claims.values().any(|claim| has_data(claim) && wanted(claim));
    match (volumes.pop_first(), volumes.is_empty() && !has_others) {
        (Some(volumes), true) => Some(Plan::act(Action::RecordVolumes { volumes: volumes.into() })),
        (None, _) if theirs.is_empty() || !is_new => None,
        (Some(_) | None, _) => {
            let claims = theirs.iter().map(|(name, _)| (*name).clone()).collect();
            let cluster_uid = theirs[0].1.cluster_uid.clone();
            Some(Plan::refuse(Refusal::VolumesElsewhere { claims, cluster_uid }))
        }
    }
}

fn volumes_of(claim: &str) -> &str {
    claim.split_once('-').map_or(claim, |(volumes, _)| volumes)
}

/// A request to create it can arrive late: its pods would start with the previous data.
fn left_set(seen: &Observed) -> Option<Plan> {
    let set = seen.set.as_ref().filter(|_| seen.cluster.names_volumes)?;
    set.other_volumes.as_ref()?;
    let stop = stop(seen);
    Some(if stop.is_settled() { delete_set(seen) } else { stop })
}
