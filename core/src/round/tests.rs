use super::*;
use crate::observed::{Answer, Cluster, ClusterId, Etcd, MemberId, Members, Seen, Unanswered};
use crate::plan::WaitingOn;

const CLOCK: Clock = Clock { now: Timestamp::UNIX_EPOCH, dice: 200 };
const CLUSTER: ClusterId = ClusterId(0xc1);

fn goal() -> Goal {
    let (on_stop, on_delete) = (crate::decide::OnStop::Retain, crate::decide::OnDelete::Retain);
    Goal { size: 1, paused: false, on_stop, on_delete, adopts: None }
}

/// Nothing but an EtcdCluster.
fn seen(finalizer: bool) -> Observed {
    Observed {
        now: Timestamp::UNIX_EPOCH,
        cluster: Cluster { uid: "uid".into(), deleting: false, finalizer, formed: None },
        order: None,
        set: None,
        pods: Default::default(),
        claims: Default::default(),
        etcd: Etcd {
            answers: Default::default(),
            members: Seen::Unknown(Unanswered::NoMember),
            via: None,
            silent_since: Default::default(),
        },
    }
}

fn remove() -> Action {
    Action::RemoveMember { member: MemberId(0xa1), cluster: CLUSTER }
}

fn not_yet() -> Outcome {
    Outcome::NotDone(Trouble::EtcdNotYet("unhealthy cluster".into()))
}

#[test]
fn what_could_do_harm_is_decided_on_a_live_observation() {
    let mut round = Round::default();
    assert_eq!(round.begin(), Freshness::Cached);
    // Without a finalizer the plan is to add it, which does no harm; with one it is to create an order.
    let harmless = round.consider(&goal(), &seen(false), &vec![], Freshness::Cached);
    assert_eq!(harmless, Next::Proceed(Plan::act(Action::AddFinalizer)));
    assert_eq!(round.begin(), Freshness::Cached);
    assert_eq!(round.consider(&goal(), &seen(true), &vec![], Freshness::Cached), Next::Confirm);
    assert_eq!(round.begin(), Freshness::Live);
    let confirmed = round.consider(&goal(), &seen(true), &vec![], Freshness::Live);
    assert_eq!(confirmed, Next::Proceed(Plan::act(Action::CreateOrder { size: 1 })));
    assert_eq!(round.begin(), Freshness::Cached, "once");
}

#[test]
fn whatever_became_of_a_step_the_next_observation_is_live() {
    for outcome in [Outcome::Done, Outcome::Overtaken, not_yet()] {
        let mut round = Round::default();
        round.stepped(&remove(), outcome);
        assert_eq!(round.begin(), Freshness::Live);
    }
}

#[test]
fn the_next_step_follows_only_one_that_was_done_could_do_no_harm_and_left_the_cluster_object_alone() {
    let label = || Action::LabelClaim { ordinal: Ordinal(0), uid: "uid".into(), member: MemberId(0xa0) };
    let mut round = Round::default();
    assert!(round.stepped(&label(), Outcome::Done));
    assert!(!round.stepped(&label(), Outcome::Overtaken));
    assert!(!round.stepped(&label(), not_yet()));
    assert!(!round.stepped(&remove(), Outcome::Done));
    assert!(!round.stepped(&Action::RecordFormed { cluster: CLUSTER }, Outcome::Done));
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
            applied_index: 1,
            version: None,
            listed: None,
            hash: None,
            alarms: Default::default(),
        };
        (ordinal, Seen::Known(answer))
    };
    seen.etcd.answers = Ordinal::below(3).map(answer).collect();
    let list = Default::default();
    seen.etcd.members = Seen::Known(Members { cluster: CLUSTER, leader: Some(MemberId(0xa0)), list });
    seen.etcd.via = Some(Ordinal(0));
    seen
}

#[test]
fn after_each_refusal_of_etcd_the_next_member_is_asked_and_after_a_success_the_first() {
    let mut round = Round::default();
    let seen = three();
    for via in [0, 2, 1, 0] {
        assert_eq!(
            round.via(&remove(), &seen),
            Some(Ordinal(via)),
            "the one that leaves is the last to be asked"
        );
        round.stepped(&remove(), not_yet());
    }
    round.stepped(&remove(), Outcome::NotDone(Trouble::Failed("broken".into())));
    assert_eq!(round.via(&remove(), &seen), Some(Ordinal(2)), "that was no refusal");
    round.stepped(&remove(), Outcome::Done);
    assert_eq!((round.via(&remove(), &seen), round.trouble()), (Some(Ordinal(0)), None));
}

