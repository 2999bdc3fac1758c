//! From nothing to a formed cluster: one order, all pods at once. A cluster that never formed can still be
//! given another size; where that is not certain, it is waited for.

use super::{Goal, delete_claims, set_replicas};
use crate::observed::{Observed, Ordinal, Process};
use crate::plan::{Action, Plan, WaitingOn};
use crate::quorum::quorum;

pub fn plan(goal: &Goal, seen: &Observed) -> Plan {
    match &seen.order {
        None => begin(goal, seen),
        Some(order) => {
            let being_abandoned = seen.set.as_ref().is_some_and(|set| set.replicas == 0);
            if being_abandoned {
                return abandon(seen, &order.uid);
            }
            if goal.size != order.size && surely_never_formed(seen, order.size) {
                return Plan::act(Action::SetReplicas { replicas: 0 });
            }
            let missing: Vec<Ordinal> = Ordinal::below(order.size)
                .filter(|ordinal| seen.pods.get(ordinal).is_none_or(|pod| pod.etcd != Process::Started))
                .collect();
            set_replicas(seen, order.size).then(Plan::wait(WaitingOn::Formation { attempt: order.attempt, missing }))
        }
    }
}

/// Without an order no pod can form a cluster, so what an abandoned attempt left behind is removed safely. Pods
/// that still run are another matter: somebody else deleted the order, and the cluster may have formed.
fn begin(goal: &Goal, seen: &Observed) -> Plan {
    let idle = seen.set.as_ref().is_none_or(|set| set.replicas == 0) && seen.pods.is_empty();
    if !idle {
        return Plan::wait(WaitingOn::Etcd { reason: "its pods run, but none has told yet that it formed".into() });
    }
    let leftovers = delete_claims(seen, |_| true);
    if !leftovers.is_settled() {
        return leftovers;
    }
    match goal.size {
        0 => Plan::default(),
        size => Plan::act(Action::CreateOrder { size, attempt: 1 }),
    }
}

/// The pods end, then the order goes, then (in [`begin`]) the volumes.
fn abandon(seen: &Observed, order: &str) -> Plan {
    let pods: Vec<Ordinal> = seen.pods.keys().copied().collect();
    if pods.is_empty() {
        Plan::act(Action::DeleteOrder { uid: order.to_owned() })
    } else {
        Plan::wait(WaitingOn::PodsGone { ordinals: pods })
    }
}

/// A cluster forms when a quorum of the listed pods starts etcd. Whoever may have started counts as started.
fn surely_never_formed(seen: &Observed, size: u8) -> bool {
    let may_have_started = |ordinal: &Ordinal| match (seen.pods.get(ordinal), seen.claims.get(ordinal)) {
        (Some(pod), _) => !matches!(pod.etcd, Process::CannotStart(_) | Process::Waiting),
        (None, Some(_)) => true,
        (None, None) => false,
    };
    Ordinal::below(size).filter(may_have_started).count() < quorum(usize::from(size))
}
