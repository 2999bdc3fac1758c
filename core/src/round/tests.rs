use super::*;
use crate::member::MemberProgress;
use crate::observed::{
    Alarm, AlarmKind, Answer, Claim, ClusterId, Comparison, DataHash, Member, MemberId, Members, Ordinal,
    Reclaimed, Seen, Versions,
};
use crate::plan::{DefragmentationCause, WaitingOn};

const CLOCK: Clock = Clock { now: Timestamp::UNIX_EPOCH, dice: 200 };
const CLUSTER: ClusterId = ClusterId(0xc1);

fn goal() -> Goal {
    Goal::of_size(1)
}

/// Nothing but an EtcdCluster.
fn seen(finalizer: bool) -> Observed {
    let mut seen = Observed::nothing_of("uid");
    seen.cluster.finalizer = finalizer;
    seen
}

fn names() -> Names {
    Names::new("ns", "kv", "cluster.local")
}

fn remove() -> Action {
    Action::RemoveMember { member: MemberId(0xa1), cluster: CLUSTER }
}

fn not_yet() -> Outcome {
    Outcome::NotDone(Trouble::EtcdNotYet("unhealthy cluster".into()))
}

fn silence() -> Outcome {
    Outcome::Ambiguous("no response".into())
}

#[test]
fn what_could_do_harm_is_decided_on_a_live_observation() {
    let mut round = Round::default();
    assert_eq!(round.begin(CLOCK.now), Freshness::Cached);
    // Without a finalizer the plan is to add it, which does no harm; with one it is to create an order.
    let harmless = round.consider(&goal(), &seen(false), &vec![], Freshness::Cached);
    assert_eq!(harmless, Next::Proceed(Plan::act(Action::AddFinalizer)));
    assert_eq!(round.begin(CLOCK.now), Freshness::Cached);
    assert_eq!(round.consider(&goal(), &seen(true), &vec![], Freshness::Cached), Next::Confirm);
    assert_eq!(round.begin(CLOCK.now), Freshness::Live);
    let confirmed = round.consider(&goal(), &seen(true), &vec![], Freshness::Live);
    assert_eq!(confirmed, Next::Proceed(Plan::act(Action::CreateOrder { size: 1 })));
    assert_eq!(round.begin(CLOCK.now), Freshness::Cached, "once");
}

#[test]
fn a_volume_is_deleted_only_after_a_live_observation() {
    let goal = Goal { on_delete: crate::decide::OnDelete::Delete, ..goal() };
    let mut seen = seen(true);
    seen.cluster.deleting = true;
    let (uid, cluster_uid) = ("claim".to_owned(), seen.cluster.uid.clone());
    let claim = Claim { uid: uid.clone(), terminating: false, cluster_uid, bound: true, ..Claim::default() };
    seen.claims.insert(Ordinal(0), claim);
    let mut round = Round::default();
    assert_eq!(round.consider(&goal, &seen, &vec![], Freshness::Cached), Next::Confirm);
    let Next::Proceed(plan) = round.consider(&goal, &seen, &vec![], Freshness::Live) else {
        panic!("a live observation decides");
    };
    assert_eq!(plan.actions, [Action::DeleteClaim { ordinal: Ordinal(0), uid }]);
}

#[test]
fn whatever_became_of_a_step_the_next_observation_is_live() {
    for outcome in [Outcome::Done, Outcome::Overtaken, not_yet(), silence()] {
        let mut round = Round::default();
        round.stepped(&remove(), outcome);
        assert_eq!(round.begin(CLOCK.now), Freshness::Live);
    }
}

#[test]
fn the_next_step_follows_only_one_that_was_done_could_do_no_harm_and_left_the_cluster_object_alone() {
    let label = || Action::LabelClaim { ordinal: Ordinal(0), uid: "uid".into(), member: MemberId(0xa0) };
    let mut round = Round::default();
    assert_eq!(round.stepped(&label(), Outcome::Done), None);
    assert_eq!(round.stepped(&label(), Outcome::Overtaken), Some(Ended::Moved));
    assert_eq!(round.stepped(&label(), not_yet()), Some(Ended::Stuck));
    assert_eq!(round.stepped(&remove(), Outcome::Done), Some(Ended::Moved));
    assert_eq!(round.stepped(&Action::RecordFormed { cluster: CLUSTER }, Outcome::Done), Some(Ended::Moved));
}

