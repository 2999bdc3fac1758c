//! Size 0: the cluster is scaled in to one member, which is then stopped. Its volume stays, or all do, or none.

use super::{Goal, OnStop, Volumes, Wishes, delete_claims, membership, our_members, pods_gone, set_replicas};
use crate::asked::Asked;
use crate::assess::Assessment;
use crate::observed::{MemberId, Members, Observed, Ordinal};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::version::downgrade;

pub fn plan(goal: &Goal, facts: &Assessment<'_>) -> Plan {
    let seen = facts.seen;
    // Between the two, the StatefulSet's controller has not read yet that no pod is wanted.
    if seen.keeps_no_pods() && (seen.pods.values().all(|pod| pod.terminating) || is_stopped(goal, seen)) {
        return stopped(goal, seen);
    }
    let unproven = |cause| membership::keep_pods(seen).then(Plan::refuse(Refusal::StopNeedsQuorum { cause }));
    let members = match our_members(facts, unproven) {
        Ok(members) => members,
        Err(plan) => return plan,
    };
    // No member is removed while etcd is on its way to an older version, and a stop restarts none that would end that.
    let downgrade = downgrade::enabled(facts.answers());
    // The last member might wait for a volume that it never gets.
    let (asked, volumes) = (Asked::default(), Volumes::new(goal, seen));
    let (auth, volumes) = (&goal.auth, volumes.as_ref());
    let wishes = Wishes {
        size: 1,
        node_loss_grace_seconds: goal.node_loss_grace_seconds,
        care: None,
        asked: &asked,
        switch: None,
        auth,
        roll: None,
        volumes,
    };
    let before = match goal.on_stop {
        OnStop::RetainAll => return stop_all(seen, members),
        _ if downgrade.is_some() => Plan::act(Action::CancelDowngrade { cluster: members.cluster }),
        OnStop::Retain => against_differing_data(facts).unwrap_or_else(|| membership::plan(wishes, facts)),
        OnStop::Delete => membership::plan(wishes, facts),
    };
    if before.is_settled() { set_replicas(seen, 0) } else { before }
}

/// Whether a stop cannot be completed before etcd has started in some pod.
pub fn needs_starts(goal: &Goal, facts: &Assessment<'_>) -> bool {
    let votes = |members: &Members| members.at(Ordinal(0)).is_some_and(|(_, member)| !member.learner);
    let has_all = |members: &Members| goal.on_stop == OnStop::RetainAll || votes(members);
    facts.seen.replicas() > 0 && !facts.listed().is_some_and(has_all)
}

/// Every volume that stays is a member's, and has its label. The others are deleted when their pods are: until then, the
/// StatefulSet would create new ones.
fn stop_all(seen: &Observed, members: &Members) -> Plan {
    let unused = delete_claims(seen, |ordinal| members.at(ordinal).is_none());
    let before = membership::labels(seen, members).then(unused);
    if before.actions.is_empty() { set_replicas(seen, 0).then(before) } else { before }
}

/// All copies of the data but one are about to be deleted, so they must be equal.
fn against_differing_data(facts: &Assessment<'_>) -> Option<Plan> {
    let voters: Vec<MemberId> = facts.serving().collect();
    let hash = |id: &MemberId| facts.answer_of(*id).and_then(|answer| answer.hash);
    let missing: Vec<MemberId> = voters.iter().copied().filter(|id| hash(id).is_none()).collect();
    let first = voters.first()?;
    match voters.len() {
        0 | 1 => None,
        _ if !missing.is_empty() => Some(Plan::wait(WaitingOn::Hashes { missing })),
        _ if voters.iter().all(|id| hash(id) == hash(first)) => None,
        _ => Some(Plan::refuse(Refusal::HashesDiffer { members: voters })),
    }
}

/// No pod is wanted any more, and exactly the volumes stay that the policy names. If there are others, the operator did not
/// stop the cluster: its pods are created again, to stop it properly.
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

/// Whether the volumes are those of a cluster that the operator stopped.
fn is_stopped(goal: &Goal, seen: &Observed) -> bool {
    match goal.on_stop {
        OnStop::Retain | OnStop::Delete => seen.claims.keys().all(|&ordinal| ordinal == Ordinal(0)),
        OnStop::RetainAll => seen.claims.values().all(|claim| claim.member.is_some()),
    }
}
