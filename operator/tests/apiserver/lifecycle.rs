//! Clusters are created, edited and deleted, but no member ever starts.

use etcd_operator_core::api::{EtcdCluster, EtcdClusterStatus, Phase};
use etcd_operator_core::names::{CLUSTER_UID_LABEL, FINALIZER, reason};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::kubectl;
use crate::operated::Workplace;

fn status(cluster: &EtcdCluster) -> EtcdClusterStatus {
    cluster.status.clone().unwrap_or_default()
}

fn says(cluster: &EtcdCluster, type_: &str, text: &str) -> bool {
    let conditions = status(cluster).conditions;
    conditions.iter().any(|it| it.type_ == type_ && it.status == "True" && it.message.contains(text))
}

pub async fn a_cluster_is_born_with_its_finalizer_and_owns_what_is_made_for_it() {
    let operated = Workplace::new().await;
    let cluster = operated.create("kv", json!({"size": 3, "externalAccess": {"nodePort": {}}})).await;
    let order = operated.until_armed("kv", 3).await;
    assert_eq!(Some(&order.cluster_uid), cluster.metadata.uid.as_ref());
    let set = operated.until::<StatefulSet>("kv", "a set of three", |set| replicas(set) == 3).await;
    let owned = |object: &dyn Fn() -> Option<String>| assert_eq!(object(), cluster.metadata.uid);
    owned(&|| owner(&set));
    for service in ["kv-peer", "kv-client", "kv-nodeport"] {
        let service = operated.until::<Service>(service, "a Service", |_| true).await;
        owned(&|| owner(&service));
    }
    let budget = operated.until::<PodDisruptionBudget>("kv", "a budget", |_| true).await;
    owned(&|| owner(&budget));
    let claim = operated.until::<PersistentVolumeClaim>("data-kv-0", "a claim", |_| true).await;
    assert_eq!((owner(&claim), claim.labels().get(CLUSTER_UID_LABEL)), (None, cluster.metadata.uid.as_ref()));
    let born = |it: &EtcdCluster| it.finalizers() == [FINALIZER] && status(it).phase == Some(Phase::Creating);
    let cluster = operated.until("kv", "a status", born).await;
    assert_eq!(status(&cluster).domain.as_deref(), Some("cluster.local"));
}

pub async fn a_cluster_that_never_formed_takes_another_size() {
    let operated = Workplace::new().await;
    operated.create("kv", json!({"size": 3})).await;
    let first = operated.until_armed("kv", 3).await;
    operated.edit("kv", json!({"spec": {"size": 1}})).await;
    let second = operated.until_armed("kv", 1).await;
    assert_ne!(first.nonce, second.nonce);
    operated.until::<StatefulSet>("kv", "a set of one", |set| replicas(set) == 1).await;
}

pub async fn a_deleted_cluster_goes_and_its_volumes_do_what_was_asked_for() {
    let operated = Workplace::new().await;
    for (name, policy) in [("kept", "Retain"), ("dropped", "Delete")] {
        operated.create(name, json!({"size": 1, "storage": {"onDelete": policy}})).await;
        let claim = format!("data-{name}-0");
        operated.until::<PersistentVolumeClaim>(&claim, "a claim", |_| true).await;
        operated.all::<EtcdCluster>().delete(name, &DeleteParams::default()).await.expect("it is there");
        operated.until_gone::<EtcdCluster>(name).await;
        operated.until_gone::<StatefulSet>(name).await;
    }
    operated.until_gone::<PersistentVolumeClaim>("data-dropped-0").await;
    let left = operated.all::<PersistentVolumeClaim>().list(&ListParams::default()).await.expect("a list");
    assert_eq!(left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["data-kept-0"]);

    // Names come back; the volumes of the former cluster are not taken by the next one.
    operated.create("kept", json!({"size": 1})).await;
    let refused = |it: &EtcdCluster| says(it, "Stalled", "adopt");
    operated.until("kept", "a refusal that names the way out", refused).await;
    assert_eq!(operated.all::<StatefulSet>().get_opt("kept").await.expect("an answer"), None);
}

/// A Service that the operator did not create.
async fn occupy(operated: &Workplace, name: &str) -> Service {
    let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    let service: Service = serde_json::from_value(service).expect("it is a Service");
    operated.all().create(&PostParams::default(), &service).await.expect("it is taken")
}

pub async fn a_service_of_another_owner_is_left_alone_and_named_and_holds_nothing_else_up() {
    let operated = Workplace::new().await;
    let before = occupy(&operated, "kv-client").await;
    operated.create("kv", json!({"size": 1})).await;
    operated.until::<StatefulSet>("kv", "a set beside the failing Service", |_| true).await;
    operated.until::<PodDisruptionBudget>("kv", "a budget", |_| true).await;
    let named = |it: &EtcdCluster| says(it, "WriteFailed", "Service kv-client");
    operated.until("kv", "the Service is named", named).await;
    let after = operated.all::<Service>().get("kv-client").await.expect("it is there");
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);

    operated.all::<Service>().delete("kv-client", &DeleteParams::default()).await.expect("it is there");
    operated.until::<Service>("kv-client", "our own Service", |it| owner(it).is_some()).await;
    let over = |it: &EtcdCluster| !says(it, "WriteFailed", "");
    operated.until("kv", "the failure is over", over).await;
}

