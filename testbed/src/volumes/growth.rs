//! Volumes that grow: what a claim asks for beyond what it has, and what its status reports meanwhile.
//!
//! The status is that of Kubernetes' external-resizer with a driver that needs no work on the node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::claim::{self, Order, Refusal};
use super::decision::{Facts, Found, Step};

const RESIZING: &str = "Resizing";
const RESIZE_ERROR: &str = "ControllerResizeError";

/// The size of the disk for a bound claim that requests more than its status has.
pub fn wanted_bytes(claim: &PersistentVolumeClaim) -> Option<u64> {
    let status = claim.status.as_ref().filter(|status| status.phase.as_deref() == Some("Bound"))?;
    let capacity_bytes = claim::bytes_of(&status.capacity.as_ref()?.get("storage")?.0).ok()?;
    claim::bytes_of(&requested(claim)).ok().filter(|&bytes| bytes > capacity_bytes)
}

pub fn decide(facts: &Facts<'_>, volume: &PersistentVolume, disk: &Found) -> Option<Step> {
    let claim = facts.claim?;
    let is_ours = claim.spec.as_ref()?.volume_name.as_deref() == Some(&volume.name_any());
    let size_bytes = wanted_bytes(claim).filter(|_| is_ours)?;
    Some(match refusal(facts, disk, size_bytes) {
        Some(refusal) => Step::RefuseGrowth(refusal),
        None => Step::Grow(Order { node: disk.node, size_bytes }),
    })
}

fn refusal(facts: &Facts<'_>, disk: &Found, requested_bytes: u64) -> Option<Refusal> {
    let room = disk.room?;
    let more_bytes = requested_bytes.saturating_sub(room.size_bytes);
    if facts.growth_fails {
        Some(Refusal::GrowthFails)
    } else if requested_bytes > room.most_bytes {
        Some(Refusal::GrowthTooLarge { requested_bytes, most_bytes: room.most_bytes })
    } else if more_bytes > facts.free_bytes {
        Some(Refusal::NoSpace { requested_bytes: more_bytes, free_bytes: facts.free_bytes })
    } else {
        None
    }
}

/// Whether the status has been changed for the requested size already, be it in progress or failed.
pub fn is_begun(claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.clone().unwrap_or_default();
    let allocated = status.allocated_resources.and_then(|allocated| allocated.get("storage").cloned());
    allocated.is_some_and(|size| size.0 == requested(claim)) && status.allocated_resource_statuses.is_some()
}

pub fn in_progress(claim: &PersistentVolumeClaim, now: Timestamp) -> Value {
    patch(claim, "ControllerResizeInProgress", &[condition(claim, RESIZING, None, now)])
}

/// Infeasible: with this state, Kubernetes' resizer lets the user request less again.
pub fn failed(claim: &PersistentVolumeClaim, error: &str, now: Timestamp) -> Value {
    let conditions =
        [condition(claim, RESIZING, None, now), condition(claim, RESIZE_ERROR, Some(error), now)];
    patch(claim, "ControllerResizeInfeasible", &conditions)
}

pub fn done(claim: &PersistentVolumeClaim) -> Value {
    let size = requested(claim);
    json!({"status": {
        "capacity": {"storage": size},
        "allocatedResources": {"storage": size},
        "allocatedResourceStatuses": null,
        "conditions": other_conditions(claim),
    }})
}

/// As the claim spells it: so the volume has the same text.
pub fn requested(claim: &PersistentVolumeClaim) -> String {
    claim.spec.as_ref().map(claim::requested_storage).unwrap_or_default()
}

fn patch(claim: &PersistentVolumeClaim, state: &str, conditions: &[PersistentVolumeClaimCondition]) -> Value {
    let conditions = [&other_conditions(claim), conditions].concat();
    json!({"status": {
        "allocatedResources": {"storage": requested(claim)},
        "allocatedResourceStatuses": {"storage": state},
        "conditions": conditions,
    }})
}

fn other_conditions(claim: &PersistentVolumeClaim) -> Vec<PersistentVolumeClaimCondition> {
    let mut conditions = claim.status.clone().and_then(|status| status.conditions).unwrap_or_default();
    conditions.retain(|condition| ![RESIZING, RESIZE_ERROR].contains(&condition.type_.as_str()));
    conditions
}