/// Three members that serve; the list came from pod 0.
fn three() -> Observed {
    let mut seen = seen(true);
    let answer = |ordinal: Ordinal| {
        let answer = Answer {
            cluster: CLUSTER,
            member: MemberId(0xa0 + u64::from(ordinal.0)),
            leader: Some(MemberId(0xa0)),
            linearizable: true,
            denied: false,
            applied_index: 1,
            commit_index: 0,
            term: 0,
            version: None,
            storage_version: None,
            downgrade: Default::default(),
            listed: None,
            hash: None,
            alarms: Default::default(),
            space: None,
            file: None,
            reaches: None,
        };
        (ordinal, Seen::Known(answer))
    };
    seen.etcd.answers = Ordinal::below(3).map(answer).collect();
    let list = Default::default();
    seen.etcd.members = Seen::Known(Members { cluster: CLUSTER, leader: Some(MemberId(0xa0)), list });
    seen.etcd.via = Some(Ordinal(0));
    seen
}

/// The pod whose etcd is called.
fn via(round: &Round, action: &Action) -> Option<Ordinal> {
    let Ok(Request::Etcd(call)) = round.request(action, &three(), &names()) else { return None };
    Some(call.via)
}

#[test]
fn after_each_refusal_of_etcd_the_next_member_is_asked_and_after_a_success_the_first() {
    let mut round = Round::default();
    for ordinal in [0, 2, 1, 0] {
        let expected = Some(Ordinal(ordinal));
        assert_eq!(via(&round, &remove()), expected, "the one that leaves is the last to be asked");
        round.stepped(&remove(), not_yet());
    }
    round.stepped(&remove(), Outcome::NotDone(Trouble::Failed("broken".into())));
    assert_eq!(via(&round, &remove()), Some(Ordinal(2)), "that was no refusal");
    round.stepped(&remove(), Outcome::Done);
    assert_eq!((via(&round, &remove()), round.trouble()), (Some(Ordinal(0)), None));
}

#[test]
fn leadership_is_moved_by_the_leader_and_a_promotion_is_requested_from_the_first() {
    let mut round = Round::default();
    round.stepped(&remove(), not_yet());
    let (from, to, member) = (MemberId(0xa2), MemberId(0xa0), MemberId(0xa1));
    let via = |action: Action| via(&round, &action);
    assert_eq!(via(Action::MoveLeader { from, to, cluster: CLUSTER }), Some(Ordinal(2)));
    assert_eq!(via(Action::Promote { ordinal: Ordinal(1), member, cluster: CLUSTER }), Some(Ordinal(0)));
    let cluster = ClusterId(0xc2);
    assert_eq!(via(Action::AddLearner { ordinal: Ordinal(1), cluster }), None, "that is another cluster");
    assert_eq!(via(Action::MoveLeader { from, to, cluster }), None);
}

#[test]
fn a_step_without_a_response_is_looked_into_at_once_and_reported_only_the_second_time() {
    let mut round = Round::default();
    for _ in 0..2 {
        assert_eq!(round.stepped(&remove(), silence()), Some(Ended::Overtaken));
        assert_eq!((round.trouble(), round.clone().rest(&Ended::Overtaken, CLOCK)), (None, None));
        assert_eq!(round.stepped(&remove(), silence()), Some(Ended::Stuck));
        assert_eq!(round.trouble(), Some(&Trouble::Failed("no response".into())));
        assert_eq!(round.stepped(&remove(), silence()), Some(Ended::Stuck));
        round.stepped(&remove(), Outcome::Done);
    }
}

