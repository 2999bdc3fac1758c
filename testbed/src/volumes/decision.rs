//! What should be done about a volume, from all that is known of it.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::claim::{self, Order, Refusal};
use super::room::Room;
use super::{growth, objects};
use crate::layout::Node;

/// All that is known of one volume name.
pub struct Facts<'a> {
    pub claim: Option<&'a PersistentVolumeClaim>,
    pub volume: Option<&'a PersistentVolume>,
    pub disks: &'a [Found],
    pub free_bytes: u64,
    /// A fault is in effect.
    pub growth_fails: bool,
}

/// What there is of a disk on one node; without image and mount it is the rest of a making or a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub node: Node,
    pub has_image: bool,
    pub is_mounted: bool,
    /// Unknown if it is not mounted, or does not answer.
    pub room: Option<Room>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the disk, then the volume that describes it.
    Make(Order),
    /// Mount the disk of a volume again, with the size that the volume has.
    Mount(Order),
    /// Make the disk larger, then report that in volume and claim.
    Grow(Order),
    /// The claim is gone and the volume should go too: remove the disk, then the volume.
    Reclaim(Node),
    /// No volume has this disk.
    Discard(Node),
    /// Nothing can be done; say why.
    Refuse(Refusal),
    /// The claim keeps what it has; its status says why.
    RefuseGrowth(Refusal),
}

impl Step {
    /// Whether it does harm if the volume is not as it was last seen: data is lost, or a growth is taken back.
    pub fn must_be_confirmed(&self) -> bool {
        match self {
            Self::Reclaim(_) | Self::Discard(_) | Self::Mount(_) => true,
            Self::Make(_) | Self::Grow(_) | Self::Refuse(_) | Self::RefuseGrowth(_) => false,
        }
    }

    /// Whether its failure is the failure of a growth.
    pub fn grows(&self) -> bool {
        matches!(self, Self::Grow(_) | Self::RefuseGrowth(_))
    }
}

/// The steps to be taken, in this order; none if all is as it should be.
pub fn decide(facts: &Facts<'_>) -> Vec<Step> {
    match (facts.volume, facts.claim) {
        (Some(volume), _) => match objects::node_of(volume) {
            Some(node) => {
                let step = about_volume(facts, volume, node);
                step.into_iter().chain(discard_other_than(Some(node), facts.disks)).collect()
            }
            // Somebody else's volume that has the name of one of ours: better a disk too many than data lost.
            None => Vec::new(),
        },
        (None, Some(claim)) if claim::is_waiting(claim) => match claim::order(claim, facts.free_bytes) {
            Ok(order) => {
                let others = discard_other_than(Some(order.node), facts.disks);
                std::iter::once(Step::Make(order)).chain(others).collect()
            }
            Err(refusal) => vec![Step::Refuse(refusal)],
        },
        (None, Some(_) | None) => discard_other_than(None, facts.disks).collect(),
    }
}

fn about_volume(facts: &Facts<'_>, volume: &PersistentVolume, node: Node) -> Option<Step> {
    let disk = facts.disks.iter().find(|disk| disk.node == node);
    if objects::is_released_to_delete(volume) {
        let is_leaving = volume.metadata.deletion_timestamp.is_some();
        return (disk.is_some() || !is_leaving).then_some(Step::Reclaim(node));
    }
    let Some(disk) = disk.filter(|disk| disk.is_mounted || disk.has_image) else {
        return Some(Step::Refuse(Refusal::DiskLost(node)));
    };
    let growth = disk.is_mounted.then(|| growth::decide(facts, volume, disk)).flatten();
    growth.or_else(|| match claim::bytes_of(&objects::capacity(volume)) {
        Ok(size_bytes) if disk.room.is_some_and(|room| room.size_bytes == size_bytes) => None,
        Ok(size_bytes) => Some(Step::Mount(Order { node, size_bytes })),
        Err(refusal) => Some(Step::Refuse(refusal)),
    })
}

