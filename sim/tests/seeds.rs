//! Random worlds, seeds that once failed, and planted bugs that must be found.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread;

use etcd_operator_core::decide::OnStop;
use etcd_operator_core::observed::Ordinal;
use etcd_operator_sim::agreement::Contradiction;
use etcd_operator_sim::bugs::Bug;
use etcd_operator_sim::etcd::Release;
use etcd_operator_sim::form::{Edit, Flaw};
use etcd_operator_sim::problem::{Problem, Violation};
use etcd_operator_sim::run::Success;
use etcd_operator_sim::script::{Script, Step};

/// The same ones every time. `make sim` runs others.
const SEEDS: usize = 5000;

/// Seeds that once failed, each with what it showed, with connections in plain text as they were then. A change of the
/// simulated world changes their stories, so what they taught is also a scenario in `core/tests/scenarios/` where a snapshot
/// can tell it.
const KEPT: [(u64, &str); 15] = [
    (9854, "volumes adopted while they are being deleted: the new cluster lost its data before it began"),
    (11321, "the same, where a user deletes volumes, changes their mind and asks to adopt them"),
    (
        12481,
        "a pod of a cluster that is being deleted used its order again, on a volume that had been deleted already",
    ),
    (
        11814,
        "a stop deleted all adopted volumes before anything ran on them: the cluster bootstraps anew, as a user asked",
    ),
    (
        16805,
        "a member was replaced for its class while the pod of another one terminated: no quorum was left",
    ),
    (
        23851,
        "the budget for a larger size allowed no eviction, and the downgrade that blocks members waited for one",
    ),
    (28375, "a stop never completed: the last member could not start in its form, and an edit had no effect"),
    (7336, "a form was not recorded, because a user had just deleted the StatefulSet"),
    (29050, "a late request ended a pod in the same moment as the next one"),
    (5258, "an operator whose cache was behind read an older status of its own, and wrote none"),
    (21508, "pods were added in a form that was about to be tried by a restart"),
    (10527, "without a quorum, a pod that waited for its first volume kept an edit from the others"),
    (104103, "pods were added in a recorded form whose version could not join the only member"),
    (16022, "pods that could not join got a wanted form in which they could not join either, all at once"),
    (25881, "nothing was left of an adopted cluster, and a stop deleted its empty volume"),
];

type Symptom = fn(&Problem) -> bool;

