//! Every effect of the operator in turn is disturbed in each way: the end is the same, and as much is changed.

use std::time::Instant;

use etcd_operator_core::decide::{OnDelete, OnStop};
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::schedule::{Schedule, Window};
use etcd_operator_core::tls::{ClientPort, PeerPort, Purpose, Transport};
use etcd_operator_sim::bugs::Bug;
use etcd_operator_sim::etcd::{Release, Tick};
use etcd_operator_sim::form::{Edit, Flaw};
use etcd_operator_sim::gift::Gift;
use etcd_operator_sim::operator::Disturbance;
use etcd_operator_sim::problem::{Problem, Violation};
use etcd_operator_sim::run::Success;
use etcd_operator_sim::script::{Script, Step, with_password};
use etcd_operator_sim::secrets::EVERYWHERE;
use etcd_operator_sim::volumes::{Class, Volumes};

const PLAIN: Transport = Transport { clients: ClientPort::Http, peers: PeerPort::Http };
const CLIENTS: Transport = Transport { clients: ClientPort::Both, peers: PeerPort::Http };
const BOTH: Transport = Transport { clients: ClientPort::Both, peers: PeerPort::Https };
const PEERS: Transport = Transport { clients: ClientPort::Http, peers: PeerPort::Https };
const LEAFS: [Purpose; 4] = [Purpose::Peer, Purpose::Server, Purpose::Operator, Purpose::Client];

/// What a user does with the spec, with the Secret and by hand.
const AUTH: [Step; 6] = [
    Step::RootPassword(7),
    Step::AuthByHand(false),
    Step::Auth(false),
    Step::AuthByHand(true),
    Step::Auth(true),
    Step::RootPassword(8),
];

/// Certificates that a user gives: of one authority, and of another.
const OWN: Gift = Gift::new(1, 1);
const RENEWED: Gift = Gift::new(1, 2);
const OTHER: Gift = Gift::new(2, 3);

/// Whatever was edited so long ago has had its effect, or never will.
const SETTLED: Tick = 100;