/// One that reports the same already stays as it is: a retry that fails again changes nothing.
fn condition(
    claim: &PersistentVolumeClaim,
    kind: &str,
    message: Option<&str>,
    now: Timestamp,
) -> PersistentVolumeClaimCondition {
    let known = claim.status.iter().flat_map(|status| &status.conditions).flatten();
    let same = known.into_iter().find(|known| known.type_ == kind && known.message.as_deref() == message);
    same.cloned().unwrap_or_else(|| PersistentVolumeClaimCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        message: message.map(str::to_owned),
        last_transition_time: Some(Time(now)),
        ..PersistentVolumeClaimCondition::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::decision;
    use super::super::room::Room;
    use super::*;
    use crate::layout::Node;

    const FREE_BYTES: u64 = 10 << 30;
    const MOUNTED: Found = Found {
        node: Node::MACHINE,
        has_image: true,
        is_mounted: true,
        room: Some(Room { size_bytes: 64 << 20, most_bytes: 256 << 20 }),
    };

    /// Bound, with a capacity of 64Mi.
    fn claim(requested: &str) -> PersistentVolumeClaim {
        let claim = json!({
            "metadata": {"name": "data-0", "namespace": "default", "uid": "1"},
            "spec": {"volumeName": "pvc-1", "resources": {"requests": {"storage": requested}}},
            "status": {"phase": "Bound", "capacity": {"storage": "64Mi"}},
        });
        serde_json::from_value(claim).expect("a claim")
    }

    fn volume() -> PersistentVolume {
        let volume = json!({
            "metadata": {"name": "pvc-1", "annotations": {"pv.kubernetes.io/provisioned-by": "testbed/local"}},
            "spec": {"capacity": {"storage": "64Mi"}, "local": {"path": "/x/volumes/n1/pvc-1"}},
            "status": {"phase": "Bound"},
        });
        serde_json::from_value(volume).expect("a volume")
    }

    fn steps(claim: &PersistentVolumeClaim, growth_fails: bool, free_bytes: u64) -> Vec<Step> {
        let (claim, volume) = (Some(claim), volume());
        decision::decide(&Facts { claim, volume: Some(&volume), disks: &[MOUNTED], free_bytes, growth_fails })
    }

    fn grown_to(size_bytes: u64) -> [Step; 1] {
        [Step::Grow(Order { node: Node::MACHINE, size_bytes })]
    }

    /// The claim after the API server applied a patch of its status.
    fn patched(claim: &PersistentVolumeClaim, patch: &Value) -> PersistentVolumeClaim {
        let mut patched = serde_json::to_value(claim).expect("JSON");
        let status = patched["status"].as_object_mut().expect("a status");
        for (name, value) in patch["status"].as_object().expect("fields") {
            status.insert(name.clone(), value.clone());
        }
        serde_json::from_value(patched).expect("a claim")
    }

    #[test]
    fn a_bound_claim_that_requests_more_than_it_has_grows() {
        assert_eq!(steps(&claim("128Mi"), false, FREE_BYTES), grown_to(128 << 20));
        assert_eq!(steps(&claim("67108865"), false, FREE_BYTES), grown_to((64 << 20) + 4096));
        assert_eq!(steps(&claim("64Mi"), false, FREE_BYTES), []);
    }

    #[test]
    fn a_claim_that_is_not_bound_to_this_volume_does_not_grow() {
        let mut lost = claim("128Mi");
        lost.status.as_mut().expect("a status").phase = Some("Lost".into());
        let mut elsewhere = claim("128Mi");
        elsewhere.spec.as_mut().expect("a spec").volume_name = Some("pvc-2".into());
        for claim in [lost, elsewhere] {
            assert_eq!(steps(&claim, false, FREE_BYTES), []);
        }
    }

    #[test]
    fn a_growth_that_is_impossible_is_refused_with_the_reason() {
        let large = Refusal::GrowthTooLarge { requested_bytes: 1 << 30, most_bytes: 256 << 20 };
        assert_eq!(steps(&claim("1Gi"), false, FREE_BYTES), [Step::RefuseGrowth(large)]);
        let space = Refusal::NoSpace { requested_bytes: 64 << 20, free_bytes: 1 << 20 };
        assert_eq!(steps(&claim("128Mi"), false, 1 << 20), [Step::RefuseGrowth(space)]);
        let fault = [Step::RefuseGrowth(Refusal::GrowthFails)];
        assert_eq!(steps(&claim("128Mi"), true, FREE_BYTES), fault);
    }

    #[test]
    fn after_a_failure_the_claim_can_request_less_and_grows_to_that() {
        let failing = claim("1Gi");
        let mut failing = patched(&failing, &failed(&failing, "too large", Timestamp::UNIX_EPOCH));
        assert!(is_begun(&failing));
        failing.spec = claim("96Mi").spec;
        assert!(!is_begun(&failing), "it is another growth");
        assert_eq!(steps(&failing, false, FREE_BYTES), grown_to(96 << 20));
        let grown = patched(&failing, &done(&failing));
        let status = serde_json::to_value(&grown.status).expect("JSON");
        let expected = json!({"phase": "Bound", "capacity": {"storage": "96Mi"},
            "allocatedResources": {"storage": "96Mi"}, "conditions": []});
        assert_eq!(status, expected);
        assert_eq!(steps(&grown, false, FREE_BYTES), []);
    }

    #[test]
    fn a_retry_that_fails_again_changes_nothing() {
        let claim = claim("1Gi");
        let first = failed(&claim, "too large", Timestamp::UNIX_EPOCH);
        let failing = patched(&claim, &first);
        assert_eq!(failed(&failing, "too large", Timestamp::MAX), first);
        assert_ne!(failed(&failing, "no space", Timestamp::MAX), first);
    }

    #[test]
    fn conditions_of_others_stay() {
        let mut claim = claim("128Mi");
        let other = PersistentVolumeClaimCondition { type_: "Other".into(), ..Default::default() };
        claim.status.as_mut().expect("a status").conditions = Some(vec![other]);
        let begun = patched(&claim, &in_progress(&claim, Timestamp::UNIX_EPOCH));
        let kinds = |claim: &PersistentVolumeClaim| -> Vec<String> {
            let status = claim.status.clone().unwrap_or_default();
            status.conditions.into_iter().flatten().map(|condition| condition.type_).collect()
        };
        assert_eq!(kinds(&begun), ["Other", RESIZING]);
        assert_eq!(kinds(&patched(&begun, &done(&begun))), ["Other"]);
    }
}
