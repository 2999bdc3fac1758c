//! Users, roles and authentication: the simulation answers as real etcd does to a client without a name.

use std::net::IpAddr;

use etcd_operator_core::auth::{Questions, ROOT_ROLE, Step, User};
use etcd_operator_sim::auth::{Error, Store};
use serde_json::{Value, json};

use crate::gateway::exchange;
use crate::real::{PATIENCE, Real};
use crate::script::Cluster;
use crate::{REAL, settle};

const PASSWORD: u64 = 7;

/// Each step with its answer.
const STEPS: [(Step, Result<(), Error>); 15] = [
    (Step::Disable, Ok(())),
    (Step::Enable, Err(Error::RootUserNotExist)),
    (Step::GrantRootRole(User::Root), Err(Error::NotFound)),
    (Step::SetRootPassword, Err(Error::NotFound)),
    (Step::AddUser(User::Root), Ok(())),
    (Step::AddUser(User::Root), Err(Error::UserExists)),
    (Step::Enable, Err(Error::RootRoleNotExist)),
    // etcd knows it without its having been created.
    (Step::GrantRootRole(User::Root), Ok(())),
    (Step::GrantRootRole(User::Root), Ok(())),
    (Step::AddRootRole, Ok(())),
    (Step::AddRootRole, Err(Error::RoleExists)),
    (Step::AddUser(User::Operator), Ok(())),
    (Step::Enable, Ok(())),
    (Step::AddUser(User::Client), Err(Error::PermissionDenied)),
    (Step::Disable, Err(Error::PermissionDenied)),
];

#[test]
fn the_simulated_authentication_answers_as_the_table_says() {
    let mut store = Store::default();
    for (index, (step, expected)) in STEPS.into_iter().enumerate() {
        assert_eq!(store.apply(step, None, Some(PASSWORD)), expected, "{}: {step:?}", index + 1);
    }
    let questions = Questions { wanted: true, users: true, password: true };
    let answer = store.answer(questions, Some(PASSWORD));
    assert_eq!((answer.enabled, answer.root_logs_in), (true, Some(true)));
}

#[test]
fn real_authentication_answers_as_the_table_says() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (version, release) in REAL {
        let built = runtime.block_on(testbed::build::ensure_etcd(version)).expect("etcd is built");
        let mut cluster = Real::new(&built.dir, release, 1);
        cluster.start(0);
        settle(&mut cluster).expect("it serves");
        for (index, (step, expected)) in STEPS.into_iter().enumerate() {
            let answer = send(cluster.host(0), step);
            assert_eq!(answer, expected, "{version}, {}: {step:?}", index + 1);
        }
        let login = json!({"name": User::Root.name(), "password": PASSWORD.to_string()});
        assert_eq!(call(cluster.host(0), "/v3/auth/authenticate", &login), Ok(()), "{version}");
    }
}

fn send(host: IpAddr, step: Step) -> Result<(), Error> {
    let (path, body) = match step {
        Step::AddRootRole => ("/v3/auth/role/add", json!({"name": ROOT_ROLE})),
        Step::AddUser(User::Root) => {
            ("/v3/auth/user/add", json!({"name": User::Root.name(), "password": PASSWORD.to_string()}))
        }
        Step::AddUser(user) => {
            ("/v3/auth/user/add", json!({"name": user.name(), "options": {"no_password": true}}))
        }
        Step::GrantRootRole(user) => ("/v3/auth/user/grant", json!({"user": user.name(), "role": ROOT_ROLE})),
        Step::Enable => ("/v3/auth/enable", json!({})),
        Step::Disable => ("/v3/auth/disable", json!({})),
        Step::SetRootPassword => {
            ("/v3/auth/user/changepw", json!({"name": User::Root.name(), "password": PASSWORD.to_string()}))
        }
    };
    call(host, path, &body)
}

fn call(host: IpAddr, path: &str, body: &Value) -> Result<(), Error> {
    let answer = exchange(host, path, &body.to_string(), PATIENCE).expect("it answers");
    if answer.starts_with("HTTP/1.0 200 ") {
        return Ok(());
    }
    let named = [
        ("role name already exists", Error::RoleExists),
        ("user name already exists", Error::UserExists),
        ("user name not found", Error::NotFound),
        ("root user does not exist", Error::RootUserNotExist),
        ("root user does not have root role", Error::RootRoleNotExist),
        ("user name is empty", Error::PermissionDenied),
        ("permission denied", Error::PermissionDenied),
    ];
    let known = named.into_iter().find(|(text, _)| answer.contains(text));
    Err(known.unwrap_or_else(|| panic!("{path}: an answer that nobody expected: {answer}")).1)
}
