//! etcd's own authentication: each step, what the operator can do with it, and what is known of a member that rejects it.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator::certificates::issue;
use etcd_operator::credentials::Security;
use etcd_operator::etcd::{Error, Member};
use etcd_operator::reach::Reach;
use etcd_operator_core::auth::{self, Auth, Password, Questions, RootPassword, Step, User, Wanted};
use etcd_operator_core::observed::{MemberId, Observed, Ordinal};
use etcd_operator_core::tls::{Purpose, Scheme, profiles};
use etcd_operator_core::version::Version;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use testbed::build::STANDARD_ETCD;

use crate::processes::{Processes, until};
use crate::tls::{TLS, issued, security, serving};
use crate::{DEADLINE, names, refused, relied_on};

const EVERYTHING: Questions = Questions { wanted: true, users: true, password: true };
/// What costs no entry in the log.
const STATE: Questions = Questions { wanted: false, users: false, password: false };

fn password(text: &str) -> Password {
    Password::new(text.into())
}

/// As an observation would have it.
fn seen(auth: Auth) -> Observed {
    let mut seen = Observed::nothing_of("uid");
    (seen.transport, seen.auth, seen.root_password) = (Some(TLS), Some(auth), Some(RootPassword::Given));
    seen
}

/// Until nothing is left to do. Every step is sent twice, as if its response had been lost.
async fn lead_to(wanted: &Wanted, member: &Member, secret: &Password) -> Vec<Step> {
    lead_with(2, wanted, member, secret).await
}

async fn lead_with(times: usize, wanted: &Wanted, member: &Member, secret: &Password) -> Vec<Step> {
    let mut steps = Vec::new();
    loop {
        let auth = member.auth(EVERYTHING, Some(secret)).await.expect("it reports");
        let Some(step) = auth::next(wanted, &seen(auth)) else { return steps };
        for _ in 0..times {
            member.change_auth(step, Some(secret.clone())).await.expect("it is carried out");
        }
        steps.push(step);
    }
}

fn enabled() -> Wanted {
    Wanted::Enabled { root_password_secret: Some("root".into()) }
}

/// The certificate of a user that etcd does not know.
fn stranger(secrets: &BTreeMap<Purpose, Secret>) -> Secret {
    let mut profile = profiles(&names(), TLS)[&Purpose::Client].clone();
    profile.common_name = "stranger".into();
    let content =
        issue(&profile, secrets.get(&Purpose::ClientAuthority), Timestamp::now()).expect("it is issued");
    Secret { data: Some(content), ..Secret::default() }
}

async fn connected(cluster: &Processes, secret: &Secret) -> Member {
    let security: Security = security(secret, 0);
    Member::connect(&Reach::Direct, &cluster.pod(0), &security).await.expect("it is trusted")
}

#[tokio::test]
async fn authentication_is_enabled_and_disabled_in_steps_that_can_be_repeated() {
    for version in STANDARD_ETCD {
        use Step::{AddRootRole, AddUser, Disable, Enable, GrantRootRole, SetRootPassword};
        use User::{Client, Operator, Root};
        let secrets = issued();
        let (_cluster, member) = serving(version, &secrets).await;
        refused(member.change_auth(Enable, None).await, "root user does not exist");
        let auth = member.auth(STATE, None).await.expect("it reports");
        assert_eq!(auth, Auth { enabled: false, users: None, root_logs_in: None }, "{version}");

        let first = password("first");
        let steps = lead_to(&enabled(), &member, &first).await;
        let users = [AddUser(Root), GrantRootRole(Root), AddUser(Operator), GrantRootRole(Operator)];
        let expected = [&[AddRootRole], &users[..], &[AddUser(Client), Enable]].concat();
        assert_eq!(steps, expected, "{version}: the user root was created with the password");
        let on = |root_logs_in| Auth { enabled: true, users: None, root_logs_in };
        assert_eq!(member.auth(STATE, None).await.expect("it reports"), on(None));
        let logs_in = async |password: &Password| {
            let auth = member.auth(EVERYTHING, Some(password)).await.expect("it reports");
            assert_eq!(auth.users.and_then(|users| users.missing()), None, "{version}");
            auth.root_logs_in
        };

        let second = password("second");
        assert_eq!(logs_in(&second).await, Some(false), "{version}");
        assert_eq!(lead_to(&enabled(), &member, &second).await, [SetRootPassword]);
        assert_eq!((logs_in(&first).await, logs_in(&second).await), (Some(false), Some(true)), "{version}");
        // Its Secret was deleted between the decision and the change.
        member.change_auth(SetRootPassword, None).await.expect("nothing is left to do");
        assert_eq!(logs_in(&second).await, Some(true), "{version}: the password stays");

        assert_eq!(lead_to(&Wanted::Disabled, &member, &second).await, [Disable]);
        // Users stay.
        assert_eq!(lead_to(&enabled(), &member, &second).await, [Enable]);
    }
}