fn scripts() -> Vec<(&'static str, Script)> {
    let sizes = |size, sizes: &[u8]| Script::calm(11, size, sizes);
    let stop = |on_stop| Script { on_stop, ..sizes(3, &[0]) };
    let steps = |size, steps: &[Step]| Script { steps: steps.to_vec(), ..sizes(size, &[]) };
    // Until it is compared twice, and replaced.
    let rotten = |size, before: &[Step]| Script {
        compared_every_seconds: 10,
        ..steps(size, &[before, &[Step::Later(900)]].concat())
    };
    let volumes = |mebibytes, class| Step::Volumes(Volumes { mebibytes, class });
    let secured = |script| Script { tls: EVERYWHERE, ..script };
    let given = |gifts: &[Option<Gift>]| {
        secured(steps(3, &gifts.iter().copied().map(Step::Give).collect::<Vec<_>>()))
    };
    let one_side = |clients, peers| Script { tls: Transport { clients, peers }, ..sizes(3, &[]) };
    vec![
        ("create", sizes(3, &[])),
        ("create with TLS", secured(sizes(3, &[]))),
        ("create with TLS for clients", one_side(ClientPort::Https, PeerPort::Http)),
        ("create with TLS for peers", one_side(ClientPort::Http, PeerPort::Https)),
        ("stop and start with TLS", secured(sizes(3, &[0, 3]))),
        ("adopt with TLS", secured(steps(3, &[Step::Delete(OnDelete::Retain), Step::Adopt]))),
        ("rotate authorities", secured(steps(3, &[Step::RotateAuthorities]))),
        ("rotate authorities of a member alone", secured(steps(1, &[Step::RotateAuthorities]))),
        ("create with a certificate of a user", Script { gift: Some(OWN), ..secured(sizes(3, &[])) }),
        ("a certificate of a user and back", given(&[Some(OWN), Some(RENEWED), None])),
        (
            "another authority of a user",
            Script { gift: Some(OWN), ..given(&[Some(OTHER.unusable()), Some(OTHER)]) },
        ),
        ("a certificate of a user for a member alone", Script { size: 1, ..given(&[Some(OWN)]) }),
        ("certificates are deleted", secured(steps(1, &LEAFS.map(Step::DeleteSecret)))),
        ("authentication", Script { auth: with_password(), ..secured(steps(1, &AUTH)) }),
        ("authentication while it grows", Script { auth: with_password(), ..secured(sizes(1, &[3])) }),
        ("scale out", sizes(1, &[3, 5])),
        ("scale in", sizes(5, &[2, 1])),
        ("stop and start", sizes(3, &[0, 3])),
        ("stop, keep all", stop(OnStop::RetainAll)),
        ("start with all", Script { on_stop: OnStop::RetainAll, ..sizes(3, &[0, 3]) }),
        ("stop, keep nothing", stop(OnStop::Delete)),
        ("adopt", steps(3, &[Step::Delete(OnDelete::Retain), Step::Adopt])),
        ("replace", steps(3, &[Step::Wipe(Ordinal(1))])),
        ("replace a member with other data", rotten(3, &[Step::Rot(Ordinal(1))])),
        ("replace a leader with other data", rotten(3, &[Step::Lead(Ordinal(2)), Step::Rot(Ordinal(2))])),
        ("delete with volumes", steps(3, &[Step::Delete(OnDelete::Delete)])),
        ("grow", steps(3, &[volumes(2048, Class::Slow)])),
        (
            "grow, fail, take back",
            steps(3, &[Step::GrowthFails(true), volumes(9216, Class::Slow), volumes(1024, Class::Slow)]),
        ),
        ("no shrinking", steps(3, &[volumes(2048, Class::Slow), volumes(1024, Class::Slow)])),
        ("change class", steps(3, &[volumes(1024, Class::Fast)])),
        ("change class of two", steps(2, &[volumes(1024, Class::Fast)])),
        ("change class of one", steps(1, &[volumes(1024, Class::Fast), Step::Size(3)])),
        (
            "grow what was adopted",
            steps(
                3,
                &[
                    Step::Delete(OnDelete::Retain),
                    Step::Adopt,
                    Step::ForgetAdoption,
                    volumes(2048, Class::Slow),
                    Step::DeletePod(Ordinal(1)),
                ],
            ),
        ),
        (
            "missing class",
            steps(3, &[volumes(1024, Class::Missing), Step::Later(400), volumes(1024, Class::Slow)]),
        ),
        (
            "missing class, then none",
            steps(
                3,
                &[
                    volumes(1024, Class::Default),
                    volumes(1024, Class::Missing),
                    Step::Later(400),
                    volumes(1024, Class::Default),
                ],
            ),
        ),
    ]
}

