//! A formed cluster on its way to its size: pods are cheap and come first, membership changes one step at a time.

use super::step::Step;
use super::{Unusable, delete_claims, our_members, set_replicas};
use crate::member::MemberProgress;
use crate::observed::{Members, Observed, Ordinal, Process, Unanswered};
use crate::plan::{Action, Plan, Refusal, WaitingOn};

pub fn plan(size: u8, seen: &Observed) -> Plan {
    let members = match our_members(seen) {
        Ok(members) => members,
        Err(Unusable::Unknown(cause)) => return keep_running(seen, cause),
        Err(Unusable::Foreign(refusal)) => return Plan::refuse(refusal),
    };
    let orderly = keep_in_order(size.max(members.span()), seen, members);
    // Membership changes only in a world that is in order, and as the only thing that is done.
    if orderly.actions.is_empty() { orderly.then(Step { size, seen, members }.next()) } else { orderly }
}

/// Nothing is known of the members, so nothing is taken away.
fn keep_running(seen: &Observed, cause: Unanswered) -> Plan {
    if nothing_is_left(seen) {
        return Plan::refuse(Refusal::DataLost);
    }
    keep_pods(seen).then(Plan::wait(WaitingOn::Quorum { cause }))
}

/// Pods come back by themselves; after a stop they are brought back as far as there are volumes.
pub fn keep_pods(seen: &Observed) -> Plan {
    match seen.span().max(seen.replicas()) {
        0 => Plan::default(),
        wanted => set_replicas(seen, wanted),
    }
}

/// Either there is no volume at all, or every agent has looked into its volume and found nothing.
fn nothing_is_left(seen: &Observed) -> bool {
    if seen.order.is_some() {
        return false;
    }
    let empty = |ordinal: Ordinal| {
        seen.pods.get(&ordinal).is_some_and(|pod| matches!(pod.etcd, Process::Waiting | Process::DataLost))
    };
    match seen.replicas().max(seen.span()) {
        0 => seen.claims.is_empty(),
        pods => Ordinal::below(pods).all(empty),
    }
}

/// So many pods, every volume labelled, no volume of a former member: what can be done in any number at once.
fn keep_in_order(replicas: u8, seen: &Observed, members: &Members) -> Plan {
    set_replicas(seen, replicas).then(labels(seen, members)).then(stale_volumes(replicas, seen, members))
}

/// Claims are told whose data they hold before that member can be removed; so one that is removed is known.
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

/// Volumes of removed members, and of ordinals that no longer exist. No volume is deleted while the order
/// exists: its pod would form a cluster once more.
fn stale_volumes(replicas: u8, seen: &Observed, members: &Members) -> Plan {
    if seen.order.is_some() {
        return Plan::default();
    }
    // An etcd that was started on a list of yesterday fails for ever as a member that is gone; one that was started on
    // an order of yesterday waits for ever for a cluster of its own.
    let is_astray = |ordinal: Ordinal| {
        let failing = seen.pods.get(&ordinal).is_some_and(|pod| matches!(pod.etcd, Process::Failing(_)));
        failing || seen.is_in_another_cluster(ordinal, members.cluster)
    };
    let stale = |ordinal: Ordinal| match (seen.claims.get(&ordinal), members.at(ordinal)) {
        (None, _) => false,
        (Some(claim), None) => {
            claim.member.is_some() || claim.terminating || ordinal.0 >= replicas || is_astray(ordinal)
        }
        (Some(claim), Some((id, member))) => {
            member.start == MemberProgress::Added && claim.member.is_some_and(|holder| holder != id)
        }
    };
    let mut plan = delete_claims(seen, stale);
    // A claim goes only when its pod goes; the StatefulSet makes both anew, and a claim only with its pod.
    let without_volume =
        |ordinal: Ordinal| !seen.claims.contains_key(&ordinal) && members.at(ordinal).is_none();
    let pod = seen.pods.iter().find(|(ordinal, pod)| {
        !pod.terminating && ordinal.0 < replicas && (stale(**ordinal) || without_volume(**ordinal))
    });
    if let Some((&ordinal, pod)) = pod {
        plan.actions.push(Action::DeletePod { ordinal, uid: pod.uid.clone() });
    }
    plan
}
