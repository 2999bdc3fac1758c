//! A majority loses its data for good: one member continues alone, with consent, once, and beside nobody.

use etcd_operator_core::observed::Ordinal;
use etcd_operator_sim::bugs::Bug;
use etcd_operator_sim::etcd::Release;
use etcd_operator_sim::operator::{Disturbance, Troubles};
use etcd_operator_sim::problem::{Problem, Violation};
use etcd_operator_sim::run::Success;
use etcd_operator_sim::script::{Script, Step};

/// Enough for operators to observe the loss and record it.
const NOTICED: Step = Step::Later(300);

fn lose(ordinals: &[u8]) -> Vec<Step> {
    ordinals.iter().flat_map(|it| [Step::LoseForGood(Ordinal(*it)), Step::Later(1)]).collect()
}

fn script(seed: u64, size: u8, steps: &[&[Step]]) -> Script {
    Script { recovers: true, steps: steps.concat(), ..Script::calm(seed, size, &[]) }
}

/// Two of three, or three of five, are lost, and a user consents.
fn recovers(seed: u64, size: u8) -> Script {
    let lost: &[u8] = if size == 3 { &[0, 2] } else { &[0, 2, 4] };
    script(seed, size, &[&lose(lost), &[NOTICED, Step::Consent(None)]])
}

fn play(script: &Script) -> Success {
    script.run().unwrap_or_else(|_| match script.traced().run() {
        Err(failure) => panic!("{failure}\n{:?}", script.disturbed),
        Ok(_) => panic!("the same run ended differently"),
    })
}

#[test]
fn one_member_continues_and_the_others_join_again() {
    for release in Release::ALL {
        for size in [3, 5] {
            let undisturbed = play(&Script { release, ..Script::calm(11, size, &[]) }).ending;
            let recovered = play(&Script { release, ..recovers(11, size) });
            assert_eq!(recovered.ending, undisturbed, "{release:?}, {size} members");
        }
    }
}

#[test]
fn the_survivor_can_be_named_and_consent_is_used_once() {
    let (named, again) = (Step::Consent(Some(Ordinal(1))), lose(&[0, 1]));
    let once = script(11, 3, &[&lose(&[0, 2]), &[NOTICED, named]]);
    let expected = play(&once).ending;
    // The consent is still there, and does nothing. The world finds every start without peers that it did not allow.
    let standing = script(11, 3, &[&once.steps, &[Step::Later(600)], &again, &[NOTICED]]);
    assert_ne!(play(&standing).ending, expected);
    let given_again = [Step::TakeConsentBack, NOTICED, Step::Consent(None)];
    let twice = script(11, 3, &[&standing.steps, &given_again]);
    assert_eq!(play(&twice).ending, expected);
}

#[test]
fn consent_that_is_given_too_early_does_nothing() {
    let early = script(11, 3, &[&[Step::Consent(None), NOTICED], &lose(&[0, 2]), &[NOTICED]]);
    assert_ne!(play(&early).ending, play(&recovers(11, 3)).ending);
}

#[test]
fn a_disturbance_of_any_effect_of_a_recovery_changes_nothing() {
    let (mut effects, mut runs) = (0, 0);
    for (release, size) in [(Release::V3_6, 3), (Release::V3_5, 3), (Release::V3_6, 5)] {
        let script = Script { release, ..recovers(11, size) };
        let undisturbed = play(&script);
        effects += undisturbed.effects;
        for nth in 1..=undisturbed.effects {
            for disturbance in Disturbance::ALL {
                let disturbed = play(&Script { disturbed: Some((nth, disturbance)), ..script.clone() });
                assert_eq!(
                    disturbed.ending, undisturbed.ending,
                    "{release:?}, effect {nth}: {disturbance:?}"
                );
                runs += 1;
            }
        }
    }
    println!("{effects} effects of recoveries, {runs} disturbed runs");
    assert!(effects > 40, "only {effects} effects");
}

/// Operators crash, lose answers, act at the same time and late; the user takes the consent back and gives it again.
#[test]
fn whatever_operators_do_nobody_continues_twice_or_beside_another() {
    for seed in 0..400 {
        let troubles =
            Troubles { crash: seed % 5 * 40, lost_answer: seed % 3 * 100, late_request: seed % 4 * 40 };
        let size = if seed % 2 == 0 { 3 } else { 5 };
        let base = recovers(seed, size);
        let meanwhile = [Step::Later(seed % 37 + 1), Step::TakeConsentBack, NOTICED, Step::Consent(None)];
        let steps = if seed % 3 == 0 {
            [base.steps.clone(), meanwhile.to_vec()].concat()
        } else {
            base.steps.clone()
        };
        let operators = if seed % 4 == 3 { 2 } else { 1 };
        let expected = play(&Script::calm(seed, size, &[])).ending;
        let ended = play(&Script { steps, operators, troubles, observation_time: seed % 12, ..base });
        assert_eq!(ended.ending, expected, "seed {seed}");
    }
}

fn found(bug: Bug, script: Script) -> Problem {
    *Script { bug: Some(bug), ..script }.run().expect_err("the bug is found").problem
}

#[test]
fn planted_bugs_are_found() {
    let unfenced = found(Bug::OthersNotFenced, recovers(11, 5));
    assert!(matches!(unfenced, Problem::Violated(Violation::ForcedUnfenced { .. })), "{unfenced}");
    let steps = &[&recovers(11, 3).steps[..], &[Step::Later(25), Step::DeletePod(Ordinal(1))]];
    let twice = found(Bug::ForcedTwice, script(11, 3, steps));
    assert!(matches!(twice, Problem::Violated(Violation::ForcedUnasked(_))), "{twice}");
}