/// A planted bug, the seed that finds it fast, and what it looks like then; in plain text, unless the bug is one of
/// certificates. A change of the simulated world can make a seed miss its bug: then the test names another one.
const CORPUS: [(Bug, u64, Symptom); 24] = [
    (Bug::FenceSkipped, 64, |problem| matches!(problem, Problem::Violated(Violation::EndedUnfenced(_)))),
    (Bug::QuorumSkipped, 3, |problem| matches!(problem, Problem::Violated(Violation::QuorumLost { .. }))),
    (Bug::VolumeReused, 19, does_not_converge),
    (Bug::OldOrderHonoured, 6, |problem| {
        use Violation::{EntryLost, OrderUsedTwice, SecondCluster};
        matches!(problem, Problem::Violated(OrderUsedTwice(_) | SecondCluster(_) | EntryLost(_)))
    }),
    (Bug::LabelSkipped, 12471, does_not_converge),
    (Bug::CacheTrusted, 4071, |problem| {
        use Violation::{MemberVolumeDeleted, VoterDisrupted};
        matches!(problem, Problem::Violated(VoterDisrupted { .. } | MemberVolumeDeleted(_)))
    }),
    (Bug::ClaimDeletedUnconfirmed, 351, |problem| {
        use Violation::{MemberVolumeDeleted, VolumeDeletedDuringBootstrap};
        matches!(problem, Problem::Violated(MemberVolumeDeleted(_) | VolumeDeletedDuringBootstrap(_)))
    }),
    (Bug::PreconditionsSkipped, 52, |problem| matches!(problem, Problem::Violated(_))),
    (Bug::ForeignVolumesIgnored, 52, |problem| {
        matches!(problem, Problem::Violated(Violation::ForeignVolumeDeleted(_)))
    }),
    (Bug::AdoptionUnasked, 93, |problem| {
        matches!(problem, Problem::Violated(Violation::VolumeAdoptedUnasked(_)))
    }),
    (Bug::TemplateUnread, 5, |problem| matches!(problem, Problem::Violated(Violation::EndedUnprepared(_)))),
    (Bug::TemplateKept, 533, |problem| matches!(problem, Problem::Violated(Violation::FormSpread(_)))),
    (Bug::RolledTrusted, 1, |problem| {
        use Violation::{FormSpread, QuorumLost, TooManyEnded};
        matches!(problem, Problem::Violated(FormSpread(_) | QuorumLost { .. } | TooManyEnded { .. }))
    }),
    (Bug::LeaderFirst, 30, |problem| matches!(problem, Problem::Violated(Violation::LeaderEndedFirst(_)))),
    (Bug::TrialSkipped, 5, |problem| matches!(problem, Problem::Violated(Violation::EndedUntried(_)))),
    (Bug::MarginSkipped, 14, |problem| matches!(problem, Problem::Violated(Violation::QuorumLost { .. }))),
    (Bug::RecordedEarly, 1, |problem| matches!(problem, Problem::Violated(Violation::RecordedEarly(_)))),
    (Bug::SilenceHidden, 2, |problem| {
        use Contradiction::DoesNotServe;
        matches!(problem, Problem::Violated(Violation::StatusContradictsEtcd(DoesNotServe(_))))
    }),
    (Bug::PodsNotOrphaned, 0, |problem| {
        matches!(problem, Problem::Violated(Violation::VoterDisrupted { .. }))
    }),
    (Bug::MissingSetIgnored, 4, |problem| {
        matches!(problem, Problem::Violated(Violation::VoterDisrupted { .. }))
    }),
    (Bug::LinksIgnored, 677, |problem| matches!(problem, Problem::Violated(Violation::VotersApart { .. }))),
    (Bug::OldEntriesIgnored, 2410, |problem| {
        matches!(problem, Problem::Violated(Violation::OldEntriesRead(_)))
    }),
    (Bug::AuthorityReissued, 30, |problem| {
        matches!(problem, Problem::Violated(Violation::OtherAuthority(_)))
    }),
    (Bug::AuthEnabledEarly, 3, |problem| matches!(problem, Problem::Violated(Violation::LockedOut))),
];

fn does_not_converge(problem: &Problem) -> bool {
    matches!(problem, Problem::NotConverged { .. })
}

fn play(script: &Script) -> Success {
    match script.run() {
        Ok(success) => success,
        Err(_) => match script.traced().run() {
            Err(failure) => panic!("{failure}"),
            Ok(_) => panic!("seed {}: the same run ended differently", script.seed),
        },
    }
}

#[test]
fn seeds_that_once_failed_stay_fixed() {
    for (seed, _) in KEPT {
        play(&Script::random(seed).in_plain_text());
    }
}

