//! The requests that restart members, as the operator sends them with its own rights: what was observed is their
//! precondition, and a template that is written leaves nothing of the previous one.

use std::time::Duration;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::desired::Desired;
use etcd_operator_core::names::Names;
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::request::{Change, Object, OnlyIf, Target, Write, http};
use etcd_operator_core::validate::validate;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::{as_operator, shared};

const CLUSTER: &str = "kv";
const LIMIT: Duration = Duration::from_secs(60);

/// A namespace, and two clients: one of an administrator, and one with the operator's rights.
struct Place {
    admin: Client,
    operator: Client,
    names: Names,
}

impl Place {
    async fn new() -> Self {
        let api = shared::bare().await;
        let admin = api.client().await.expect("an administrator's client");
        let namespace = shared::namespace(&admin).await;
        let names = Names::new(&namespace, CLUSTER, "cluster.local");
        Self { admin, operator: as_operator(&api).await, names }
    }

    fn all<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.admin.clone(), &self.names.namespace)
    }

    async fn cluster(&self, spec: Value) -> EtcdCluster {
        let cluster = EtcdCluster::new(CLUSTER, serde_json::from_value(spec).expect("it is a spec"));
        self.all().create(&PostParams::default(), &cluster).await.expect("it is accepted")
    }

    /// What the API server answers: the object, or a code. None if it does not answer in time.
    async fn send(
        &self,
        write: &Write,
        cluster: &EtcdCluster,
        set: Option<&StatefulSet>,
    ) -> Result<Value, Option<u16>> {
        let intent = validate(cluster).expect("the server took it, too");
        let desired = Desired {
            intent: &intent,
            names: &self.names,
            agent_image: "example.org/operator:dev",
            operator: None,
        };
        let target =
            Target { cluster, names: &self.names, desired: Some(&desired), set, record: None, issued: None };
        let request = http(write, target).expect("the spec is valid");
        let code = |error| if let kube::Error::Api(status) = error { Some(status.code) } else { None };
        self.operator.request(request).await.map_err(code)
    }

    async fn set(&self, cluster: &EtcdCluster, replicas: u8) -> StatefulSet {
        let intent = validate(cluster).expect("the server took it, too");
        let desired = Desired {
            intent: &intent,
            names: &self.names,
            agent_image: "example.org/operator:dev",
            operator: None,
        };
        let set = desired.stateful_set(replicas, &intent.form);
        let sets: Api<StatefulSet> = self.all();
        sets.create(&PostParams::default(), &set).await.expect("it is new");
        // Its controller writes into it, too.
        let read = |it: Option<&StatefulSet>| {
            it.and_then(|it| it.status.as_ref()?.observed_generation).is_some_and(|generation| generation > 0)
        };
        let waiting = await_condition(sets.clone(), CLUSTER, read);
        let set = tokio::time::timeout(LIMIT, waiting).await.expect("it is read").expect("the watch goes on");
        set.expect("it is there")
    }
}

pub async fn a_template_is_replaced_as_a_whole_and_only_as_it_was_observed() {
    let place = Place::new().await;
    let before = json!({
        "debugSidecar": {}, "resources": {"limits": {"memory": "1Gi"}},
        "podTemplate": {"nodeSelector": {"disk": "fast", "zone": "a"}, "tolerations": [{"operator": "Exists"}]},
    });
    let cluster = place.cluster(before).await;
    let set = place.set(&cluster, 0).await;
    let after = json!({"spec": {
        "debugSidecar": null, "resources": null,
        "podTemplate": {"nodeSelector": {"disk": null}, "tolerations": null},
    }});
    let clusters: Api<EtcdCluster> = place.all();
    let edited = clusters.patch(CLUSTER, &PatchParams::default(), &Patch::Merge(&after)).await;
    let edited = edited.expect("it is accepted");
    let form = validate(&edited).expect("it is valid").form.digest();
    let (uid, version) = (set.uid().unwrap_or_default(), set.resource_version().unwrap_or_default());
    let write = |uid: &str, version: &str| Write {
        object: Object::Set,
        only_if: OnlyIf::Unchanged(uid.into(), version.into()),
        change: Change::SetTemplate(form.clone()),
    };
    assert_eq!(place.send(&write(&uid, "1"), &edited, Some(&set)).await, Err(Some(409)));
    // Never sent: another object has another version, too.
    assert_eq!(place.send(&write("another", &version), &edited, Some(&set)).await, Err(Some(422)));
    let written = place.send(&write(&uid, &version), &edited, Some(&set)).await.expect("it is as observed");

    let sets: Api<StatefulSet> = place.all();
    sets.delete(CLUSTER, &DeleteParams::default()).await.expect("it is there");
    let gone = await_condition(sets.clone(), CLUSTER, |it: Option<&StatefulSet>| it.is_none());
    tokio::time::timeout(LIMIT, gone).await.expect("it goes").expect("the watch goes on");
    let new = json!(place.set(&edited, 0).await);
    assert_eq!(written["spec"]["template"], new["spec"]["template"]);
    assert_eq!(new["spec"]["template"]["spec"]["nodeSelector"], json!({"zone": "a"}));
}

