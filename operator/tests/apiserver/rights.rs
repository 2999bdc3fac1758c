//! What the operator and its users are allowed to do, as the API server decides it.

use etcd_operator::supervisor::PlantedPanic;
use etcd_operator_core::api::{EtcdCluster, Phase};
use etcd_operator_core::desired::pod_monitor_resource;
use etcd_operator_core::names::reason;
use etcd_operator_core::tls::certificate_resource;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use testbed::api_only::ApiOnly;

use crate::foreign::define;
use crate::operated::Workplace;
use crate::{SERVICE_ACCOUNT, installed, kubectl, root, shared};

/// Of `config/namespaced`.
const NAMESPACE: &str = "etcd";

async fn apply(api: &ApiOnly, folder: &str) {
    let folder = root().join("config").join(folder).display().to_string();
    kubectl(api, &["apply", "--server-side", "-k", &folder]).await;
}

/// `kubectl auth can-i` fails if the answer is no.
async fn may(api: &ApiOnly, user: &str, namespace: &str, verb: &str, resource: &str) -> bool {
    let program = api.kubectl().display().to_string();
    let kubeconfig = api.kubeconfig().display().to_string();
    let (user, namespace) = (format!("--as={user}"), format!("--namespace={namespace}"));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let subresource = format!("--subresource={subresource}");
    let asked = ["auth", "can-i", verb, resource, &subresource, &user, &namespace];
    testbed::shell::run(&[&[program.as_str(), "--kubeconfig", &kubeconfig], &asked[..]].concat())
        .await
        .is_ok_and(|answer| answer.trim() == "yes")
}

pub async fn an_operator_of_one_namespace_works_there_and_has_no_rights_elsewhere() {
    let api = ApiOnly::start().await.expect("a control plane starts");
    apply(&api, "crd").await;
    kubectl(&api, &["wait", "--for=condition=Established", "crd", "--all"]).await;
    kubectl(&api, &["create", "namespace", NAMESPACE]).await;
    apply(&api, "namespaced").await;

    let there = Workplace::only_in(api, NAMESPACE).await;
    let spec = json!({"size": 3});
    let elsewhere = EtcdCluster::new("kv", serde_json::from_value(spec.clone()).expect("it is a spec"));
    let others = Api::<EtcdCluster>::namespaced(there.on.admin.clone(), "default");
    others.create(&PostParams::default(), &elsewhere).await.expect("it is taken");
    there.create("kv", spec).await;
    there.until_armed("kv", 3).await;
    let certificate = |it: &Secret| it.data.as_ref().is_some_and(|data| data.contains_key("tls.crt"));
    there.until("kv-client-tls", "a certificate", certificate).await;
    // kubectl asks only about what the API server knows.
    define(&there.on.admin, &certificate_resource()).await;
    define(&there.on.admin, &pod_monitor_resource()).await;

    let untouched = others.get("kv").await.expect("it is there");
    assert!(untouched.status.is_none() && untouched.metadata.finalizers.is_none(), "{untouched:?}");
    for (verb, resource, expected) in [
        ("list", "pods", true),
        ("create", "statefulsets", true),
        ("watch", "etcdclusters", true),
        ("get", "secrets", true),
        ("create", "secrets", true),
        ("update", "secrets", true),
        ("list", "secrets", false),
        ("watch", "secrets", false),
        ("patch", "secrets", false),
        ("delete", "secrets", false),
        ("create", "jobs", true),
        ("delete", "jobs", true),
        ("patch", "jobs", false),
        ("get", "etcdbackups", true),
        ("delete", "etcdbackups", false),
        ("create", "etcdclusters", true),
        ("update", "etcdclusters", false),
        ("delete", "etcdclusters", false),
        ("create", "persistentvolumeclaims", true),
        ("watch", "etcdrestores", true),
        ("create", "etcdrestores", false),
        ("watch", "networkpolicies", true),
        ("delete", "networkpolicies", true),
        ("update", "networkpolicies", false),
        ("get", "certificates.cert-manager.io", true),
        ("create", "certificates.cert-manager.io", true),
        ("patch", "certificates.cert-manager.io", true),
        ("delete", "certificates.cert-manager.io", true),
        ("list", "certificates.cert-manager.io", false),
        ("watch", "certificates.cert-manager.io", false),
        ("update", "certificates.cert-manager.io", false),
        ("get", "podmonitors.monitoring.coreos.com", true),
        ("create", "podmonitors.monitoring.coreos.com", true),
        ("patch", "podmonitors.monitoring.coreos.com", true),
        ("delete", "podmonitors.monitoring.coreos.com", true),
        ("list", "podmonitors.monitoring.coreos.com", false),
        ("watch", "podmonitors.monitoring.coreos.com", false),
    ] {
        let (here, outside) = (
            may(&there.on.api, SERVICE_ACCOUNT, NAMESPACE, verb, resource).await,
            may(&there.on.api, SERVICE_ACCOUNT, "default", verb, resource).await,
        );
        assert_eq!((here, outside), (expected, false), "{verb} {resource}");
    }
    drop(there.stop().await);
}