/// What a user edits, and what happens in the meantime.
fn rolls() -> Vec<(String, Script)> {
    let roll = |steps: &[Step]| Script { steps: steps.to_vec(), ..Script::calm(11, 3, &[]) };
    let (edit, later) = (Step::Edit(Edit::Harmless), Step::Later(150));
    let volumes = |mebibytes, class| Step::Volumes(Volumes { mebibytes, class });
    let (arguments, soon) = (Step::Edit(Edit::Arguments), Step::Later(4));
    let flawed = |flaw| Step::Edit(Edit::Flawed(flaw));
    let mut scripts: Vec<(String, Script)> = Ordinal::below(3)
        .map(|leader| (format!("roll, pod {leader} leads"), roll(&[Step::Lead(leader), edit])))
        .collect();
    let more = [
        ("upgrade", roll(&[Step::Edit(Edit::Upgrade)])),
        ("arguments", roll(&[arguments])),
        ("edit in mid-trial", roll(&[arguments, soon, arguments])),
        ("revert in mid-trial", roll(&[arguments, soon, Step::Edit(Edit::Revert)])),
        ("pod deleted in mid-trial", roll(&[arguments, soon, Step::DeletePod(Ordinal(0))])),
        (
            "a node is down in mid-trial",
            roll(&[arguments, soon, Step::NodeDown(Ordinal(1)), later, Step::NodesUp]),
        ),
        ("arguments of a member alone", Script { size: 1, ..roll(&[arguments]) }),
        ("a node is down", roll(&[Step::NodeDown(Ordinal(1)), edit, later, Step::NodesUp])),
        ("edit in mid-roll", roll(&[edit, Step::WhenRolled(1), edit])),
        ("revert in mid-roll", roll(&[edit, Step::WhenRolled(2), Step::Edit(Edit::Revert)])),
        ("pod deleted in mid-roll", roll(&[edit, Step::WhenRolled(1), Step::DeletePod(Ordinal(0))])),
        ("volume lost in mid-roll", roll(&[edit, Step::WhenRolled(1), Step::Wipe(Ordinal(0))])),
        ("scale out in mid-roll", roll(&[edit, Step::WhenRolled(1), Step::Size(5)])),
        ("grow in mid-roll", roll(&[edit, Step::WhenRolled(1), volumes(2048, Class::Slow)])),
        ("change class in mid-roll", roll(&[edit, Step::WhenRolled(1), volumes(1024, Class::Fast)])),
        ("a member alone", Script { size: 1, ..roll(&[edit]) }),
        ("two members", Script { size: 2, ..roll(&[edit]) }),
        ("without a budget", Script { disruption_budget: false, ..roll(&[edit]) }),
        ("an agent is required", roll(&[Step::RequireAgent])),
        ("an agent is required in mid-roll", roll(&[edit, Step::WhenRolled(1), Step::RequireAgent])),
        (
            "an agent is required of one member",
            Script { size: 1, windows: windows(), ..roll(&[Step::RequireAgent]) },
        ),
        (
            "an agent is required of two members",
            Script { size: 2, windows: windows(), ..roll(&[Step::RequireAgent]) },
        ),
    ];
    scripts.extend(more.map(|(name, script)| (name.to_owned(), script)));
    scripts.extend([Release::V3_5, Release::V3_6].into_iter().flat_map(switches));
    for flaw in [Flaw::ImageMissing, Flaw::Rejected, Flaw::Crashes] {
        // What a trial finds reaches no pod.
        let begun = if flaw == Flaw::Crashes { Step::WhenRolled(1) } else { later };
        let bad = [flawed(flaw), begun, later];
        let (revert, again) = (Step::Edit(Edit::Revert), Step::DeletePod(Ordinal(0)));
        let then = |steps: &[Step]| roll(&[&bad[..], steps].concat());
        scripts.extend([
            (format!("revert of {flaw:?}"), then(&[revert])),
            (format!("another edit after {flaw:?}"), then(&[edit])),
            (format!("{flaw:?}, and another pod is deleted"), then(&[again, later, revert])),
        ]);
    }
    scripts
}

/// A user edits `spec.security.tls`.
fn switches(release: Release) -> Vec<(String, Script)> {
    let steps = |steps: &[Step]| Script { release, steps: steps.to_vec(), ..Script::calm(11, 3, &[]) };
    let switch = |there: &[Transport]| steps(&there.iter().copied().map(Step::Transport).collect::<Vec<_>>());
    let unauthenticated = steps(&[Step::Auth(false), Step::Transport(PLAIN)]);
    let scripts = [
        ("switch to TLS and back", switch(&[EVERYWHERE, PLAIN])),
        ("switch to TLS, plain clients later", switch(&[BOTH, EVERYWHERE, BOTH, PLAIN])),
        ("switch peers, then clients", switch(&[PEERS, CLIENTS])),
        ("switch a member alone", Script { size: 1, ..switch(&[EVERYWHERE, PLAIN]) }),
        ("switch two members", Script { size: 2, ..switch(&[EVERYWHERE, PLAIN]) }),
        (
            "switch to plain text after authentication",
            Script { tls: EVERYWHERE, auth: with_password(), ..unauthenticated },
        ),
    ];
    scripts.map(|(name, script)| (format!("{name}, {release:?}"), script)).into()
}

#[test]
fn a_disturbance_of_any_effect_of_a_roll_restarts_nothing_more() {
    let began = Instant::now();
    let (mut effects, mut runs) = (0, 0);
    for (name, script) in rolls() {
        let undisturbed = play(&script);
        effects += undisturbed.effects;
        for nth in 1..=undisturbed.effects {
            for disturbance in Disturbance::ALL {
                let disturbed = play(&Script { disturbed: Some((nth, disturbance)), ..script.clone() });
                let context = || format!("{name}, effect {nth}: {disturbance:?}");
                assert_eq!(disturbed.ending, undisturbed.ending, "{}", context());
                assert_eq!(disturbed.changes.1, undisturbed.changes.1, "{}", context());
                // A pod that is created when something happens to the roll serves by the next step, or does not.
                let in_the_middle = |it: &Step| matches!(it, Step::WhenRolled(_) | Step::Later(..SETTLED));
                let chance = usize::from(script.steps.iter().any(in_the_middle));
                // A member that is replaced for another class before its turn has the new form without a restart.
                let is_replaced = |it: &Step| matches!(it, Step::Volumes(Volumes { class: Class::Fast, .. }));
                let fewest = match script.steps.iter().any(is_replaced) {
                    true => 0,
                    false => undisturbed.restarts.saturating_sub(chance),
                };
                let expected = fewest..=undisturbed.restarts + chance;
                let restarts = disturbed.restarts;
                assert!(expected.contains(&restarts), "{}: {restarts} restarts, not {expected:?}", context());
                runs += 1;
            }
        }
    }
    println!("{effects} effects of rolls, {runs} disturbed runs, {:?}", began.elapsed());
    assert!(effects > 200, "only {effects} effects");
}

