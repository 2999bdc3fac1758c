//! Size 0: scaled in to one member, which is then stopped. Its volume, or all, or none stay, as was asked for.

use super::{Goal, OnStop, delete_claims, membership, set_replicas};
use crate::observed::{Observed, Ordinal, Seen};
use crate::plan::{Plan, Refusal, WaitingOn};

pub fn plan(goal: &Goal, seen: &Observed) -> Plan {
    if seen.set.as_ref().is_none_or(|set| set.replicas == 0) {
        return stopped(goal, seen);
    }
    if let Seen::Unknown(reason) = &seen.etcd.members {
        return Plan::refuse(Refusal::StopNeedsQuorum { reason: reason.clone() });
    }
    match goal.on_stop {
        OnStop::RetainAll => set_replicas(seen, 0),
        OnStop::Retain | OnStop::Delete => {
            let scaling_in = membership::plan(1, seen);
            if scaling_in.is_settled() { set_replicas(seen, 0) } else { scaling_in }
        }
    }
}

/// No pod is wanted any more; exactly the volumes stay that were promised.
fn stopped(goal: &Goal, seen: &Observed) -> Plan {
    let pods: Vec<Ordinal> = seen.pods.keys().copied().collect();
    if !pods.is_empty() {
        return Plan::wait(WaitingOn::PodsGone { ordinals: pods });
    }
    match goal.on_stop {
        OnStop::RetainAll => delete_claims(seen, |ordinal| seen.claims[&ordinal].member.is_none()),
        OnStop::Retain => delete_claims(seen, |ordinal| ordinal.0 > 0),
        OnStop::Delete => delete_claims(seen, |_| true),
    }
}
