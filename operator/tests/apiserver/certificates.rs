//! The Secrets of a cluster with TLS, as the operator writes them with the rights that it ships with.

use std::collections::BTreeMap;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::reason;
use etcd_operator_core::tls::{self, Purpose};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::operated::Workplace;

async fn secrets(operated: &Workplace) -> BTreeMap<String, Secret> {
    let list = operated.all::<Secret>().list(&ListParams::default()).await.expect("a list");
    list.into_iter().map(|it| (it.name_any(), it)).collect()
}

fn authority(secret: &Secret) -> String {
    let certificate = tls::read(secret.data.as_ref()).expect("it is complete");
    certificate.signed_by.expect("it names its authority")
}

/// Nothing reports that a Secret was deleted, so it takes up to a minute until the operator knows.
pub async fn a_cluster_owns_its_certificates_and_a_deleted_one_returns_from_the_same_authority() {
    let operated = Workplace::new().await;
    let cluster = operated.create("kv", json!({"size": 1})).await;
    operated.until_armed("kv", 1).await;
    let before = secrets(&operated).await;
    let mut expected = Purpose::ALL.map(|it| format!("kv-{}", it.suffix()));
    expected.sort();
    assert!(before.keys().eq(&expected), "{:?}", before.keys());
    for secret in before.values() {
        let owner = secret.owner_references().iter().find(|it| it.controller == Some(true));
        assert_eq!(owner.map(|it| &it.uid), cluster.metadata.uid.as_ref());
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    }

    let deleted = &before["kv-client-tls"];
    operated.all::<Secret>().delete("kv-client-tls", &DeleteParams::default()).await.expect("it is there");
    let other = |it: &Secret| it.uid() != deleted.uid();
    let returned = operated.until("kv-client-tls", "another certificate", other).await;
    assert_eq!(authority(&returned), authority(&before["kv-client-ca"]));
    assert_ne!(returned.data, deleted.data);
    assert_eq!(written_since(&before, &operated).await, ["kv-client-tls"]);
}

/// Those that are not as they were.
async fn written_since(before: &BTreeMap<String, Secret>, operated: &Workplace) -> Vec<String> {
    let differs = |(name, secret): &(String, Secret)| {
        before.get(name).is_none_or(|it| it.resource_version() != secret.resource_version())
    };
    secrets(operated).await.into_iter().filter(differs).map(|(name, _)| name).collect()
}

pub async fn a_name_that_a_user_adds_is_in_the_same_secret_soon() {
    let operated = Workplace::new().await;
    operated.create("kv", json!({"size": 1})).await;
    operated.until_armed("kv", 1).await;
    let before = secrets(&operated).await;
    let tls = json!({"certificates": {"dnsNames": ["etcd.example.com"]}});
    operated.edit("kv", json!({"spec": {"security": {"tls": tls}}})).await;
    let has_name = |it: &Secret| {
        let certificate = tls::read(it.data.as_ref());
        certificate.is_ok_and(|it| it.dns_names.iter().any(|name| name == "etcd.example.com"))
    };
    let server = operated.until("kv-server-tls", "the name", has_name).await;
    assert_eq!(server.uid(), before["kv-server-tls"].uid());
    assert_eq!(written_since(&before, &operated).await, ["kv-server-tls"]);
}

fn reports(cluster: &EtcdCluster, text: &str) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|it| it.reason == reason::STEP_FAILED && it.message.contains(text))
}

pub async fn a_secret_of_another_owner_is_left_alone_and_named() {
    let operated = Workplace::new().await;
    let secret =
        json!({"metadata": {"name": "kv-server-tls"}, "stringData": {"tls.key": "of somebody else"}});
    let secret: Secret = serde_json::from_value(secret).expect("a Secret");
    let before = operated.all().create(&PostParams::default(), &secret).await.expect("it is new");
    operated.create("kv", json!({"size": 1})).await;
    let named = |it: &EtcdCluster| reports(it, "Secret kv-server-tls exists already and has another owner");
    let cluster = operated.until("kv", "the Secret is named", named).await;
    assert!(!format!("{:?}", cluster.status).contains("of somebody else"));
    let after = operated.all::<Secret>().get("kv-server-tls").await.expect("it is there");
    assert_eq!(after.resource_version(), before.resource_version());
    assert_eq!(operated.all::<StatefulSet>().get_opt("kv").await.expect("an answer"), None);

    operated.all::<Secret>().delete("kv-server-tls", &DeleteParams::default()).await.expect("it is there");
    operated.until_armed("kv", 1).await;
}

pub async fn a_cluster_in_plain_text_has_no_certificates() {
    let operated = Workplace::new().await;
    operated.create("kv", json!({"size": 1, "security": {"tls": {"enabled": false}}})).await;
    operated.until_armed("kv", 1).await;
    assert!(secrets(&operated).await.is_empty());
}