#[tokio::test]
async fn the_operator_can_do_all_of_its_work_under_authentication() {
    for version in STANDARD_ETCD {
        let secrets = issued();
        let (cluster, member) = serving(version, &secrets).await;
        // A stream that was opened before.
        let before = member.clone();
        let before = tokio::spawn(async move { before.watch_until_lost().await });
        lead_to(&enabled(), &member, &password("x")).await;

        let status = member.status().await.expect("it answers");
        assert!(status.answer.linearizable && !status.answer.denied, "{version}");
        member.hash(status.revision, DEADLINE).await.expect("it hashes");
        let learner =
            member.add_learner(names().peer_url(Scheme::Https, Ordinal(1))).await.expect("accepted");
        assert_eq!(relied_on(&member).await.expect("it lists").list.len(), 2, "{version}");
        refused(member.promote(learner).await, "in sync with leader");
        refused(member.move_leader(MemberId(12345)).await, "bad leader transferee");
        member.remove(learner).await.expect("it is removed");
        if status.answer.version.is_some_and(|it| it >= Version::new(3, 6, 0)) {
            let below =
                if version.starts_with("v3.6") { Version::new(3, 5, 0) } else { Version::new(3, 6, 0) };
            member.enable_downgrade(below).await.expect("it is enabled");
            member.cancel_downgrade().await.expect("it is cancelled");
        }
        let after = connected(&cluster, &secrets[&Purpose::Operator]).await;
        let after = tokio::spawn(async move { after.watch_until_lost().await });
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!before.is_finished() && !after.is_finished(), "{version}: streams stay open");
    }
}

/// etcd checks rights after it has asked the quorum, so a rejected read proves as much as one that is served.
#[tokio::test]
async fn a_member_that_rejects_the_operator_is_known_to_serve() {
    for version in STANDARD_ETCD {
        let secrets = issued();
        let (cluster, member) = serving(version, &secrets).await;
        lead_to(&enabled(), &member, &password("x")).await;
        for unknown in [&stranger(&secrets), &secrets[&Purpose::Client]] {
            let rejected = connected(&cluster, unknown).await;
            let error = rejected.linearizable_read().await.expect_err("it may read nothing");
            assert!(error.is_denied(), "{version}: {error:?}");
            match rejected.status().await {
                Ok(status) => assert!(status.answer.linearizable && status.answer.denied, "{version}"),
                Err(error) => assert!(error.is_denied(), "{version}: {error:?}"),
            }
            // A rejected stream is no reason to observe the cluster again.
            let watching = rejected.clone();
            let watch = tokio::spawn(async move { watching.watch_until_lost().await });
            let listed = rejected.members(&names(), None).await;
            assert!(listed.as_ref().err().is_none_or(Error::is_denied), "{version}: {listed:?}");
            let removed = rejected.remove(MemberId(1)).await.expect_err("it may change nothing");
            let disabled =
                rejected.change_auth(Step::Disable, None).await.expect_err("it may change nothing");
            assert!(removed.is_denied() && disabled.is_denied(), "{version}: {removed:?} {disabled:?}");
            let auth = rejected.auth(EVERYTHING, Some(&password("x"))).await.expect("it reports");
            assert_eq!((auth.enabled, auth.root_logs_in), (true, Some(true)), "{version}");
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(!watch.is_finished(), "{version}");
            watch.abort();
            println!("{version}: status {}, list {}", rejected.status().await.is_ok(), listed.is_ok());
        }
    }
}

/// Without a quorum nothing is rejected: there is no answer.
#[tokio::test]
async fn without_a_quorum_a_rejected_read_proves_nothing() {
    for version in STANDARD_ETCD {
        let mut cluster = Processes::formed(version, 3).await;
        // In plain text nobody has a name, so there is no second time.
        let member = cluster.member(0).await;
        lead_with(1, &enabled(), &member, &password("x")).await;
        let error = member.linearizable_read().await.expect_err("it may read nothing");
        assert!(error.is_denied(), "{version}: {error:?}");
        cluster.kill(1);
        cluster.kill(2);
        let error = until("the quorum to be lost", async || {
            member.linearizable_read().await.err().filter(|error| !error.is_denied())
        });
        let error = error.await;
        assert!(!matches!(error, Error::Refused { .. }), "{version}: {error:?}");
    }
}