fn discard_other_than(node: Option<Node>, disks: &[Found]) -> impl Iterator<Item = Step> {
    disks.iter().filter(move |disk| Some(disk.node) != node).map(|disk| Step::Discard(disk.node))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(changes: serde_json::Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "data-0", "namespace": "default", "uid": "1", "annotations": {
                "volume.kubernetes.io/storage-provisioner": "testbed/local",
                "volume.kubernetes.io/selected-node": "n2",
            }},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "standard",
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        merge(&mut claim, changes);
        serde_json::from_value(claim).expect("a claim")
    }

    /// On node 2, bound.
    fn volume(changes: serde_json::Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": {"name": "pvc-1", "annotations": {"pv.kubernetes.io/provisioned-by": "testbed/local"}},
            "spec": {"persistentVolumeReclaimPolicy": "Delete", "capacity": {"storage": "1Gi"}, "local": {"path": "/x/volumes/n2/pvc-1"}},
            "status": {"phase": "Bound"},
        });
        merge(&mut volume, changes);
        serde_json::from_value(volume).expect("a volume")
    }

    fn merge(value: &mut serde_json::Value, changes: serde_json::Value) {
        match (value, changes) {
            (serde_json::Value::Object(fields), serde_json::Value::Object(changes)) => {
                for (name, change) in changes {
                    merge(fields.entry(name).or_insert(json!(null)), change);
                }
            }
            (value, changes) => *value = changes,
        }
    }

    fn node(name: &str) -> Node {
        Node::by_name(name).expect("a node")
    }

    fn mounted_on(name: &str) -> Found {
        let room = Some(Room { size_bytes: 1 << 30, most_bytes: 4 << 30 });
        Found { node: node(name), has_image: true, is_mounted: true, room }
    }

    fn steps(
        claim: Option<&PersistentVolumeClaim>,
        volume: Option<&PersistentVolume>,
        disks: &[Found],
    ) -> Vec<Step> {
        decide(&Facts { claim, volume, disks, free_bytes: 10 << 30, growth_fails: false })
    }

    fn refusal(changes: serde_json::Value) -> Option<Refusal> {
        match steps(Some(&claim(changes)), None, &[]).as_slice() {
            [Step::Refuse(refusal)] => Some(refusal.clone()),
            _ => None,
        }
    }

    #[test]
    fn a_placed_claim_gets_a_disk_of_its_size_on_its_node() {
        let order = Order { node: node("n2"), size_bytes: 1 << 30 };
        assert_eq!(steps(Some(&claim(json!({}))), None, &[]), [Step::Make(order)]);
    }

    #[test]
    fn a_making_that_was_cut_short_is_finished() {
        let half = Found { node: node("n2"), has_image: false, is_mounted: false, room: None };
        let order = Order { node: node("n2"), size_bytes: 1 << 30 };
        assert_eq!(steps(Some(&claim(json!({}))), None, &[half]), [Step::Make(order)]);
        assert_eq!(steps(Some(&claim(json!({}))), None, &[mounted_on("n2")]), [Step::Make(order)]);
    }

    #[test]
    fn a_claim_that_moved_before_it_had_a_volume_leaves_no_disk_behind() {
        let order = Order { node: node("n2"), size_bytes: 1 << 30 };
        let expected = [Step::Make(order), Step::Discard(node("n3"))];
        assert_eq!(steps(Some(&claim(json!({}))), None, &[mounted_on("n3")]), expected);
    }

    #[test]
    fn claims_of_others_and_claims_with_a_volume_are_left_alone() {
        let other =
            json!({"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "other"}}});
        let bound = json!({"spec": {"volumeName": "pvc-1"}});
        let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        for changes in [other, bound, leaving] {
            assert_eq!(steps(Some(&claim(changes.clone())), None, &[]), [], "{changes}");
        }
    }

    #[test]
    fn what_can_not_be_made_is_refused_with_the_reason() {
        let storage = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let annotated =
            |value| json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": value}}});
        assert_eq!(refusal(storage("4Mi")), Some(Refusal::TooSmall(4 << 20)));
        assert_eq!(refusal(storage("lots")), Some(Refusal::UnreadableSize("lots".into())));
        let no_space = Refusal::NoSpace { requested_bytes: 11 << 30, free_bytes: 10 << 30 };
        assert_eq!(refusal(storage("11Gi")), Some(no_space));
        assert_eq!(
            refusal(json!({"spec": {"volumeMode": "Block"}})),
            Some(Refusal::UnsupportedMode("Block".into()))
        );
        assert_eq!(
            refusal(json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}})),
            Some(Refusal::UnsupportedAccess("ReadWriteMany".into()))
        );
        assert_eq!(
            refusal(json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}}})),
            Some(Refusal::UnsupportedSource)
        );
        assert_eq!(refusal(annotated(json!("elsewhere"))), Some(Refusal::UnknownNode("elsewhere".into())));
        let unplaced = json!({"metadata": {"annotations": {
            "volume.kubernetes.io/storage-provisioner": "testbed/local"}}});
        let mut claim = claim(json!({}));
        claim.metadata = serde_json::from_value(unplaced["metadata"].clone()).expect("metadata");
        assert_eq!(steps(Some(&claim), None, &[]), [Step::Refuse(Refusal::NoNode)]);
    }

    #[test]
    fn a_size_between_blocks_is_rounded_up() {
        let odd = claim(json!({"spec": {"resources": {"requests": {"storage": "10000001"}}}}));
        let order = Order { node: node("n2"), size_bytes: 10_002_432 };
        assert_eq!(steps(Some(&odd), None, &[]), [Step::Make(order)]);
    }

    #[test]
    fn a_volume_with_a_mounted_disk_needs_nothing() {
        let bound = claim(json!({"spec": {"volumeName": "pvc-1"}}));
        assert_eq!(steps(Some(&bound), Some(&volume(json!({}))), &[mounted_on("n2")]), []);
    }

    #[test]
    fn a_volume_whose_mount_is_missing_is_mounted_again() {
        let unmounted = Found { is_mounted: false, room: None, ..mounted_on("n2") };
        let mount = [Step::Mount(Order { node: node("n2"), size_bytes: 1 << 30 })];
        assert_eq!(steps(None, Some(&volume(json!({}))), &[unmounted]), mount);
        let whole = Some(Room { size_bytes: 4 << 30, most_bytes: 4 << 30 });
        let unlimited = Found { room: whole, ..mounted_on("n2") };
        assert_eq!(steps(None, Some(&volume(json!({}))), &[unlimited]), mount, "its size is not set yet");
    }

    #[test]
    fn a_lost_disk_is_reported_and_not_replaced_by_an_empty_one() {
        let lost = [Step::Refuse(Refusal::DiskLost(node("n2")))];
        assert_eq!(steps(None, Some(&volume(json!({}))), &[]), lost);
    }

    #[test]
    fn a_released_volume_is_reclaimed_or_kept_as_its_policy_says() {
        let released = volume(json!({"status": {"phase": "Released"}}));
        assert_eq!(steps(None, Some(&released), &[mounted_on("n2")]), [Step::Reclaim(node("n2"))]);
        let leaving = volume(json!({
            "status": {"phase": "Released"}, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert_eq!(steps(None, Some(&leaving), &[mounted_on("n2")]), [Step::Reclaim(node("n2"))]);
        assert_eq!(steps(None, Some(&leaving), &[]), [], "only its finalizers hold it");
        let kept = volume(json!({
            "status": {"phase": "Released"}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
        assert_eq!(steps(None, Some(&kept), &[mounted_on("n2")]), []);
    }

    #[test]
    fn a_disk_without_volume_goes_unless_its_claim_waits_for_it() {
        let lost = claim(json!({"spec": {"volumeName": "pvc-1"}}));
        let discard = [Step::Discard(node("n2"))];
        assert_eq!(steps(None, None, &[mounted_on("n2")]), discard);
        assert_eq!(steps(Some(&lost), None, &[mounted_on("n2")]), discard);
        let refused = claim(json!({"spec": {"volumeMode": "Block"}}));
        assert!(!steps(Some(&refused), None, &[mounted_on("n2")]).iter().any(Step::must_be_confirmed));
    }

    #[test]
    fn a_disk_on_another_node_than_its_volume_goes() {
        let disks = [mounted_on("n1"), mounted_on("n2")];
        assert_eq!(steps(None, Some(&volume(json!({}))), &disks), [Step::Discard(Node::MACHINE)]);
    }

    #[test]
    fn volumes_of_others_are_left_alone_even_if_released() {
        for changes in [
            json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "other"}}}),
            json!({"spec": {"local": {"path": "/elsewhere/pvc-1"}}}),
            json!({"spec": {"local": {"path": "/x/volumes/n2/pvc-2"}}}),
        ] {
            let mut released = volume(changes.clone());
            released.status = serde_json::from_value(json!({"phase": "Released"})).expect("a status");
            assert_eq!(steps(None, Some(&released), &[mounted_on("n2")]), [], "{changes}");
        }
    }
}