/// At any moment of a switch a user changes their mind, a member loses its data, or the cluster grows.
#[test]
fn a_switch_turns_around_or_goes_on_whatever_happens_in_the_middle() {
    let meanwhile = [
        Step::Transport(PLAIN),
        Step::Transport(PEERS),
        Step::Wipe(Ordinal(1)),
        Step::Size(5),
        Step::DeletePod(Ordinal(2)),
    ];
    for ticks in (1..400).step_by(29) {
        for then in meanwhile {
            let there = [Step::Transport(EVERYWHERE), Step::Later(ticks), then];
            play(&Script { steps: there.to_vec(), ..Script::calm(11, 3, &[]) });
            let back = [Step::Transport(PLAIN), Step::Later(ticks), then, Step::Transport(EVERYWHERE)];
            play(&Script { steps: back.to_vec(), tls: EVERYWHERE, ..Script::calm(11, 3, &[]) });
        }
    }
}

#[test]
fn a_switch_that_ignores_peer_urls_is_found() {
    let steps = vec![Step::Transport(EVERYWHERE)];
    let script = Script { bug: Some(Bug::PeerUrlsIgnored), steps, ..Script::calm(11, 3, &[]) };
    let failure = script.run().expect_err("the bug is found");
    assert!(matches!(*failure.problem, Problem::Violated(Violation::OtherScheme(_))), "{failure}");
}

/// Two of every five minutes.
fn windows() -> Vec<Window> {
    vec![Window { schedule: Schedule::new("*/5 * * * *", "UTC").expect("a schedule"), minutes: 2 }]
}

#[test]
fn a_restart_that_nobody_allowed_is_found() {
    let script = |size| Script { steps: vec![Step::RequireAgent], ..Script::calm(11, size, &[]) };
    for size in [1, 2] {
        let waits = script(size).run().expect_err("no window ever opens");
        assert!(matches!(*waits.problem, Problem::NotConverged { .. }), "{waits}");
    }
    let failure = Script { bug: Some(Bug::ConsentSkipped), ..script(1) }.run().expect_err("the bug is found");
    assert!(matches!(*failure.problem, Problem::Violated(Violation::EndedWithoutConsent(_))), "{failure}");
}

fn play(script: &Script) -> Success {
    script.run().unwrap_or_else(|_| match script.traced().run() {
        Err(failure) => panic!("{failure}\n{:?}", script.disturbed),
        Ok(_) => panic!("the same run ended differently"),
    })
}

#[test]
fn a_disturbance_of_any_effect_changes_nothing() {
    let began = Instant::now();
    let (mut effects, mut runs) = (0, 0);
    for (name, script) in scripts() {
        // Certificates of users have nothing to do with the version of etcd, and clients have minutes to read theirs.
        let gives = script.gift.is_some() || script.steps.iter().any(|it| matches!(it, Step::Give(_)));
        let releases = [Release::V3_6, Release::V3_5].into_iter().take(if gives { 1 } else { 2 });
        for release in releases {
            let script = Script { release, ..script.clone() };
            let undisturbed = play(&script);
            effects += undisturbed.effects;
            for nth in 1..=undisturbed.effects {
                for disturbance in Disturbance::ALL {
                    let disturbed = play(&Script { disturbed: Some((nth, disturbance)), ..script.clone() });
                    let context = || format!("{name}, {release:?}, effect {nth}: {disturbance:?}");
                    assert_eq!(disturbed.ending, undisturbed.ending, "{}", context());
                    assert_eq!(disturbed.changes, undisturbed.changes, "{}", context());
                    runs += 1;
                }
            }
        }
    }
    println!("{effects} effects, {runs} disturbed runs, {:?}", began.elapsed());
    assert!(effects > 200, "only {effects} effects");
}
