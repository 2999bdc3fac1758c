//! etcd's own authentication on clusters that run: clients notice nothing, and what somebody does by hand is changed back.

use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, Permission, UserAddOptions};
use etcd_operator_core::auth::{PASSWORD_KEY, ROOT_ROLE, User};
use etcd_operator_core::names::{condition, reason};
use etcd_operator_core::tls::Purpose;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::access::{Identity, Member};
use crate::inside;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::steps::Until;
use crate::world::{CLUSTER, World, world};

pub const ROOT_SECRET: &str = "root-password";
const ROLE: &str = "everything";
/// etcd is asked, and the Secret read, once a minute when the cluster is observed; a settled one every half minute.
const NOTICED: Duration = Duration::from_secs(110);

/// The Secret with the password of root, and rights for the user of applications: as long as authentication is not enabled,
/// everybody may grant them.
pub async fn prepare(world: &World, namespace: &str, recorder: &Recorder) {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": ROOT_SECRET}, "stringData": {PASSWORD_KEY: "first"},
    }))
    .expect("a Secret");
    world.all::<Secret>(namespace).create(&PostParams::default(), &secret).await.expect("it is accepted");
    let client = Member::new(namespace, 0).client(recorder).await.expect("it serves");
    let (mut auth, name) = (client.auth_client(), User::Client.name());
    auth.role_add(ROLE).await.expect("a role");
    let all = Permission::read_write("").with_all_keys();
    auth.role_grant_permission(ROLE, all).await.expect("a right");
    auth.user_add(name, "", Some(UserAddOptions::new().with_no_pwd())).await.expect("a user");
    auth.user_grant_role(name, ROLE).await.expect("a role for it");
}

pub fn is_enabled(recorder: &Recorder) -> bool {
    let auth = recorder.condition(condition::AUTH_READY);
    auth["status"] == "True" && auth["reason"] == reason::AUTH_ENABLED
}

async fn as_client(stage: &Stage, purpose: Purpose) -> Client {
    let member = Member::new(&stage.namespace, 0);
    member.client_as(&Identity::of(&stage.recorder, purpose), None).await.expect("it serves")
}

/// Whether root can log in.
async fn logs_in(stage: &Stage, password: &str) -> bool {
    let client = as_client(stage, Purpose::Client).await;
    client.auth_client().authenticate(User::Root.name().into(), password.into()).await.is_ok()
}

/// Under a client that writes all the time.
pub fn life() {
    world().runtime.block_on(async {
        let mut stage = Stage::start(world()).await;
        stage.create(json!({"size": 1, "version": inside::TWO_LEARNERS})).await;
        prepare(stage.world, &stage.namespace, &stage.recorder).await;
        stage.write();
        let auth = json!({"security": {"auth": {"enabled": true, "rootPasswordSecret": ROOT_SECRET}}});
        stage.edit(&auth).await.expect("it is accepted");
        stage.until("enabled", is_enabled).await;
        assert!(logs_in(&stage, "first").await && !logs_in(&stage, "second").await);
        let tls = json!({"security": {"tls": {"clientTLSEnabled": false}}});
        let error = stage.edit(&tls).await.expect_err("authentication needs it").to_string();
        assert!(error.contains("auth.enabled needs TLS for clients"), "{error}");

        stage.edit(&json!({"size": 3})).await.expect("it is accepted");
        stage.until("scaled under authentication", |it| Until::Ready(3).holds(it)).await;
        let mut foreign = as_client(&stage, Purpose::Server).await;
        foreign.get("key", None).await.expect_err("it has no rights");

        let secrets: Api<Secret> = stage.world.all(&stage.namespace);
        let change = Patch::Merge(json!({"stringData": {PASSWORD_KEY: "second"}}));
        secrets.patch(ROOT_SECRET, &PatchParams::default(), &change).await.expect("it is there");
        let begun = Instant::now();
        while !logs_in(&stage, "second").await {
            assert!(begun.elapsed() < NOTICED, "the password is not changed");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        println!("changed after {:.1} s", begun.elapsed().as_secs_f64());
        assert!(!logs_in(&stage, "first").await);
        stage.until("reported", is_enabled).await;
        let cluster = stage.recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
        assert!(!cluster.to_string().contains("second"), "no password in the status");
        stage.end().await;
    });
}

/// Enabled by somebody who forgot the operator, and then disabled by somebody else.
pub fn by_hand() {
    world().runtime.block_on(async {
        let mut stage = Stage::start(world()).await;
        stage.create(json!({"size": 1, "version": inside::ONE_LEARNER})).await;
        prepare(stage.world, &stage.namespace, &stage.recorder).await;
        stage.write();
        let mut auth = as_client(&stage, Purpose::Client).await.auth_client();
        auth.user_add(User::Root.name(), "x", None).await.expect("a user");
        auth.user_grant_role(User::Root.name(), ROOT_ROLE).await.expect("a role for it");
        auth.auth_enable().await.expect("it is enabled");
        let is = |reason: &'static str| {
            move |it: &Recorder| it.condition(condition::AUTH_READY)["reason"] == reason
        };
        stage.until_within(NOTICED, "rejected", is(reason::ACCESS_DENIED)).await;
        let value = |type_: &str| stage.recorder.condition(type_)["status"].clone();
        assert_eq!(
            [value(condition::STALLED), value(condition::QUORUM_LOST)],
            ["True", "False"].map(Value::from)
        );
        // It is asked again and again, and nothing changes.
        let before = stage.recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
        tokio::time::sleep(Duration::from_secs(15)).await;
        let after = stage.recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
        assert_eq!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);

        // As the message says.
        let (identity, login) = (
            Identity::of(&stage.recorder, Purpose::Client),
            ConnectOptions::new().with_user(User::Root.name(), "x"),
        );
        let root =
            Member::new(&stage.namespace, 0).client_as(&identity, Some(login)).await.expect("it serves");
        let (mut auth, operator) = (root.auth_client(), User::Operator.name());
        auth.user_add(operator, "", Some(UserAddOptions::new().with_no_pwd())).await.expect("a user");
        auth.user_grant_role(operator, ROOT_ROLE).await.expect("a role for it");
        // The spec says nothing of it, so it stays.
        let is_over = |it: &Recorder| it.condition(condition::AUTH_READY).is_null();
        stage.until_within(NOTICED, "no longer rejected", is_over).await;
        let login = || ConnectOptions::new().with_user(User::Root.name(), "x");
        let logs_in =
            async || Member::new(&stage.namespace, 0).client_as(&identity, Some(login())).await.is_ok();
        assert!(logs_in().await, "it is enabled");
        stage.edit(&json!({"security": {"auth": {"enabled": false}}})).await.expect("it is accepted");
        let disabled = async {
            while logs_in().await {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(NOTICED, disabled).await.expect("disabled");
        stage.end().await;
    });
}
