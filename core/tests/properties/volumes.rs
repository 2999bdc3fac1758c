//! What holds for every size and class of volumes that users ask for.

use etcd_operator_core::decide::{Goal, decide, resizes};
use etcd_operator_core::observed::{Claim, Observed, Ordinal, Seen, Unanswered, VolumeForm};
use etcd_operator_core::plan::Action;
use etcd_operator_core::request::{Change, Object};
use proptest::prelude::*;
use proptest::sample::select;

use super::{configuration, snapshots};

const MI: u64 = 1 << 20;

fn size() -> impl Strategy<Value = u64> {
    select(vec![1024 * MI, 1025 * MI, 1500 * MI, 2048 * MI])
}

fn class() -> impl Strategy<Value = Option<String>> {
    select(vec![None, Some("slow".to_owned()), Some("fast".to_owned())])
}

fn form() -> impl Strategy<Value = VolumeForm> {
    (size(), class()).prop_map(|(bytes, class)| VolumeForm { bytes, class })
}

type Volume = (u64, Option<u64>, Option<String>, bool, bool);

fn volume() -> impl Strategy<Value = Volume> {
    let unbound = prop::bool::weighted(0.1);
    (size(), prop::option::weighted(0.9, size()), class(), unbound, any::<bool>())
}

/// A settled cluster whose volumes are anything, and of whose members some do not serve.
fn volumes() -> impl Strategy<Value = (Goal, Observed)> {
    let silent = prop::collection::vec(prop::bool::weighted(0.15), 9);
    let there = prop::option::weighted(0.9, form());
    (snapshots::settled(), form(), there, prop::collection::vec(volume(), 9), silent, any::<bool>()).prop_map(
        |((mut goal, mut seen), wanted, there, volumes, silent, followed)| {
            goal.volumes = Some(wanted);
            seen.versions.claims = seen.claims.keys().map(|it| (*it, "1".to_owned())).collect();
            for (claim, (requested, capacity, class, unbound, precedes_set)) in
                seen.claims.values_mut().zip(volumes)
            {
                claim.requested_bytes = Some(requested);
                claim.capacity_bytes = capacity.filter(|_| !unbound);
                (claim.class, claim.precedes_set, claim.bound) = (class, precedes_set, !unbound);
            }
            if let Some(set) = &mut seen.set {
                (set.volumes, set.followed) = (there, followed);
            }
            for (answer, _) in seen.etcd.answers.values_mut().zip(silent).filter(|(_, silent)| *silent) {
                *answer = Seen::Unknown(Unanswered::Unreachable("no answer".into()));
            }
            (goal, seen)
        },
    )
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn a_claim_never_asks_for_less_than_its_volume_has((goal, seen) in volumes()) {
        for write in resizes(&goal, &seen) {
            let (Object::Claim(ordinal), Change::Resize(bytes)) = (write.object, write.change) else {
                panic!("{:?}", write.object);
            };
            let claim = &seen.claims[&ordinal];
            prop_assert!(claim.bound && claim.capacity_bytes.is_some_and(|it| bytes > it || claim.requested_bytes < Some(bytes)));
            prop_assert!(Some(bytes) != claim.requested_bytes);
        }
    }

    #[test]
    fn what_is_asked_for_is_asked_for_once((goal, mut seen) in volumes()) {
        for write in resizes(&goal, &seen) {
            if let (Object::Claim(ordinal), Change::Resize(bytes)) = (write.object, write.change) {
                seen.claims.entry(ordinal).and_modify(|claim| claim.requested_bytes = Some(bytes));
            }
        }
        prop_assert_eq!(resizes(&goal, &seen), []);
        // Also when the storage has done it.
        for claim in seen.claims.values_mut().filter(|claim| claim.capacity_bytes.is_some()) {
            claim.capacity_bytes = claim.capacity_bytes.max(claim.requested_bytes);
        }
        prop_assert_eq!(resizes(&goal, &seen), []);
    }

    #[test]
    fn a_member_is_replaced_for_its_class_only_while_all_others_serve((goal, seen) in volumes()) {
        let plan = decide(&goal, &seen);
        let members = seen.etcd.members.known().expect("they are listed");
        for action in &plan.actions {
            let Action::RemoveMember { member, .. } = action else { continue };
            let serves = |ordinal: Ordinal| seen.etcd.answers.get(&ordinal).is_some_and(|it| it.known().is_some());
            let mut others = members.voters().filter(|(id, _)| id != member).peekable();
            prop_assert!(others.peek().is_some(), "{plan}");
            prop_assert!(others.all(|(_, it)| it.ordinal.is_some_and(serves)), "{plan}");
            prop_assert!(members.leader != Some(*member), "{plan}");
            let ordinal = members.list[member].ordinal.expect("it is ours");
            let wanted = goal.volumes.as_ref().and_then(|it| it.class.as_ref()).expect("a class is wanted");
            prop_assert!(seen.claims[&ordinal].class.as_ref() != Some(wanted), "{plan}");
            let set = seen.set.as_ref().expect("it is there");
            prop_assert!(set.followed && set.volumes.as_ref().is_some_and(|it| it.class.as_ref() == Some(wanted)));
        }
    }

    #[test]
    fn nothing_but_volumes_changes((goal, seen) in volumes()) {
        let plan = decide(&goal, &seen);
        let unbound = |ordinal: &Ordinal| !seen.claims[ordinal].bound;
        for action in &plan.actions {
            let ok = match action {
                Action::OrphanSet { .. } => seen.set.as_ref().is_some_and(|set| set.volumes != goal.volumes),
                Action::RemoveMember { .. } | Action::MoveLeader { .. } => true,
                Action::DeleteClaim { ordinal, .. } | Action::DeletePod { ordinal, .. } => unbound(ordinal),
                _ => false,
            };
            prop_assert!(ok, "{plan}");
        }
    }

    #[test]
    fn no_claim_with_a_volume_is_deleted_for_its_size_or_class((goal, mut seen) in volumes(), left in 0..9_u8) {
        // One is no member any more.
        if let Seen::Known(members) = &mut seen.etcd.members {
            members.list.retain(|_, member| member.ordinal != Some(Ordinal(left)));
            members.leader = members.leader.filter(|it| members.list.contains_key(it));
        }
        if let Some(claim) = seen.claims.get_mut(&Ordinal(left)) {
            claim.member = None;
        }
        for action in decide(&goal, &seen).actions {
            if let Action::DeleteClaim { ordinal, .. } = action {
                let Claim { bound, .. } = &seen.claims[&ordinal];
                prop_assert!(!bound);
            }
        }
    }
}