#[test]
fn a_failed_step_is_retried_slower_than_one_that_etcd_does_not_take_yet() {
    let pause = |trouble: Trouble| {
        let mut round = Round::default();
        round.stepped(&remove(), Outcome::NotDone(trouble));
        round.rest(&Ended::Stuck, CLOCK).expect("it sleeps")
    };
    assert_eq!(pause(Trouble::EtcdNotYet("no".into())).at_least, Duration::ZERO);
    assert!(pause(Trouble::Failed("no".into())).at_least > Duration::ZERO);
    assert_eq!(Round::default().rest(&Ended::Moved, CLOCK), None);
}

#[test]
fn trouble_that_the_status_has_just_reported_is_forgotten_when_there_is_nothing_to_do() {
    let mut round = Round::default();
    round.hold_up(Trouble::Failed("broken".into()));
    let (seen, unseen) = (seen(true), vec![]);
    let idle = |round: &mut Round| round.idle(Plan::default(), LearnsBy::Streams, (&seen, &unseen, None));
    assert_eq!(idle(&mut round), Ended::Moved);
    assert_eq!(idle(&mut round), Ended::Idle(Plan::default(), LearnsBy::Streams));
    let failed = Outcome::NotDone(Trouble::Failed("forbidden".into()));
    round.writes.record(SideWrite::Status, failed, seen.now);
    assert_eq!(idle(&mut round), Ended::Moved, "a newer failure is reported first");
    round.reported = round.writes.failed();
    assert_eq!(idle(&mut round), Ended::Idle(Plan::default(), LearnsBy::Streams));
}

#[test]
fn a_settled_cluster_is_not_considered_again_until_something_differs() {
    let mut round = Round::default();
    let goal = Goal { paused: true, ..goal() };
    let heartbeat = Some(Timestamp::from_second(300).expect("a time"));
    let unseen = vec![Some("1".to_owned())];
    round.idle(Plan::default(), LearnsBy::Streams, (&seen(true), &unseen, heartbeat));
    assert_eq!(round.consider(&goal, &seen(true), &unseen, Freshness::Cached), Next::Unchanged);
    let versions = Versions { cluster: Some("2".into()), ..Versions::default() };
    let rewritten = Observed { versions, ..seen(true) };
    assert_eq!(round.consider(&goal, &rewritten, &unseen, Freshness::Cached), Next::Unchanged);
    let paused = Next::Proceed(Plan::wait(WaitingOn::Unpause));
    assert_eq!(round.consider(&goal, &seen(true), &vec![], Freshness::Cached), paused);
    assert_eq!(round.consider(&goal, &seen(true), &unseen, Freshness::Cached), paused, "it was forgotten");
}

#[test]
fn a_step_that_leads_to_new_pods_waits_for_the_peer_service() {
    let mut round = Round::default();
    let service = SideWrite::Object("Service kv-peer".into());
    let failed = Outcome::NotDone(Trouble::Failed("forbidden".into()));
    round.writes.record(service, failed, Timestamp::UNIX_EPOCH);
    let trouble = Trouble::Failed("cannot write Service kv-peer: forbidden".into());
    let create = Action::CreateOrder { size: 1 };
    assert_eq!(round.request(&create, &seen(true), &names()), Err(trouble));
    assert!(round.request(&remove(), &three(), &names()).is_ok());
}

#[test]
fn a_step_waits_for_what_a_previous_cluster_left_and_fails_where_others_have_its_names() {
    let round = Round::default();
    let taken = |object, owner| Observed { taken: [Taken { object, owner }].into(), ..seen(true) };
    let request = |action: &Action, seen: &Observed| round.request(action, seen, &names()).err();
    let (create, scale) = (Action::CreateOrder { size: 1 }, Action::SetReplicas { replicas: 1 });
    let left_behind = |what: &str| Some(Trouble::LeftBehind(what.into()));
    let order = taken(Object::Order, Owner::PreviousCluster);
    assert_eq!(request(&create, &order), left_behind("ConfigMap kv-bootstrap"));
    assert_eq!(request(&scale, &order), None);
    let set = taken(Object::Set, Owner::PreviousCluster);
    assert_eq!(request(&create, &set), left_behind("StatefulSet kv"), "not even an order");
    assert_eq!(request(&scale, &set), left_behind("StatefulSet kv"));
    for (object, title) in [
        (Object::Pod(Ordinal(0)), "Pod kv-0"),
        (Object::Claim(Ordinal(0)), "PersistentVolumeClaim data-kv-0"),
    ] {
        let seen = taken(object, Owner::Other);
        let text = format!(
            "{title} exists already and has another owner: delete it, or give the cluster another name"
        );
        assert_eq!(request(&scale, &seen), Some(Trouble::Failed(text)));
        assert_eq!(request(&Action::SetReplicas { replicas: 0 }, &seen), None);
    }
}