pub async fn a_pod_is_evicted_only_if_it_is_the_observed_one_and_the_budget_allows_it() {
    let place = Place::new().await;
    let cluster = place.cluster(json!({"size": 1})).await;
    place.set(&cluster, 1).await;
    let pods: Api<Pod> = place.all();
    let there = |it: Option<&Pod>| it.is_some();
    let waiting = await_condition(pods.clone(), "kv-0", there);
    tokio::time::timeout(LIMIT, waiting).await.expect("it appears").expect("the watch goes on");
    let uid = pods.get("kv-0").await.expect("it is there").uid().unwrap_or_default();
    let evict = |uid: &str| Write {
        object: Object::Pod(Ordinal(0)),
        only_if: OnlyIf::Same(uid.into()),
        change: Change::Evict,
    };
    // The pod is Pending, so the API server tries again for ten seconds before it answers 409. Our deadline ends first, and the
    // operator observes again.
    assert_eq!(place.send(&evict("another"), &cluster, None).await, Err(None));
    let pod = pods.get("kv-0").await.expect("it is there");
    assert_eq!((pod.uid(), pod.metadata.deletion_timestamp), (Some(uid.clone()), None));

    // A budget protects only what serves.
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status("kv-0", &PatchParams::default(), &Patch::Merge(&ready)).await.expect("it is accepted");
    let intent = validate(&cluster).expect("it is valid");
    let desired = Desired {
        intent: &intent,
        names: &place.names,
        agent_image: "example.org/operator:dev",
        operator: None,
    };
    let budgets: Api<PodDisruptionBudget> = place.all();
    let budget = desired.disruption_budget(1, false).expect("it is wanted");
    budgets.create(&PostParams::default(), &budget).await.expect("it is new");
    let counted = |it: Option<&PodDisruptionBudget>| {
        it.and_then(|it| it.status.as_ref()).is_some_and(|status| status.current_healthy == 1)
    };
    let waiting = await_condition(budgets.clone(), CLUSTER, counted);
    tokio::time::timeout(LIMIT, waiting).await.expect("it counts").expect("the watch goes on");
    assert_eq!(place.send(&evict(&uid), &cluster, None).await, Err(Some(429)));

    budgets.delete(CLUSTER, &DeleteParams::default()).await.expect("it is there");
    let allowed = async {
        while place.send(&evict(&uid), &cluster, None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, allowed).await.expect("nothing forbids it any more");
    let pod = pods.get_opt("kv-0").await.expect("the API server answers");
    assert!(
        pod.is_none_or(|pod| pod.uid().as_ref() != Some(&uid) || pod.metadata.deletion_timestamp.is_some())
    );
}

pub async fn a_pod_on_a_lost_node_is_deleted_by_force_only_if_it_is_the_observed_one() {
    let place = Place::new().await;
    let cluster = place.cluster(json!({"size": 1})).await;
    let pods: Api<Pod> = place.all();
    // There is no such node, as if its kubelet were down.
    let pod = json!({
        "metadata": {"name": "kv-0"},
        "spec": {"nodeName": "n1", "containers": [{"name": "etcd", "image": "example.org/etcd:v3.6.0"}]},
    });
    let pod: Pod = serde_json::from_value(pod).expect("it is a pod");
    let uid = pods.create(&PostParams::default(), &pod).await.expect("it is new").uid().unwrap_or_default();
    let end = |uid: &str, change| Write {
        object: Object::Pod(Ordinal(0)),
        only_if: OnlyIf::Same(uid.into()),
        change,
    };
    place.send(&end(&uid, Change::Delete), &cluster, None).await.expect("it is as observed");
    let terminating = pods.get("kv-0").await.expect("nothing confirms its end");
    assert!(terminating.metadata.deletion_timestamp.is_some());
    let by_force = |uid: &str| end(uid, Change::DeleteWithin(0));
    assert_eq!(place.send(&by_force("another"), &cluster, None).await, Err(Some(409)));
    assert!(pods.get_opt("kv-0").await.expect("the API server answers").is_some());
    place.send(&by_force(&uid), &cluster, None).await.expect("the operator may delete it");
    assert!(pods.get_opt("kv-0").await.expect("the API server answers").is_none());
}

pub async fn a_preflight_pod_is_created_once_and_is_gone_as_soon_as_it_is_deleted() {
    let place = Place::new().await;
    let cluster = place.cluster(json!({"size": 1})).await;
    let object = Object::Preflight(Ordinal(0));
    // There is no such node, as if its kubelet were down.
    let change = Change::CreatePreflight("n1".into());
    let create = Write { object, only_if: OnlyIf::Absent, change };
    let created = place.send(&create, &cluster, None).await.expect("the operator may create it");
    assert_eq!(place.send(&create, &cluster, None).await, Err(Some(409)));
    let delete = |uid: &Value| {
        let only_if = OnlyIf::Same(uid.as_str().unwrap_or_default().into());
        Write { object, only_if, change: Change::Delete }
    };
    assert_eq!(place.send(&delete(&"another".into()), &cluster, None).await, Err(Some(409)));
    place.send(&delete(&created["metadata"]["uid"]), &cluster, None).await.expect("it is as observed");
    let pods: Api<Pod> = place.all();
    assert!(pods.get_opt("kv-preflight-0").await.expect("the API server answers").is_none());
}
