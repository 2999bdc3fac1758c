//! The objects of a cluster, as `core` wants them: the API server takes them as they are.

use std::fmt::Debug;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::desired::{Desired, services};
use etcd_operator_core::names::Names;
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::validate::validate;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource};
use serde_json::json;

use crate::shared;

const NAMESPACE: &str = "restricted";

/// Creates the object and returns it as the server keeps it.
async fn created<K>(client: &Client, object: &K) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + Debug,
{
    let api = Api::<K>::namespaced(client.clone(), NAMESPACE);
    let kind = K::kind(&());
    api.create(&PostParams::default(), object).await.unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// Pod Security judges pods, so one is made as the StatefulSet would make it.
fn first_pod(set: &StatefulSet) -> Pod {
    let template = set.spec.as_ref().expect("it has a spec").template.clone();
    let mut metadata = template.metadata.unwrap_or_default();
    metadata.name = Some("kv-0".into());
    let mut spec = template.spec.expect("it has pods");
    let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-kv-0"}});
    spec.volumes.get_or_insert_default().push(serde_json::from_value(claim).expect("it is a volume"));
    Pod { metadata, spec: Some(spec), status: None }
}

pub async fn a_namespace_that_is_restricted_takes_everything_that_makes_up_a_cluster() {
    let api = shared::bare().await;
    let client = api.client().await.expect("an administrator's client");
    let namespace = json!({"metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespace: Namespace = serde_json::from_value(namespace).expect("it is a namespace");
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("it is new");
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some())
        .await
        .expect("pods can be made only then");

    let spec = json!({"debugSidecar": {}, "externalAccess": {"nodePort": {"port": 30379}}, "version": "3.5.9", "security": {"networkPolicy": {}}});
    let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
    cluster.metadata.namespace = Some(NAMESPACE.into());
    let cluster = created(&client, &cluster).await;
    let intent = validate(&cluster).expect("the server took it, too");
    let names = Names::new(NAMESPACE, "kv", "cluster.local");
    let desired =
        Desired { intent: &intent, names: &names, agent_image: "example.org/operator:dev", operator: None };

    for service in services(&desired).into_values() {
        created::<Service>(&client, &service).await;
    }
    created::<PodDisruptionBudget>(&client, &desired.disruption_budget(3, false).expect("it is wanted"))
        .await;
    created::<NetworkPolicy>(&client, &desired.network_policy().expect("it is wanted")).await;
    let set = created::<StatefulSet>(&client, &desired.stateful_set(0, &intent.form)).await;
    created::<Pod>(&client, &first_pod(&set)).await;
    created::<Pod>(&client, &desired.preflight(Ordinal(0), "n1").expect("the spec is valid")).await;
}