/// With the alarm NOSPACE, or without it.
fn full(is_full: bool, now: i64) -> Observed {
    let mut seen = three();
    seen.now = Timestamp::from_second(now).expect("a time");
    let members = Ordinal::below(3).map(|ordinal| {
        let listed = Member {
            ordinal: Some(ordinal),
            learner: false,
            start: MemberProgress::Published,
            schemes: Default::default(),
        };
        (MemberId(0xa0 + u64::from(ordinal.0)), listed)
    });
    if let Seen::Known(listed) = &mut seen.etcd.members {
        listed.list = members.collect();
    }
    for answer in seen.etcd.answers.values_mut() {
        if let Seen::Known(answer) = answer {
            let alarm = Alarm { member: MemberId(0xa1), kind: Alarm::NOSPACE.into() };
            answer.alarms = is_full.then_some(alarm).into_iter().collect();
        }
    }
    seen
}

fn corrupt(is_corrupt: bool, now: i64) -> Observed {
    let mut seen = full(is_corrupt, now);
    for answer in seen.etcd.answers.values_mut() {
        if let Seen::Known(answer) = answer {
            let alarms = answer.alarms.iter().map(|it| Alarm { kind: Alarm::CORRUPT.into(), ..it.clone() });
            answer.alarms = alarms.collect();
        }
    }
    seen
}

#[test]
fn what_was_done_about_a_full_database_is_remembered_until_the_alarm_is_over_also_without_a_response() {
    let mut round = Round::default();
    let reclaimed = |round: &mut Round, is_full: bool, now: i64| {
        let mut seen = full(is_full, now);
        round.memory.note_silence(&mut seen);
        seen.etcd.reclaimed
    };
    assert!(!round.memory.is_space_reclaimed());
    assert_eq!(reclaimed(&mut round, true, 10), Reclaimed::default());
    assert!(round.memory.is_space_reclaimed(), "members are asked whom they reach");
    round.stepped(&Action::Compact { revision: 41, cluster: CLUSTER }, Outcome::Done);
    let at = |second| Timestamp::from_second(second).expect("a time");
    assert_eq!(reclaimed(&mut round, true, 20).compacted, Some((41, at(20))));
    assert_eq!(reclaimed(&mut round, true, 30).compacted, Some((41, at(20))));
    round.stepped(
        &Action::Defragment { member: MemberId(0xa1), cause: DefragmentationCause::Full, cluster: CLUSTER },
        silence(),
    );
    round.stepped(
        &Action::Defragment { member: MemberId(0xa2), cause: DefragmentationCause::Full, cluster: CLUSTER },
        not_yet(),
    );
    assert_eq!(reclaimed(&mut round, true, 40).defragmented, [MemberId(0xa1)].into());
    round.stepped(&Action::Disarm { kind: AlarmKind::NoSpace, cluster: CLUSTER }, Outcome::Done);
    assert_eq!(reclaimed(&mut round, true, 50).disarmed, None, "it is still active");
    let defragmented = [MemberId(0xa1)].into();
    let expected = Reclaimed { disarmed: Some(at(60)), defragmented, compacted: None };
    assert_eq!(reclaimed(&mut round, false, 60), expected);
    assert!(!round.memory.is_space_reclaimed());
    assert_eq!(reclaimed(&mut round, true, 70), expected, "another alarm");
    // Another compaction makes another defragmentation worth it.
    round.stepped(
        &Action::Defragment { member: MemberId(0xa1), cause: DefragmentationCause::Full, cluster: CLUSTER },
        Outcome::Done,
    );
    round.stepped(&Action::Compact { revision: 50, cluster: CLUSTER }, Outcome::Done);
    assert_eq!(reclaimed(&mut round, true, 80).defragmented, [].into());
}

