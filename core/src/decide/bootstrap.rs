//! From nothing to a cluster that has bootstrapped: one order, all pods at once. A cluster that never bootstrapped can still
//! get another size; while that is not certain, the plan waits.

use super::{Goal, Volumes, delete_claims, pods_gone, set_replicas};
use crate::member::MemberProgress;
use crate::observed::{Observed, Order, Ordinal, Process, Seen};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::quorum::quorum;

/// How long after the bootstrap a member of the order can take to publish itself.
const ORDER_LASTS_SECONDS: i64 = 60;

pub fn plan(goal: &Goal, seen: &Observed, volumes: Option<&Volumes<'_>>) -> Plan {
    let recreate = volumes.map(Volumes::recreate_set).unwrap_or_default();
    if !recreate.is_settled() {
        return recreate;
    }
    let Some(order) = &seen.order else { return without_order(goal, seen) };
    let uid = order.uid.clone();
    let clean = seen.replicas() == 0 && seen.pods.is_empty() && seen.claims.is_empty();
    let is_abandoned = |ordinal| volumes.is_some_and(|it| it.is_abandoned(ordinal));
    let outdated = order.size != goal.size || Ordinal::below(order.size).any(is_abandoned);
    let unwanted = outdated && has_not_formed_yet(order, seen);
    if unwanted || !order.armed && !clean {
        return Plan::act(Action::DeleteOrder { uid });
    }
    if !order.armed {
        return Plan::act(Action::ArmOrder { uid });
    }
    let are = |process: Process| {
        let is = move |ordinal: &Ordinal| seen.pods.get(ordinal).is_some_and(|pod| pod.etcd == process);
        Ordinal::below(order.size).partition::<Vec<_>, _>(is)
    };
    let (emptied, hopeful) = are(Process::DataLost);
    let next = if hopeful.len() < quorum(usize::from(order.size)) {
        Plan::refuse(Refusal::FormationFailed { ordinals: emptied })
    } else {
        let (_, missing) = are(Process::Started);
        Plan::wait(WaitingOn::Formation { missing })
    };
    set_replicas(seen, order.size).then(next)
}

/// The order of a cluster that has bootstrapped ends when every member has published itself or has had time to, when the
/// others wait for something else, and when members have to change, which no order must outlive. A member that has not
/// started by then is replaced.
pub fn end_of_order(goal: &Goal, seen: &Observed) -> Option<Plan> {
    let order = seen.order.as_ref()?;
    let delete = Plan::act(Action::DeleteOrder { uid: order.uid.clone() });
    if !order.armed {
        return Some(delete);
    }
    let formed = seen.cluster.formed.as_ref()?;
    let over = seen.now.as_second() - formed.since.as_second() >= ORDER_LASTS_SECONDS;
    let waits = |ordinal: Ordinal| seen.pods.get(&ordinal).is_some_and(|pod| pod.etcd == Process::Waiting);
    let done = seen.etcd.members.known().is_some_and(|members| {
        let mut list = members.list.values();
        let none_starts =
            list.all(|member| member.start == MemberProgress::Published || member.ordinal.is_some_and(waits));
        none_starts || members.list.len() != usize::from(goal.size)
    });
    if !(over || done) {
        return None;
    }
    // The order knows with which transport members began: it stays until something else does.
    let is_known = seen.record.is_some() || seen.set.as_ref().is_some_and(|set| !set.terminating);
    Some(if is_known { delete } else { set_replicas(seen, seen.span()) })
}

/// An attempt: if it bootstraps in this moment, its members continue without the order.
fn has_not_formed_yet(order: &Order, seen: &Observed) -> bool {
    let started = Ordinal::below(order.size).filter(|ordinal| match seen.pods.get(ordinal) {
        Some(pod) => matches!(pod.etcd, Process::Started | Process::Failing(_) | Process::DataLost),
        None => seen.claims.get(ordinal).is_some_and(|claim| claim.bound),
    });
    started.count() < quorum(usize::from(order.size))
}

/// Without an order no bootstrap begins, but one might have begun before. What it left is deleted when every volume has been
/// inspected and too few were used for a quorum; the pods are created again for that. Volumes are deleted before pods: a
/// volume that is terminating shows that this was decided.
fn without_order(goal: &Goal, seen: &Observed) -> Plan {
    if seen.claims.values().all(|claim| claim.terminating) {
        return match set_replicas_to_none(seen).then(pods_gone(seen)).then(delete_claims(seen, |_| true)) {
            leftovers if !leftovers.is_settled() => leftovers,
            _ if goal.size == 0 => Plan::default(),
            _ => Plan::act(Action::CreateOrder { size: goal.size }),
        };
    }
    if seen.set.as_ref().is_none_or(|set| set.replicas < seen.span()) {
        return set_replicas(seen, seen.span());
    }
    match against_giving_up(seen) {
        Some(waiting) => Plan::wait(waiting),
        None => delete_claims(seen, |_| true),
    }
}

fn set_replicas_to_none(seen: &Observed) -> Plan {
    if seen.replicas() == 0 { Plan::default() } else { set_replicas(seen, 0) }
}

/// An agent reports that its volume is empty; an etcd reports that it never followed a leader, and how many members it
/// lists. Nothing else can prove it.
fn against_giving_up(seen: &Observed) -> Option<WaitingOn> {
    let mut doubtful = Vec::new();
    let mut founders = Vec::new();
    for &ordinal in seen.claims.iter().filter(|(_, claim)| claim.bound).map(|(ordinal, _)| ordinal) {
        let answer = seen.etcd.answers.get(&ordinal).and_then(Seen::known);
        let pod = seen.pods.get(&ordinal).filter(|pod| !pod.terminating);
        match (pod.map(|pod| &pod.etcd), answer.and_then(|answer| answer.listed)) {
            (Some(Process::Waiting), _) => {}
            (_, Some(listed)) => founders.push((ordinal, listed)),
            (_, None) => doubtful.push(ordinal),
        }
    }
    let ordered = founders.iter().map(|&(_, listed)| usize::from(listed)).min();
    if ordered.is_some_and(|ordered| founders.len() >= quorum(ordered)) {
        doubtful.extend(founders.iter().map(|&(ordinal, _)| ordinal));
        doubtful.sort();
    }
    (!doubtful.is_empty()).then_some(WaitingOn::Volumes { ordinals: doubtful })
}