#[test]
fn leadership_is_moved_by_the_leader_and_a_promotion_is_requested_from_the_first() {
    let mut round = Round::default();
    round.stepped(&remove(), not_yet());
    let (from, to, member) = (MemberId(0xa2), MemberId(0xa0), MemberId(0xa1));
    let via = |action: Action| round.via(&action, &three());
    assert_eq!(via(Action::MoveLeader { from, to, cluster: CLUSTER }), Some(Ordinal(2)));
    assert_eq!(via(Action::Promote { ordinal: Ordinal(1), member, cluster: CLUSTER }), Some(Ordinal(0)));
    let cluster = ClusterId(0xc2);
    assert_eq!(via(Action::AddLearner { ordinal: Ordinal(1), cluster }), None, "that is another cluster");
    assert_eq!(via(Action::MoveLeader { from, to, cluster }), None);
}

#[test]
fn trouble_is_news_once() {
    let mut round = Round::default();
    let trouble = || Trouble::Failed("broken".into());
    assert!(round.hold_up(trouble()));
    assert!(!round.hold_up(trouble()));
    assert!(round.hold_up(Trouble::NamespaceEnding));
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
    let (seen, versions) = (seen(true), vec![]);
    let idle = |round: &mut Round, reported: &[FailedWrite]| {
        round.idle(Plan::default(), LearnsBy::Streams, reported, (&seen, &versions, None))
    };
    assert_eq!(idle(&mut round, &[]), Ended::Moved);
    assert_eq!(idle(&mut round, &[]), Ended::Idle(Plan::default(), LearnsBy::Streams));
    let failed = Outcome::NotDone(Trouble::Failed("forbidden".into()));
    round.writes.record(SideWrite::Status, failed, seen.now);
    assert_eq!(idle(&mut round, &[]), Ended::Moved, "a newer failure is reported first");
    let reported = round.writes.failed();
    assert_eq!(idle(&mut round, &reported), Ended::Idle(Plan::default(), LearnsBy::Streams));
}

#[test]
fn a_settled_cluster_is_not_considered_again_until_something_differs() {
    let mut round = Round::default();
    let goal = Goal { paused: true, ..goal() };
    let heartbeat = Some(Timestamp::from_second(300).expect("a time"));
    let versions = vec![Some("1".to_owned())];
    round.idle(Plan::default(), LearnsBy::Streams, &[], (&seen(true), &versions, heartbeat));
    assert_eq!(round.consider(&goal, &seen(true), &versions, Freshness::Cached), Next::Unchanged);
    let paused = Next::Proceed(Plan::wait(WaitingOn::Unpause));
    assert_eq!(round.consider(&goal, &seen(true), &vec![], Freshness::Cached), paused);
    assert_eq!(round.consider(&goal, &seen(true), &versions, Freshness::Cached), paused, "it was forgotten");
}

#[test]
fn a_step_that_leads_to_new_pods_waits_for_the_peer_service() {
    let mut round = Round::default();
    let service = SideWrite::Object("Service kv-peer".into());
    let failed = Outcome::NotDone(Trouble::Failed("forbidden".into()));
    round.writes.record(service.clone(), failed, Timestamp::UNIX_EPOCH);
    let obstacle = |action: &Action| round.obstacle(action, &seen(true), &service);
    let trouble = Trouble::Failed("cannot write Service kv-peer: forbidden".into());
    assert_eq!(obstacle(&Action::CreateOrder { size: 1 }), Some(trouble));
    assert_eq!(obstacle(&remove()), None);
}

#[test]
fn agents_are_told_only_when_nothing_is_left_to_do() {
    let mut seen = seen(true);
    let waits = || Seen::Unknown(Unanswered::AgentWaiting("for an order".into()));
    let silent = Seen::Unknown(Unanswered::Unreachable("no response".into()));
    seen.etcd.answers = Ordinal::below(3).zip([silent, waits(), waits()]).collect();
    let start = Plan::wait(WaitingOn::Start { ordinal: Ordinal(1) });
    assert_eq!(agents_to_tell(&start, &seen), [1, 2].map(Ordinal));
    let add = Plan::act(Action::AddLearner { ordinal: Ordinal(2), cluster: CLUSTER });
    assert_eq!(agents_to_tell(&add.then(start), &seen), []);
}
