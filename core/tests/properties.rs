//! What holds for every snapshot, also for those that no world would ever show.

#![expect(clippy::wildcard_enum_match_arm, reason = "a property names the actions that it speaks of")]

#[path = "properties/recovery.rs"]
mod recovery;
#[path = "properties/rolls.rs"]
mod rolls;
#[path = "properties/snapshots.rs"]
mod snapshots;
#[path = "properties/volumes.rs"]
mod volumes;

use etcd_operator_core::assess::{Quorum, assess};
use etcd_operator_core::decide::{Goal, decide};
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::{
    Alarm, AlarmKind, Answer, Compared, Comparison, MemberId, Members, Observed, Reclaimed, Seen, Space,
    Unanswered, Verdict,
};
use etcd_operator_core::plan::{Action, Plan};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::version::Version;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use snapshots::{anything, settled};

/// The same cases every time; a longer look is taken with PROPTEST_CASES and PROPTEST_RNG_SEED.
pub fn configuration() -> ProptestConfig {
    let asked_for = ProptestConfig::default();
    let rng_seed = match asked_for.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        fixed @ RngSeed::Fixed(_) => fixed,
    };
    let cases = asked_for.cases.max(1500);
    ProptestConfig { cases, failure_persistence: None, rng_seed, ..asked_for }
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn the_same_snapshot_gives_the_same_plan((goal, seen) in anything()) {
        prop_assert_eq!(decide(&goal, &seen), decide(&goal.clone(), &seen.clone()));
    }

    #[test]
    fn a_settled_world_plans_nothing((goal, seen) in settled()) {
        prop_assert_eq!(decide(&goal, &seen), Plan::default());
    }

    #[test]
    fn no_plan_has_two_disruptions((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        prop_assert!(plan.actions.iter().filter(|action| action.is_disruptive()).count() <= 1, "{plan}");
    }

    #[test]
    fn membership_changes_alone((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        prop_assert!(!plan.actions.iter().any(changes_membership) || plan.actions.len() == 1, "{plan}");
    }

    #[test]
    fn no_plan_leaves_the_serving_voters_below_quorum((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        if let (Some(members), false) = (seen.etcd.members.known(), seen.cluster.deleting) {
            for action in &plan.actions {
                prop_assert!(keeps_quorum(action, &goal, &seen, members), "{plan}");
            }
        }
    }

    #[test]
    fn no_volume_goes_while_its_member_is_listed_or_the_order_is_there((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        let deleted = plan.actions.iter().filter_map(|action| match action {
            Action::DeleteClaim { ordinal, .. } => Some(*ordinal),
            _ => None,
        });
        let members = seen.etcd.members.known();
        let running = seen.set.as_ref().is_some_and(|set| set.replicas > 0) && members.is_some();
        for ordinal in deleted.filter(|_| !seen.cluster.deleting) {
            prop_assert!(seen.order.is_none(), "{plan}");
            let label = seen.claims[&ordinal].member;
            let listed = members.and_then(|members| label.and_then(|label| members.list.get(&label)));
            let never_formed = assess(&seen).cluster.is_none();
            prop_assert!(listed.is_none() || !running || never_formed, "{plan}");
        }
    }

    #[test]
    fn the_ids_of_members_do_not_matter((goal, seen) in anything(), mask in any::<u64>()) {
        let plan = decide(&goal, &seen);
        let renamed = decide(&goal, &rename(&seen, mask));
        let back = |id: MemberId| MemberId(id.0 ^ mask);
        let expected: Vec<Action> = renamed.actions.iter().map(|action| rename_action(action, back)).collect();
        prop_assert_eq!(&plan.actions, &expected);
        prop_assert_eq!(plan.waiting.len(), renamed.waiting.len());
        prop_assert_eq!(plan.refusals.len(), renamed.refusals.len());
    }

    #[test]
    fn a_formed_cluster_is_never_ordered_again((goal, seen) in anything()) {
        let known = assess(&seen).quorum != Quorum::NotBootstrapped;
        let ordered = |action: &Action| matches!(action, Action::CreateOrder { .. });
        prop_assert!(!(known && decide(&goal, &seen).actions.iter().any(ordered)));
    }

    #[test]
    fn unknown_members_lose_nothing((goal, mut seen) in anything()) {
        seen.etcd.members = Seen::Unknown(Unanswered::NoLinearizableRead);
        let plan = decide(&goal, &seen);
        let replicas = seen.set.as_ref().map_or(0, |set| set.replicas);
        let formed = assess(&seen).cluster.is_some() && !seen.cluster.deleting && goal.size > 0;
        for action in plan.actions.iter().filter(|_| formed) {
            let harmless = match action {
                Action::SetReplicas { replicas: wanted } => *wanted >= replicas,
                Action::AddFinalizer | Action::RecordFormed { .. } => true,
                Action::DeleteOrder { .. } | Action::AdoptClaim { .. } => true,
                Action::SetTemplate { .. } | Action::RecordForm { .. } | Action::RecordCleared { .. } => true,
                Action::DeletePreflight { .. } | Action::PrepareRecovery => true,
                Action::DeletePod { ordinal, .. } => assess(&seen).pod(*ordinal).cannot_start(),
                _ => false,
            };
            prop_assert!(harmless, "{plan}");
        }
    }

    #[test]
    fn what_belongs_to_another_cluster_is_left_alone((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        let foreign = |ordinal| seen.claims[ordinal].cluster_uid != seen.cluster.uid;
        for action in &plan.actions {
            match action {
                Action::DeleteClaim { ordinal, .. } | Action::LabelClaim { ordinal, .. } => {
                    prop_assert!(!foreign(ordinal), "{plan}");
                }
                Action::AdoptClaim { ordinal, .. } => {
                    let claim = &seen.claims[ordinal];
                    prop_assert!(foreign(ordinal) && !claim.terminating, "{plan}");
                    prop_assert_eq!(goal.adopts.as_ref(), Some(&claim.cluster_uid));
                    prop_assert!(seen.cluster.formed.is_none() && seen.set.is_none() && seen.order.is_none());
                }
                _ => {}
            }
        }
    }

    #[test]
    fn beside_foreign_volumes_nothing_begins((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        let foreign = seen.claims.values().any(|claim| claim.cluster_uid != seen.cluster.uid);
        let prepares = |action: &Action| matches!(action, Action::AddFinalizer | Action::AdoptClaim { .. });
        let begins = !plan.actions.iter().all(prepares);
        prop_assert!(!foreign || !begins || seen.cluster.deleting, "{plan}");
    }

    #[test]
    fn members_are_changed_only_in_the_cluster_that_formed((goal, seen) in anything()) {
        for action in &decide(&goal, &seen).actions {
            if let Action::AddLearner { cluster, .. }
            | Action::Promote { cluster, .. }
            | Action::MoveLeader { cluster, .. }
            | Action::RemoveMember { cluster, .. } = action
            {
                prop_assert_eq!(assess(&seen).cluster, Some(*cluster));
            }
        }
    }

    #[test]
    fn no_voter_ends_and_nobody_else_leads_while_voters_do_not_reach_each_other((goal, seen) in anything()) {
        let Some(members) = seen.etcd.members.known() else { return Ok(()) };
        let serving: Vec<_> = members.voters().filter_map(|(id, voter)| {
            let answer = answer_of(&seen, id).filter(|answer| answer.linearizable)?;
            Some((id, seen.pods.get(&voter.ordinal?), answer.reaches.as_ref()))
        }).collect();
        let reaches = |from: usize, to: usize| serving[from].2.is_some_and(|it| it.contains(&serving[to].0));
        let created = |it: usize| serving[it].1.and_then(|pod| pod.created);
        let apart = |leaving: Option<MemberId>| (0..serving.len()).any(|one| (0..one).any(|other| {
            let counts = ![Some(serving[one].0), Some(serving[other].0)].contains(&leaving);
            let connected = match (created(one), created(other)) {
                (Some(one_since), Some(other_since)) if one_since != other_since => {
                    let younger_is_one = one_since > other_since;
                    younger_is_one && reaches(one, other) || !younger_is_one && reaches(other, one)
                }
                _ => reaches(one, other) && reaches(other, one),
            };
            counts && !connected
        }));
        let plan = decide(&goal, &seen);
        for action in plan.actions.iter().filter(|_| members.voters().count() > 2) {
            match action {
                Action::EvictPod { ordinal, .. } | Action::DeletePod { ordinal, .. } => {
                    let serves = members.at(*ordinal).is_some_and(|(id, _)| serving.iter().any(|it| it.0 == id));
                    prop_assert!(!serves || !apart(None) || goal.size == 0, "{plan}");
                }
                Action::MoveLeader { from, .. } => {
                    let serves = serving.iter().any(|it| it.0 == *from);
                    prop_assert!(!serves || !apart(Some(*from)), "{plan}");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_pod_is_deleted_by_force_only_when_its_member_is_removed_and_its_node_lost_for_long((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        for action in &plan.actions {
            let Action::ForceDeletePod { ordinal, .. } = action else { continue };
            let members = seen.etcd.members.known().expect("they are listed");
            let holder = seen.claims[ordinal].member.expect("the claim says whose data it holds");
            prop_assert!(members.at(*ordinal).is_none() && !members.list.contains_key(&holder), "{plan}");
            prop_assert!(!matches!(seen.etcd.answers.get(ordinal), Some(Seen::Known(_))), "{plan}");
            let loss = seen.pods[ordinal].loss.as_ref().expect("its node is lost");
            prop_assert!(seen.now.as_second() - loss.since.as_second() >= goal.node_loss_grace_seconds, "{plan}");
            prop_assert!(seen.order.is_none() && !goal.paused && !seen.cluster.deleting, "{plan}");
        }
    }

    #[test]
    fn space_is_reclaimed_one_member_at_a_time_while_all_voters_serve_and_the_leader_has_no_room_last(
        (goal, mut seen) in anything(),
        large in any::<u16>(),
        done in any::<u16>(),
        is_compacted in any::<bool>(),
    ) {
        let now = seen.now;
        let ids: Vec<_> = seen.etcd.members.known().map(|it| it.list.keys().copied().collect()).unwrap_or_default();
        for (number, answer) in seen.etcd.answers.values_mut().enumerate() {
            if let Seen::Known(answer) = answer {
                let size = if large & (1 << number) == 0 { 40 } else { 100 };
                answer.space = Some(Space { size: size << 20, quota: Some(100 << 20), revision: 41 });
                answer.alarms = [Alarm { member: answer.member, kind: Alarm::NOSPACE.into() }].into();
            }
        }
        let is_done = |number: &usize| done & (1 << number) != 0;
        let defragmented = ids.iter().enumerate().filter(|(number, _)| is_done(number)).map(|(_, id)| *id).collect();
        seen.etcd.reclaimed =
            Reclaimed { compacted: is_compacted.then_some((41, now)), defragmented, disarmed: None };
        let plan = decide(&goal, &seen);
        let Some(members) = seen.etcd.members.known() else { return Ok(()) };
        let is_full = |id: MemberId| answer_of(&seen, id).is_some_and(|it| it.space.is_some_and(|it| it.size > 90 << 20));
        for action in &plan.actions {
            let all_serve = || members.voters().all(|(id, _)| answer_of(&seen, id).is_some_and(|it| it.linearizable));
            let reclaims = matches!(action, Action::Compact { .. } | Action::Defragment { .. } | Action::Disarm { .. });
            prop_assert!(!reclaims || all_serve() && members.learners().next().is_none(), "{plan}");
            match action {
                Action::Compact { .. } => prop_assert!(!is_compacted, "{plan}"),
                Action::Defragment { member, .. } => {
                    prop_assert_eq!(plan.actions.len(), 1);
                    prop_assert!(is_full(*member) && !seen.etcd.reclaimed.defragmented.contains(member), "{plan}");
                    let others = members.voters().any(|(id, _)| id != *member && !is_full(id));
                    prop_assert!(members.leader != Some(*member) || !others, "{plan}");
                }
                Action::Disarm { .. } => prop_assert!(!members.voters().any(|(id, _)| is_full(id)), "{plan}"),
                _ => {}
            }
        }
    }

    #[test]
    fn a_member_is_removed_for_its_data_only_if_a_majority_agreed_twice_and_nobody_joins_while_data_differs(
        (goal, mut seen) in anything(),
        hashes in prop::collection::vec(0_u32..3, 18),
        revisions in (40_i64..42, 40_i64..42),
        is_corrupt in any::<bool>(),
    ) {
        let ids: Vec<_> = seen.etcd.members.known().map(|it| it.list.keys().copied().collect()).unwrap_or_default();
        let now = seen.now;
        let comparison = |revision, hashes: &[u32]| {
            Some(Comparison { at: now, revision, hashes: ids.iter().copied().zip(hashes.iter().copied()).collect() })
        };
        seen.etcd.compared = Compared {
            last: comparison(revisions.0, &hashes[..9]),
            before: comparison(revisions.1, &hashes[9..]),
            next: None,
            disarmed: None,
        };
        if is_corrupt {
            for answer in seen.etcd.answers.values_mut() {
                if let Seen::Known(answer) = answer {
                    answer.alarms = [Alarm { member: answer.member, kind: Alarm::CORRUPT.into() }].into();
                }
            }
        }
        let plan = decide(&goal, &seen);
        let not_compared = decide(&Goal { consistency_interval_seconds: None, ..goal.clone() }, &seen).actions;
        let Some(members) = seen.etcd.members.known() else { return Ok(()) };
        let Compared { last, before, .. } = &seen.etcd.compared;
        let verdict = last.as_ref().map_or(Verdict::Incomplete, |it| it.verdict(members));
        let differing = match &verdict {
            Verdict::Minority(ids) | Verdict::NoMajority(ids) => ids.clone(),
            Verdict::Equal | Verdict::Incomplete => Default::default(),
        };
        let leader_differs = members.leader.is_none_or(|it| differing.contains(&it));
        let promotes = |it: &Action| matches!(it, Action::Promote { .. });
        for action in &plan.actions {
            match action {
                Action::RemoveMember { member, .. }
                    if !not_compared.iter().any(|it| it == action || promotes(it)) =>
                {
                    // A learner is removed for the data of its leader.
                    let subject = if members.list[member].learner { members.leader } else { Some(*member) };
                    let outvoted = |it: &Comparison| {
                        let own = subject.and_then(|id| it.hashes.get(&id));
                        let others = members.voters().filter_map(|(id, _)| it.hashes.get(&id));
                        let others: Vec<_> = others.filter(|hash| Some(*hash) != own).collect();
                        let equal = |hash: &u32| others.iter().filter(|other| **other == hash).count();
                        others.iter().any(|hash| equal(hash) >= quorum(members.voters().count()))
                    };
                    prop_assert!(last.as_ref().is_some_and(outvoted), "{plan}");
                    let twice = revisions.0 != revisions.1 && before.as_ref().is_some_and(outvoted);
                    prop_assert!(twice || is_corrupt, "{plan}");
                    let serving = members.voters().filter(|(id, _)| id != member);
                    let serving = serving.filter(|(id, _)| answer_of(&seen, *id).is_some_and(|it| it.linearizable)).count();
                    let staying = members.voters().filter(|(id, _)| id != member).count();
                    prop_assert!(serving >= quorum(staying) || members.list[member].learner, "{plan}");
                }
                Action::AddLearner { .. } | Action::Promote { .. } => {
                    prop_assert!(differing.is_empty() || !leader_differs, "{plan}");
                }
                Action::Disarm { kind: AlarmKind::Corrupt, .. } => {
                    prop_assert_eq!(&verdict, &Verdict::Equal, "{}", plan);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_second_learner_needs_every_started_member_at_3_6((goal, seen) in anything()) {
        let plan = decide(&goal, &seen);
        let adds = plan.actions.iter().any(|action| matches!(action, Action::AddLearner { .. }));
        if let (Some(members), true) = (seen.etcd.members.known(), adds) {
            let learners = members.learners().count();
            let mut started = members.list.iter().filter(|(_, member)| member.start != MemberProgress::Added);
            let accept = started.all(|(&id, _)| {
                let version = answer_of(&seen, id).and_then(|answer| answer.version);
                version.is_some_and(|version| version >= Version::new(3, 6, 0))
            });
            prop_assert!(learners == 0 || learners == 1 && accept, "{plan}");
        }
    }
}

/// Apart from the assessment, which is what the properties check.
pub fn answer_of(seen: &Observed, id: MemberId) -> Option<&Answer> {
    let cluster = seen.etcd.members.known().map(|members| members.cluster);
    let mut answers = seen.etcd.answers.values().filter_map(Seen::known);
    answers.find(|answer| answer.member == id && Some(answer.cluster) == cluster)
}

fn changes_membership(action: &Action) -> bool {
    matches!(
        action,
        Action::AddLearner { .. }
            | Action::Promote { .. }
            | Action::MoveLeader { .. }
            | Action::RemoveMember { .. }
    )
}

fn keeps_quorum(action: &Action, goal: &Goal, seen: &Observed, members: &Members) -> bool {
    let serves = |id: &MemberId| answer_of(seen, *id).is_some_and(|answer| answer.linearizable);
    match action {
        Action::RemoveMember { member, .. } => {
            let learner = members.list.get(member).is_some_and(|member| member.learner);
            let staying: Vec<MemberId> =
                members.voters().map(|(id, _)| id).filter(|id| id != member).collect();
            learner || staying.iter().filter(|id| serves(id)).count() >= quorum(staying.len())
        }
        Action::MoveLeader { to, .. } => serves(to),
        Action::DeletePod { ordinal, .. } | Action::EvictPod { ordinal, .. } => {
            let (here, facts) = (members.at(*ordinal), assess(seen));
            // A list of another cluster says nothing about our members.
            let is_mended = facts.listed().is_none() && facts.pod(*ordinal).cannot_start();
            here.is_none_or(|(_, member)| member.start == MemberProgress::Added)
                || is_mended
                || rolls::may_end(*ordinal, goal, seen)
        }
        // Stopping is what size 0 asks for, and a cluster that never formed has nobody to lose.
        Action::SetReplicas { replicas } => {
            *replicas >= members.span() || goal.size == 0 || assess(seen).cluster.is_none()
        }
        _ => true,
    }
}

fn rename(seen: &Observed, mask: u64) -> Observed {
    let id = |id: MemberId| MemberId(id.0 ^ mask);
    let mut seen = seen.clone();
    seen.claims.values_mut().for_each(|claim| claim.member = claim.member.map(id));
    for answer in seen.etcd.answers.values_mut() {
        if let Seen::Known(answer) = answer {
            answer.member = id(answer.member);
            answer.leader = answer.leader.map(id);
            answer.reaches =
                answer.reaches.as_ref().map(|reaches| reaches.iter().map(|&it| id(it)).collect());
        }
    }
    if let Seen::Known(members) = &mut seen.etcd.members {
        members.leader = members.leader.map(id);
        members.list = members.list.iter().map(|(&old, member)| (id(old), member.clone())).collect();
    }
    seen.etcd.started = seen.etcd.started.iter().map(|&it| id(it)).collect();
    seen.etcd.reclaimed.defragmented = seen.etcd.reclaimed.defragmented.iter().map(|&old| id(old)).collect();
    seen.etcd.silent_since = seen.etcd.silent_since.iter().map(|(&old, &since)| (id(old), since)).collect();
    seen
}

fn rename_action(action: &Action, id: impl Fn(MemberId) -> MemberId) -> Action {
    let mut action = action.clone();
    match &mut action {
        Action::LabelClaim { member, .. }
        | Action::Promote { member, .. }
        | Action::Defragment { member, .. }
        | Action::RemoveMember { member, .. } => *member = id(*member),
        Action::MoveLeader { from, to, .. } => (*from, *to) = (id(*from), id(*to)),
        _ => {}
    }
    action
}
