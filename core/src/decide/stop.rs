//! Size 0: scaled in to one member, which is then stopped. Its volume, or all, or none stay, as was asked for.

use super::{Goal, OnStop, Unusable, delete_claims, membership, our_members, pods_gone, set_replicas};
use crate::observed::{MemberId, Members, Observed, Ordinal};
use crate::plan::{Action, Plan, Refusal, WaitingOn};

pub fn plan(goal: &Goal, seen: &Observed) -> Plan {
    // Between the two, the StatefulSet's controller has not read yet that no pod is wanted.
    if seen.replicas() == 0 && (seen.pods.values().all(|pod| pod.terminating) || is_stopped(goal, seen)) {
        return stopped(goal, seen);
    }
    let members = match our_members(seen) {
        Ok(members) => members,
        Err(Unusable::Unknown(cause)) => {
            let pods = membership::keep_pods(seen);
            return pods.then(Plan::refuse(Refusal::StopNeedsQuorum { cause }));
        }
        Err(Unusable::Foreign(refusal)) => return Plan::refuse(refusal),
    };
    let before = match goal.on_stop {
        OnStop::RetainAll => return stop_all(seen, members),
        OnStop::Retain => against_differing_data(seen, members).unwrap_or_else(|| membership::plan(1, seen)),
        OnStop::Delete => membership::plan(1, seen),
    };
    if before.is_settled() { set_replicas(seen, 0) } else { before }
}

/// Every volume that stays is a member's, and says so. Others go with their pods: while a pod is there, a new one would
/// take the place of its volume.
fn stop_all(seen: &Observed, members: &Members) -> Plan {
    let nobodys = delete_claims(seen, |ordinal| members.at(ordinal).is_none());
    let before = membership::labels(seen, members).then(nobodys);
    if before.actions.is_empty() { set_replicas(seen, 0).then(before) } else { before }
}

/// All but one copy of the data is about to go, so they must be copies of one another.
fn against_differing_data(seen: &Observed, members: &Members) -> Option<Plan> {
    let serving = seen.serving();
    let voters: Vec<MemberId> =
        members.voters().map(|(id, _)| id).filter(|id| serving.contains(id)).collect();
    let hash = |id: &MemberId| seen.answer_of(*id).and_then(|answer| answer.hash);
    let missing: Vec<MemberId> = voters.iter().copied().filter(|id| hash(id).is_none()).collect();
    let first = voters.first()?;
    match voters.len() {
        0 | 1 => None,
        _ if !missing.is_empty() => Some(Plan::wait(WaitingOn::Hashes { missing })),
        _ if voters.iter().all(|id| hash(id) == hash(first)) => None,
        _ => Some(Plan::refuse(Refusal::HashesDiffer { members: voters })),
    }
}

/// No pod is wanted any more, and exactly the volumes stay that were promised. If there are others, it was not we who
/// stopped the cluster: it is brought back, to be stopped properly.
fn stopped(goal: &Goal, seen: &Observed) -> Plan {
    if let Some(order) = &seen.order {
        return Plan::act(Action::DeleteOrder { uid: order.uid.clone() });
    }
    let ending = pods_gone(seen);
    if !ending.is_settled() {
        return ending;
    }
    match goal.on_stop {
        _ if !is_stopped(goal, seen) => membership::keep_pods(seen),
        OnStop::Retain | OnStop::RetainAll => Plan::default(),
        OnStop::Delete => delete_claims(seen, |_| true),
    }
}

/// Whether the volumes are those of a cluster that we stopped.
fn is_stopped(goal: &Goal, seen: &Observed) -> bool {
    match goal.on_stop {
        OnStop::Retain | OnStop::Delete => seen.claims.keys().all(|&ordinal| ordinal == Ordinal(0)),
        OnStop::RetainAll => seen.claims.values().all(|claim| claim.member.is_some()),
    }
}
