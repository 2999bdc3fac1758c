//! The cluster is deleted. That needs no response from etcd, so one that is down blocks nothing.

use super::{Goal, OnDelete, delete_claims, pods_gone};
use crate::observed::{Observed, Ordinal, Pod};
use crate::plan::{Action, Plan, WaitingOn};
use crate::version::{CRASH_SAFE, Version};

/// No kubelet kills a container sooner than this.
const SHORTEST_GRACE_SECONDS: u32 = 2;

/// How long a pod of a deleted cluster has to end, or `None` for as long as it takes. etcd's graceful stop takes up to
/// 15 s: it waits for streams of clients, and a leader for a successor that is terminating too. Kept volumes need it only
/// where etcd does not keep what it acknowledged when it is killed.
pub fn grace_seconds(on_delete: OnDelete, image: &str) -> Option<u32> {
    let version = image.rsplit_once(':').and_then(|(_, tag)| Version::parse(tag));
    let survives_a_kill = version.is_some_and(|version| version >= CRASH_SAFE);
    (on_delete == OnDelete::Delete || survives_a_kill).then_some(SHORTEST_GRACE_SECONDS)
}

pub fn plan(goal: &Goal, seen: &Observed) -> Plan {
    if !seen.cluster.finalizer {
        return Plan::default();
    }
    if seen.set.as_ref().is_some_and(|set| set.terminating) {
        return Plan::wait(WaitingOn::SetGone);
    }
    // The StatefulSet was about to be created again.
    let is_left = |pod: &Pod| pod.orphaned && !pod.terminating && seen.set.is_none();
    if let Some((&ordinal, pod)) = seen.pods.iter().find(|(_, pod)| is_left(pod)) {
        return Plan::act(Action::DeletePod { ordinal, uid: pod.uid.clone() });
    }
    match goal.on_delete {
        // Kubernetes deletes what the cluster owns, and its pods end quickly; claims have no owner and stay.
        OnDelete::Retain => match &seen.set {
            Some(set) => Plan::act(Action::DeleteSet { uid: set.uid.clone() }),
            None => Plan::act(Action::RemoveFinalizer),
        },
        OnDelete::Delete => remove_volumes(seen),
    }
}

/// Pods end first: a claim in use would stay, and a StatefulSet would create it again. So does the order: a request to create
/// the StatefulSet can arrive late, and its pods would bootstrap once more.
fn remove_volumes(seen: &Observed) -> Plan {
    if let Some(set) = &seen.set {
        return Plan::act(Action::DeleteSet { uid: set.uid.clone() });
    }
    if let Some(order) = &seen.order {
        return Plan::act(Action::DeleteOrder { uid: order.uid.clone() });
    }
    let ours = |ordinal: Ordinal| {
        seen.claims.get(&ordinal).is_some_and(|claim| claim.cluster_uid == seen.cluster.uid)
    };
    let plan = pods_gone(seen).then(delete_claims(seen, ours));
    if plan.is_settled() { Plan::act(Action::RemoveFinalizer) } else { plan }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_volumes_are_not_cut_off_from_an_etcd_that_can_lose_writes_when_it_is_killed() {
        for (image, seconds) in [
            ("quay.io/coreos/etcd:v3.5.14", Some(2)),
            ("localhost:5000/etcd:v3.6.0", Some(2)),
            ("quay.io/coreos/etcd:v3.5.13", None),
            ("localhost:5000/etcd", None),
            ("etcd:latest", None),
        ] {
            assert_eq!(grace_seconds(OnDelete::Retain, image), seconds, "{image}");
            assert_eq!(grace_seconds(OnDelete::Delete, image), Some(2), "{image}");
        }
    }
}