/// Of the members that [`full`] lists, in the order of their IDs.
fn comparison(revision: i64, hashes: &[u32]) -> Option<Comparison> {
    let hashes = (0xa0..).map(MemberId).zip(hashes.iter().copied()).collect();
    Some(Comparison { at: Timestamp::UNIX_EPOCH, revision, hashes })
}

#[test]
fn data_is_compared_once_in_an_interval_and_sooner_while_it_is_in_doubt() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let mut round = Round::default();
    let is_due = |round: &Round, now: i64| round.memory.consistency.is_due(3600, "uid", at(now));
    let note = |round: &mut Round, mut seen: Observed| {
        round.memory.note_silence(&mut seen);
        seen.etcd.compared
    };
    assert!(!is_due(&round, 100), "nothing was observed yet");
    note(&mut round, full(false, 100));
    assert!(is_due(&round, 100 + 600) && is_due(&round, 99), "within ten minutes, whatever clocks do");
    let others = ["4f1c", "90ab", "c3d2", "7e55"];
    let others = others.map(|uid| round.memory.consistency.is_due(3600, uid, at(400)));
    assert!(others.contains(&true) && others.contains(&false), "not all clusters at once: {others:?}");

    round.memory.consistency.compared(at(1000), comparison(41, &[1, 1, 1]));
    assert_eq!(note(&mut round, full(false, 1001)).next, None);
    assert!(!is_due(&round, 4599) && is_due(&round, 4600));
    round.memory.consistency.compared(at(5000), None);
    note(&mut round, full(false, 5001));
    assert!(!is_due(&round, 5299) && is_due(&round, 5300), "a compaction can come between");

    round.memory.consistency.compared(at(6000), comparison(42, &[1, 1, 2]));
    let compared = note(&mut round, full(false, 6001));
    assert_eq!((compared.next, compared.before), (Some(at(6030)), comparison(41, &[1, 1, 1])));
    assert!(is_due(&round, 6030) && round.memory.consistency.is_in_doubt());
    round.memory.consistency.compared(at(6030), comparison(42, &[1, 1, 2]));
    assert_eq!(note(&mut round, full(false, 6031)).before, comparison(41, &[1, 1, 1]), "the same revision");
    round.memory.consistency.compared(at(6060), comparison(43, &[1, 1, 1]));
    assert_eq!(note(&mut round, full(false, 6061)).next, None);
    assert!(!round.memory.consistency.is_in_doubt() && !is_due(&round, 6100));
    round.memory.consistency.compared(at(7000), comparison(44, &[1, 2, 3]));
    note(&mut round, full(false, 7001));
    assert!(!is_due(&round, 7299) && is_due(&round, 7300), "a user ends it, and no comparison");
}

#[test]
fn what_was_equal_before_the_alarm_proves_nothing_and_that_it_was_disarmed_is_remembered() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let mut round = Round::default();
    let note = |round: &mut Round, mut seen: Observed| {
        round.memory.note_silence(&mut seen);
        seen.etcd.compared
    };
    note(&mut round, corrupt(false, 0));
    round.memory.consistency.compared(at(10), comparison(41, &[1, 1, 1]));
    assert!(note(&mut round, corrupt(false, 20)).last.is_some());
    let compared = note(&mut round, corrupt(true, 30));
    assert_eq!((compared.last, compared.before), (None, None));
    assert!(round.memory.consistency.is_due(3600, "uid", at(30)), "at once");
    let begun = |second| comparison(41, &[1, 1, 1]).map(|it| Comparison { at: at(second), ..it });
    round.memory.consistency.compared(at(31), begun(29));
    assert_eq!(note(&mut round, corrupt(true, 32)).last, None, "it began before the alarm");
    assert!(round.memory.consistency.is_due(3600, "uid", at(32)), "at once");
    round.memory.consistency.compared(at(34), begun(33));
    assert!(note(&mut round, corrupt(true, 35)).last.is_some(), "of this alarm");
    assert!(note(&mut round, corrupt(true, 5)).last.is_some(), "a clock was set back");
    round.memory.consistency.compared(at(7), begun(6));
    assert!(note(&mut round, corrupt(true, 8)).last.is_some(), "of this alarm");
    round.stepped(&Action::Disarm { kind: AlarmKind::Corrupt, cluster: CLUSTER }, Outcome::Done);
    assert_eq!(note(&mut round, corrupt(true, 40)).disarmed, None, "it is still active");
    assert_eq!(note(&mut round, corrupt(false, 50)).disarmed, Some(at(50)));
}