/// Leaves the operator these verbs on Secrets.
async fn allow_on_secrets(admin: &Client, verbs: &[&str]) {
    let roles = Api::<ClusterRole>::all(admin.clone());
    let mut role = roles.get("etcd-operator").await.expect("it is installed");
    let rules = role.rules.get_or_insert_default();
    rules.retain(|rule| rule.resources.as_deref() != Some(&["secrets".to_owned()]));
    rules.extend((!verbs.is_empty()).then(|| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".into()]),
        verbs: verbs.iter().map(|it| (*it).to_owned()).collect(),
        ..PolicyRule::default()
    }));
    roles.replace("etcd-operator", &PostParams::default(), &role).await.expect("it is accepted");
}

fn is_reported(cluster: &EtcdCluster, because: &str, words: &[&str]) -> bool {
    let Some(status) = &cluster.status else { return false };
    let reconciling = status.conditions.iter().find(|it| it.type_ == "Reconciling");
    status.phase == Some(Phase::Creating)
        && reconciling.is_some_and(|it| {
            let named = words.iter().all(|word| it.message.contains(word));
            it.status == "True" && it.reason == because && named
        })
}

pub async fn a_missing_right_on_secrets_is_named_in_the_status_and_missed_until_it_is_granted() {
    let api = installed().await;
    let admin = api.client().await.expect("an administrator's client");
    allow_on_secrets(&admin, &[]).await;
    let operated = Workplace::alone(api, PlantedPanic::default()).await;
    operated.create("kv", json!({"size": 1})).await;
    let words = ["cannot get resource \"secrets\"", "config/rights"];
    let denied = |it: &EtcdCluster| is_reported(it, reason::OBJECTS_NOT_READABLE, &words);
    operated.until("kv", "the right to read is named", denied).await;
    assert_eq!(operated.all::<StatefulSet>().get_opt("kv").await.expect("an answer"), None);

    allow_on_secrets(&admin, &["get"]).await;
    let words = ["cannot create resource \"secrets\""];
    let denied = |it: &EtcdCluster| is_reported(it, reason::STEP_FAILED, &words);
    operated.until("kv", "the right to create is named", denied).await;

    allow_on_secrets(&admin, &["get", "create", "update"]).await;
    operated.until_armed("kv", 1).await;
    let over = |it: &EtcdCluster| {
        let conditions = it.status.iter().flat_map(|status| &status.conditions);
        !conditions
            .into_iter()
            .any(|it| it.message.contains("forbidden") || it.reason == reason::OBJECTS_NOT_READABLE)
    };
    operated.until("kv", "nothing of it is left in the status", over).await;
    drop(operated.stop().await);
}

pub async fn who_can_view_or_edit_a_namespace_can_do_so_with_its_clusters() {
    let api = shared::bare().await;
    let admin = api.client().await.expect("a client");
    let namespace = shared::namespace(&admin).await;
    for role in ["view", "edit", "admin"] {
        let (of, user) = (format!("--clusterrole={role}"), format!("--user={role}"));
        let inside = format!("--namespace={namespace}");
        kubectl(&api, &["create", "rolebinding", role, &of, &user, &inside]).await;
    }
    for resource in ["etcdclusters", "etcdbackups", "etcdrestores"] {
        for (user, verb, expected) in [
            ("view", "get", true),
            ("view", "delete", false),
            ("view", "patch", false),
            ("edit", "watch", true),
            ("edit", "create", true),
            ("admin", "delete", true),
            ("stranger", "get", false),
        ] {
            let allowed = settled(&api, user, &namespace, verb, resource, expected).await;
            assert_eq!(allowed, expected, "{user}: {verb} {resource}");
        }
    }
    let scale = "etcdclusters/scale";
    assert!(settled(&api, "edit", &namespace, "patch", scale, true).await);
    assert!(!may(&api, "view", &namespace, "patch", scale).await);
    // Only the operator reports.
    assert!(!may(&api, "admin", &namespace, "patch", "etcdclusters/status").await);
}

/// A controller adds our rules to the roles of Kubernetes a moment after both exist.
async fn settled(
    api: &ApiOnly,
    user: &str,
    namespace: &str,
    verb: &str,
    resource: &str,
    expected: bool,
) -> bool {
    for _ in 0..100 {
        if may(api, user, namespace, verb, resource).await == expected {
            return expected;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    !expected
}

pub async fn the_operator_can_be_installed_twice_for_high_availability() {
    let api = shared::bare().await;
    let folder = root().join("config/highly-available").display().to_string();
    let dry = ["apply", "--server-side", "--dry-run=server", "--output=name", "-k", &folder];
    let names = kubectl(&api, &dry).await;
    assert!(names.contains("poddisruptionbudget.policy/etcd-operator"), "{names}");
    assert!(names.contains("deployment.apps/etcd-operator"), "{names}");
}