pub async fn a_selector_that_somebody_narrowed_is_put_right() {
    let operated = Workplace::new().await;
    operated.create("kv", json!({"size": 3})).await;
    let service = operated.until::<Service>("kv-client", "a Service", |_| true).await;
    let budget = operated.until::<PodDisruptionBudget>("kv", "a budget", |_| true).await;
    let narrow = |selector: Value| Patch::Merge(json!({"spec": {"selector": selector}}));
    let parameters = PatchParams::default();
    let narrower = narrow(json!({"team": "shop"}));
    operated.all::<Service>().patch("kv-client", &parameters, &narrower).await.expect("it is accepted");
    let narrower = narrow(json!({"matchLabels": {"team": "shop"}}));
    operated.all::<PodDisruptionBudget>().patch("kv", &parameters, &narrower).await.expect("it is accepted");
    let selector = |it: &Service| it.spec.as_ref().and_then(|spec| spec.selector.clone());
    let put_right = |it: &Service| selector(it) == selector(&service);
    operated.until::<Service>("kv-client", "the Service put right", put_right).await;
    let selector = |it: &PodDisruptionBudget| it.spec.as_ref().and_then(|spec| spec.selector.clone());
    let put_right = |it: &PodDisruptionBudget| selector(it) == selector(&budget);
    operated.until::<PodDisruptionBudget>("kv", "the budget put right", put_right).await;
}

pub async fn no_pod_is_created_without_the_peer_service() {
    let operated = Workplace::new().await;
    occupy(&operated, "kv-peer").await;
    operated.create("kv", json!({"size": 1})).await;
    let named = |it: &EtcdCluster| says(it, "WriteFailed", "Service kv-peer");
    operated.until("kv", "the Service is named", named).await;
    operated.until::<Service>("kv-client", "the other Service", |_| true).await;
    assert_eq!(operated.all::<StatefulSet>().get_opt("kv").await.expect("an answer"), None);
    assert_eq!(operated.all::<ConfigMap>().get_opt("kv-bootstrap").await.expect("an answer"), None);
    operated.all::<Service>().delete("kv-peer", &DeleteParams::default()).await.expect("it is there");
    operated.until::<StatefulSet>("kv", "the work goes on", |_| true).await;
}

pub async fn a_pod_that_cannot_be_created_is_named_with_the_api_servers_reason() {
    let operated = Workplace::new().await;
    operated.create("kv", json!({"size": 1, "podTemplate": {"priorityClassName": "absent"}})).await;
    let named = |it: &EtcdCluster| says(it, "Reconciling", "no PriorityClass with name absent was found");
    operated.until("kv", "the reason is named", named).await;
}

pub async fn an_invalid_spec_stops_nothing_that_is_in_effect() {
    let operated = Workplace::new().await;
    operated.create("kv", json!({"size": 1})).await;
    operated.until::<StatefulSet>("kv", "a set", |set| replicas(set) == 1).await;
    let too_much = json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}});
    operated.edit("kv", json!({"spec": {"size": 3, "resources": too_much}})).await;
    let refused = |it: &EtcdCluster| says(it, "Stalled", "spec.resources");
    let seen = operated.until("kv", "the field is named", refused).await;
    assert_eq!(status(&seen).observed_generation, seen.metadata.generation);
    let set = operated.all::<StatefulSet>().get("kv").await.expect("it is there");
    assert_eq!(replicas(&set), 1, "scaled while the spec is invalid");
    operated.edit("kv", json!({"spec": {"resources": null}})).await;
    operated.until::<StatefulSet>("kv", "the size that is valid now", |set| replicas(set) == 3).await;
}

pub async fn a_cluster_whose_namespace_is_being_deleted_waits_for_it_to_go() {
    let operated = Workplace::new().await;
    operated.create("kv", json!({"size": 1, "paused": true})).await;
    let paused = |it: &EtcdCluster| says(it, "Paused", "makes no changes");
    operated.until("kv", "the pause is told", paused).await;

    // Nobody empties namespaces here, so it goes on ending.
    kubectl(&operated.on.api, &["delete", "namespace", &operated.namespace, "--wait=false"]).await;
    operated.edit("kv", json!({"spec": {"paused": false}})).await;
    let awaited = |it: &EtcdCluster| {
        let conditions = status(it).conditions;
        conditions.iter().any(|it| it.type_ == "Reconciling" && it.reason == reason::NAMESPACE_TERMINATING)
    };
    let waiting = operated.until("kv", "the wait for the namespace", awaited).await;
    assert!(says(&waiting, "Reconciling", "nothing can be created in it"), "{waiting:?}");
    assert_eq!(status(&waiting).phase, Some(Phase::Creating));

    operated.all::<EtcdCluster>().delete("kv", &DeleteParams::default()).await.expect("it is there");
    operated.until_gone::<EtcdCluster>("kv").await;
}

fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default()
}

fn owner<K: Resource>(object: &K) -> Option<String> {
    object
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.clone())
}