#[test]
fn members_are_compared_while_all_voters_serve_and_the_leader_is_the_last() {
    let seen = full(false, 0);
    let all = compared_members(&seen).expect("all serve");
    let leader = seen.etcd.members.known().and_then(|members| members.leader);
    assert_eq!((all.len(), all.last().map(|(_, id)| *id)), (3, leader));
    let mut joining = seen.clone();
    if let Seen::Known(members) = &mut joining.etcd.members {
        members
            .list
            .insert(MemberId(0xa3), Member { learner: true, ..members.list[&MemberId(0xa0)].clone() });
    }
    assert_eq!(compared_members(&joining), Some(all), "etcd rejects the request at a learner");
    let mut silent = seen.clone();
    silent.etcd.answers.insert(Ordinal(1), Seen::Unknown(crate::observed::Unanswered::NoMember));
    assert_eq!(compared_members(&silent), None);
}

#[test]
fn files_that_have_reached_both_thresholds_are_fragmented_and_a_defragmentation_is_remembered_for_a_day() {
    use crate::intent::Thresholds;
    use crate::observed::File;
    let mut round = Round::default();
    let mut seen = full(false, 100);
    let sizes = [(1000, 550), (1000, 551), (99, 10)];
    for (answer, (size, in_use)) in seen.etcd.answers.values_mut().zip(sizes) {
        if let Seen::Known(answer) = answer {
            answer.file = Some(File { size, in_use });
        }
    }
    round.memory.note_files(&mut seen, None);
    assert!(seen.etcd.fragmented.is_empty() && !round.memory.is_space_reclaimed());
    round.memory.note_files(&mut seen, Some(Thresholds { percent: 45, bytes: 100 }));
    assert_eq!(seen.etcd.fragmented, [MemberId(0xa0)].into());
    assert!(round.memory.is_space_reclaimed(), "leadership might move");
    let cause = DefragmentationCause::Fragmented;
    round.stepped(&Action::Defragment { member: MemberId(0xa0), cause, cluster: CLUSTER }, silence());
    let note = |round: &mut Round, now: i64| {
        let mut seen = full(false, now);
        round.memory.note_silence(&mut seen);
        seen.etcd.reclaimed.defragmented.len()
    };
    assert_eq!((note(&mut round, 200), note(&mut round, 86_599), note(&mut round, 86_600)), (1, 1, 0));
}

#[test]
fn hashes_are_compared_only_if_all_members_returned_one_since_the_same_compaction() {
    let returned = |hashes: &[Option<(u32, i64)>]| {
        let hash = |it: &Option<(u32, i64)>| it.map(|(hash, compacted)| DataHash { hash, compacted });
        let returned = (0xa0..).map(MemberId).zip(hashes.iter().map(hash)).collect();
        Comparison::of(Timestamp::UNIX_EPOCH, 41, &returned)
    };
    assert_eq!(returned(&[Some((1, 7)), Some((2, 7)), Some((1, 7))]), comparison(41, &[1, 2, 1]));
    assert_eq!(returned(&[Some((1, 7)), Some((2, 8)), Some((1, 7))]), None);
    assert_eq!(returned(&[Some((1, 7)), None, Some((1, 7))]), None);
}

#[test]
fn a_comparison_that_is_due_and_has_to_wait_is_no_reason_to_observe_all_the_time() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let mut round = Round::default();
    let mut next = |now: i64| {
        let mut seen = corrupt(true, now);
        round.memory.note_silence(&mut seen);
        seen.etcd.compared.next
    };
    assert_eq!((next(100), next(500)), (Some(at(110)), Some(at(510))));
}