#[test]
fn random_worlds_stay_safe_and_settle() {
    let shards = thread::available_parallelism().map_or(1, NonZero::get);
    let shard = |first| {
        (first..SEEDS).step_by(shards).map(|seed| play(&Script::random(seed as u64)).acked).sum::<u64>()
    };
    let acked: u64 = thread::scope(|scope| {
        let running: Vec<_> = (0..shards).map(|first| scope.spawn(move || shard(first))).collect();
        let join =
            |it: thread::ScopedJoinHandle<'_, u64>| it.join().unwrap_or_else(|panic| resume_unwind(panic));
        running.into_iter().map(join).sum()
    });
    assert!(acked > 100_000, "the client hardly ever wrote: {acked}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(play(&Script::random(7).traced()), play(&Script::random(7)));
}

#[test]
fn every_size_is_reached_from_every_other() {
    for (first, sizes) in
        [(1, [3, 5, 3, 2, 1]), (1, [9, 1, 3, 1, 3]), (3, [0, 3, 1, 0, 1]), (5, [1, 7, 4, 0, 2])]
    {
        for release in Release::ALL {
            play(&Script { release, ..Script::calm(1, first, &sizes) });
        }
    }
}

#[test]
fn stopping_keeps_what_was_promised() {
    for on_stop in [OnStop::Retain, OnStop::RetainAll, OnStop::Delete] {
        play(&Script { on_stop, ..Script::calm(2, 3, &[0]) });
    }
    for on_stop in [OnStop::Retain, OnStop::RetainAll] {
        play(&Script { on_stop, ..Script::calm(3, 3, &[0, 3, 0, 5]) });
    }
}

/// The node of a member that is wanted is down while others are not wanted any more: the member is removed, and its pod
/// stays Terminating.
fn sick_and_down(then: Step) -> Script {
    let steps = vec![Step::NodeDown(Ordinal(0)), Step::Size(1), then];
    Script { steps, ..Script::calm(5, 3, &[]) }
}

#[test]
fn a_member_on_a_dead_node_is_replaced_when_its_pod_is_gone() {
    for then in [Step::ForceDeletion(Ordinal(0)), Step::NodesUp] {
        let ending = play(&sick_and_down(then)).ending;
        assert_eq!(ending.members, [(Ordinal(0), false)]);
    }
}

#[test]
fn a_pod_on_a_dead_node_stays_terminating_and_no_other_takes_its_name() {
    let mut script = sick_and_down(Step::NodesUp);
    script.steps.pop();
    let ending = play(&script).ending;
    assert_eq!(ending.pods, [(Ordinal(0), true), (Ordinal(1), true)]);
    assert_eq!(ending.members, [(Ordinal(1), false)]);
}

fn repairing(size: u8, steps: Vec<Step>) -> Script {
    Script { steps, node_loss_grace_seconds: 10, ..Script::calm(5, size, &[]) }
}

#[test]
fn a_member_on_a_lost_node_is_replaced_and_its_node_returns_in_vain() {
    let down = |ordinal: u8| Step::NodeDown(Ordinal(ordinal));
    for (size, steps) in [
        (3, vec![down(1), Step::NodesUp]),
        (3, vec![Step::Lead(Ordinal(1)), down(1), Step::NodesUp]),
        (3, vec![down(1), down(2), down(0)]),
        (3, vec![Step::DeletePod(Ordinal(2)), Step::Later(1), down(2), Step::NodesUp]),
        (3, vec![Step::Edit(Edit::Arguments), Step::WhenRolled(1), down(1), Step::NodesUp]),
        (3, vec![down(1), Step::Later(20), Step::Size(5), Step::NodesUp]),
        (5, vec![down(1), Step::Later(20), Step::Size(3), Step::NodesUp]),
        (5, vec![down(4), Step::Later(20), Step::Size(3), Step::NodesUp]),
        (5, vec![down(1), Step::Later(5), down(3), Step::NodesUp]),
    ] {
        for release in Release::ALL {
            play(&Script { release, ..repairing(size, steps.clone()) });
        }
    }
}

#[test]
fn a_member_whose_node_returns_in_time_stays() {
    let returns = vec![Step::NodeDown(Ordinal(1)), Step::Later(100), Step::NodesUp];
    assert_eq!(play(&repairing(3, returns)).changes.1, play(&repairing(3, vec![])).changes.1);
}

/// Long enough for two comparisons and a replacement of each of two members.
const REPAIRED: Step = Step::Later(2400);

fn compared(size: u8, steps: Vec<Step>) -> Script {
    Script { steps, compared_every_seconds: 10, ..Script::calm(5, size, &[]) }
}

#[test]
fn members_with_other_data_are_replaced_when_a_majority_agrees() {
    let rot = |ordinal: u8| Step::Rot(Ordinal(ordinal));
    let lead = |ordinal: u8| Step::Lead(Ordinal(ordinal));
    for (size, steps) in [
        (3, vec![lead(0), rot(1), REPAIRED]),
        (3, vec![lead(1), rot(1), REPAIRED]),
        (3, vec![lead(0), rot(1), Step::Later(30), Step::Edit(Edit::Harmless), REPAIRED]),
        (3, vec![lead(0), rot(1), Step::Later(10), Step::Size(5), REPAIRED]),
        (3, vec![lead(1), rot(1), Step::Later(300), Step::Size(5), REPAIRED]),
        (3, vec![lead(0), rot(1), Step::Later(150), Step::DeletePod(Ordinal(2)), REPAIRED]),
        (
            3,
            vec![
                lead(0),
                rot(1),
                Step::Later(100),
                Step::NodeDown(Ordinal(2)),
                Step::Later(600),
                Step::NodesUp,
                REPAIRED,
            ],
        ),
        (5, vec![lead(0), rot(1), rot(0), REPAIRED, REPAIRED]),
        (5, vec![lead(4), rot(2), rot(3), REPAIRED, REPAIRED]),
    ] {
        for release in Release::ALL {
            let ending = play(&Script { release, ..compared(size, steps.clone()) }).ending;
            assert_eq!(ending.rotten, [], "{size} {steps:?} {release:?}");
        }
    }
}

#[test]
fn without_a_majority_no_member_is_replaced() {
    for (size, rotten) in [(2, vec![1]), (4, vec![1, 2])] {
        let rot = rotten.iter().map(|it| Step::Rot(Ordinal(*it)));
        let untouched = play(&compared(size, vec![REPAIRED]));
        let steps = rot.chain([REPAIRED]).collect();
        let success = play(&compared(size, steps));
        assert_eq!(success.changes.1, untouched.changes.1, "{size}");
        assert_eq!(success.ending.rotten, rotten.iter().copied().map(Ordinal).collect::<Vec<_>>());
    }
}

#[test]
fn who_trusts_the_leader_spreads_its_data() {
    let steps = vec![Step::Lead(Ordinal(1)), Step::Rot(Ordinal(1)), REPAIRED];
    let bug = Some(Bug::LeaderTrusted);
    let ends_well = |it: Success| it.ending.rotten.is_empty();
    assert!(compared(3, steps.clone()).run().is_ok_and(ends_well));
    assert!(!Script { bug, ..compared(3, steps) }.run().is_ok_and(ends_well));
}

#[test]
fn our_own_check_of_the_quorum_does_without_that_of_etcd() {
    for seed in 0..100 {
        let mut script = Script { strict: false, ..Script::random(seed) };
        script.troubles.late_request = 0;
        play(&script);
    }
}

#[test]
fn planted_bugs_are_found_by_their_seeds() {
    let mut stale = Vec::new();
    for (bug, seed, is_symptom) in CORPUS {
        let finds = |seed: &u64| {
            // etcd itself would reject most of what our check of the quorum refuses.
            let strict = bug != Bug::QuorumSkipped;
            let script = Script { strict, ..Script::random(*seed) };
            let secured = [Bug::AuthorityReissued, Bug::AuthEnabledEarly].contains(&bug);
            let script = if secured { script } else { script.in_plain_text() };
            let failure = Script { bug: Some(bug), ..script.clone() }.run().err();
            failure.is_some_and(|failure| is_symptom(&failure.problem)) && script.run().is_ok()
        };
        if !finds(&seed) {
            stale.push((bug, (0..5000).find(finds)));
        }
    }
    assert!(stale.is_empty(), "the corpus is stale; seeds that find these bugs now: {stale:?}");
}

/// An image that is missing, or arguments that etcd rejects, are found before a member stops.
#[test]
fn what_a_trial_finds_restarts_no_member() {
    for flaw in [Flaw::ImageMissing, Flaw::Rejected] {
        let steps = vec![Step::Edit(Edit::Flawed(flaw)), Step::Later(600), Step::Edit(Edit::Revert)];
        let success = play(&Script { steps, ..Script::calm(5, 3, &[]) });
        assert_eq!(success.restarts, 0, "{flaw:?}");
    }
}
