//! The operator at work with the rights that it ships with.

use std::time::Duration;

use etcd_operator::{controller, http};
use etcd_operator_core::api::{BackupPhase, EtcdBackup, EtcdCluster, EtcdRestore, Phase, RestorePhase};
use etcd_operator_core::names::condition;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::{as_operator, installed, kubectl};

const OBJECTS: &str = "../examples";

#[tokio::test]
async fn the_operator_reports_with_the_rights_it_ships_with_and_has_no_others() {
    let api = installed().await;
    let client = as_operator(&api).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let operator = tokio::spawn(controller::run(client.clone(), http::Ready::default(), async {
        let _ = stopped.await;
    }));

    kubectl(&api, &["apply", "-f", OBJECTS]).await;
    let admin = api.client().await.expect("an administrator's client");
    let cluster: EtcdCluster = reported(&admin, "minimal", |it: &EtcdCluster| it.status.is_some()).await;
    let status = cluster.status.expect("it was just seen");
    assert_eq!((status.phase, status.observed_generation), (Some(Phase::Failed), Some(1)));
    assert!(is_true(&status.conditions, condition::STALLED));

    let backup: EtcdBackup = reported(&admin, "nightly", |it: &EtcdBackup| it.status.is_some()).await;
    let status = backup.status.expect("it was just seen");
    assert_eq!(status.phase, Some(BackupPhase::Failed));
    assert!(is_true(&status.conditions, condition::STALLED));

    let restore: EtcdRestore = reported(&admin, "yesterday", |it: &EtcdRestore| it.status.is_some()).await;
    let status = restore.status.expect("it was just seen");
    assert_eq!(status.phase, Some(RestorePhase::Failed));
    assert!(is_true(&status.conditions, condition::STALLED));

    let secrets = Api::<Secret>::namespaced(client, "default").list(&ListParams::default()).await;
    assert!(matches!(secrets, Err(kube::Error::Api(answer)) if answer.code == 403), "it may read no Secret");

    stop.send(()).expect("the operator still runs");
    tokio::time::timeout(Duration::from_secs(10), operator)
        .await
        .expect("it stops")
        .expect("without a panic");
}

fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|it| it.type_ == type_ && it.status == "True")
}

async fn reported<K>(client: &Client, name: &str, is_reported: fn(&K) -> bool) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let objects: Api<K> = Api::namespaced(client.clone(), "default");
    let seen = await_condition(objects, name, move |object: Option<&K>| object.is_some_and(is_reported));
    let seen = tokio::time::timeout(Duration::from_secs(30), seen).await.expect("a status comes");
    seen.expect("the watch goes on").expect("it was just seen")
}
