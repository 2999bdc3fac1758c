//! etcd's authentication over time: enabled in the right order, changed by hand, and never so that the operator is locked out.

use etcd_operator_core::auth::User;
use etcd_operator_sim::bugs::Bug;
use etcd_operator_sim::problem::{Problem, Violation};
use etcd_operator_sim::run::Success;
use etcd_operator_sim::script::{Script, Step, with_password};
use etcd_operator_sim::secrets::EVERYWHERE;

fn script(steps: &[Step]) -> Script {
    Script { tls: EVERYWHERE, auth: with_password(), steps: steps.to_vec(), ..Script::calm(11, 1, &[]) }
}

fn play(script: &Script) -> Success {
    script.run().unwrap_or_else(|_| match script.traced().run() {
        Err(failure) => panic!("{failure}"),
        Ok(_) => panic!("the same run ended differently"),
    })
}

#[test]
fn it_is_enabled_with_all_users_and_only_those_of_root_and_the_operator_are_administrators() {
    let auth = play(&script(&[])).ending.auth;
    assert!(auth.enabled && auth.root_role);
    let users: Vec<_> = auth.users.into_iter().collect();
    assert_eq!(users, [(User::Root, true), (User::Operator, true), (User::Client, false)]);
}

#[test]
fn what_somebody_changes_by_hand_is_changed_back() {
    let off = play(&script(&[Step::AuthByHand(false)])).ending.auth;
    assert!(off.enabled);
    let on = play(&script(&[Step::Auth(false), Step::AuthByHand(true)])).ending.auth;
    assert!(!on.enabled && on.users.len() == 3, "users stay");
    let password = play(&script(&[Step::RootPassword(7), Step::RootPassword(8)])).ending.auth;
    assert_eq!(password.root_password, Some(8));
}

/// Root has rights, and the operator has none: members stay as they are until somebody gives it access.
#[test]
fn an_operator_that_etcd_rejects_changes_nothing_until_it_has_access() {
    let locked = [Step::AuthByHand(true), Step::Later(600), Step::Size(3), Step::Later(600)];
    let plain = |steps: &[Step]| Script { auth: Default::default(), ..script(steps) };
    let failure = plain(&[&locked[..], &[Step::NodesUp]].concat()).run().expect_err("it waits for access");
    assert!(matches!(*failure.problem, Problem::WrongEnd(_)), "{failure}");
    let ending = play(&plain(&[&locked[..], &[Step::GiveAccess]].concat())).ending;
    assert_eq!(ending.members.len(), 3);
}

#[test]
fn an_operator_that_locks_itself_out_is_found() {
    let planted = Script { bug: Some(Bug::AuthEnabledEarly), ..script(&[]) };
    let failure = planted.run().expect_err("the bug is found");
    assert!(matches!(*failure.problem, Problem::Violated(Violation::LockedOut)), "{failure}");
}
