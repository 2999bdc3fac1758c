//! The operator at work on a control plane without nodes, with the rights that it ships with: no member ever starts.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator::controller::{self, Settings};
use etcd_operator::http;
use etcd_operator::lease::{self, Election};
use etcd_operator::metrics::Metrics;
use etcd_operator::reach::Reach;
use etcd_operator::scope::Scope;
use etcd_operator::supervisor::PlantedPanic;
use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::desired::OperatorPods;
use etcd_operator_core::order::{self, BootstrapOrder};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use testbed::api_only::ApiOnly;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{as_operator, installed, shared};

/// Only there to end a wait.
const LIMIT: Duration = Duration::from_secs(180);

/// As `config/base` runs it.
fn operator_pods() -> OperatorPods {
    let labels = [("app.kubernetes.io/name".into(), "etcd-operator".into())];
    OperatorPods { namespace: "etcd-operator-system".into(), labels: labels.into() }
}

/// A control plane and an operator that works on it.
pub struct Operated {
    pub admin: Client,
    pub api: ApiOnly,
    pub metrics: Metrics,
    planted_panic: PlantedPanic,
    stop: oneshot::Sender<()>,
    operator: JoinHandle<()>,
}

/// One namespace of it, in which a test works.
pub struct Workplace {
    pub on: Arc<Operated>,
    pub namespace: String,
}

impl Operated {
    pub async fn start() -> Self {
        Self::start_on(installed().await, Scope::Everywhere, PlantedPanic::default()).await
    }

    async fn start_on(api: ApiOnly, scope: Scope, planted_panic: PlantedPanic) -> Self {
        let again = planted_panic.clone();
        let client = as_operator(&api).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped: BoxFuture<'static, ()> = stopped.map(drop).boxed();
        let election = Election::new(client.clone(), "etcd-operator-system", lease::NAME, "test");
        let metrics = Metrics::default();
        let settings = Settings {
            scope,
            reach: Reach::Direct,
            agent_image: "example.org/operator:dev".into(),
            operator: Some(operator_pods()),
            domain: "cluster.local".into(),
            metrics: metrics.clone(),
            planted_panic,
        };
        let running = controller::run(client, settings, election, http::Ready::default(), stopped.shared());
        let admin = api.client().await.expect("an administrator's client");
        Self { admin, api, metrics, planted_panic: again, stop, operator: tokio::spawn(running) }
    }

    /// The control plane goes on.
    pub async fn stop(self) -> ApiOnly {
        self.stop.send(()).expect("the operator still runs");
        let ended = tokio::time::timeout(Duration::from_secs(10), self.operator).await;
        ended.expect("it stops").expect("without a panic");
        self.api
    }
}

impl Workplace {
    /// On the control plane that tests share.
    pub async fn new() -> Self {
        let on = shared::operated().await;
        let namespace = shared::namespace(&on.admin).await;
        Self { on, namespace }
    }

    /// On a control plane that no other test uses, with an operator of its own.
    pub async fn alone(api: ApiOnly, planted_panic: PlantedPanic) -> Self {
        let on = Operated::start_on(api, Scope::Everywhere, planted_panic).await;
        Self { on: Arc::new(on), namespace: "default".into() }
    }

    /// The same, with an operator that works in one namespace only.
    pub async fn only_in(api: ApiOnly, namespace: &str) -> Self {
        let scope = Scope::of(&[namespace.to_owned()]);
        let on = Operated::start_on(api, scope, PlantedPanic::default()).await;
        Self { on: Arc::new(on), namespace: namespace.into() }
    }

    /// With a new operator.
    pub async fn restart(self) -> Self {
        let planted_panic = self.on.planted_panic.clone();
        Self::alone(self.stop().await, planted_panic).await
    }

    /// The control plane goes on.
    pub async fn stop(self) -> ApiOnly {
        Arc::into_inner(self.on).expect("no other test uses it").stop().await
    }

    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.on.admin.clone(), &self.namespace)
    }

    pub async fn create(&self, name: &str, spec: Value) -> EtcdCluster {
        let cluster = EtcdCluster::new(name, serde_json::from_value(spec).expect("it is a spec"));
        self.all().create(&PostParams::default(), &cluster).await.expect("it is taken")
    }

    pub async fn edit(&self, name: &str, change: Value) {
        let patch = Patch::Merge(change);
        self.all::<EtcdCluster>().patch(name, &PatchParams::default(), &patch).await.expect("it is taken");
    }

    /// Waits until an object is there and as it should be.
    pub async fn until<K>(&self, name: &str, what: &str, holds: impl Fn(&K) -> bool + Send) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let waiting = await_condition(self.all::<K>(), name, |it: Option<&K>| it.is_some_and(&holds));
        let seen = tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
        seen.expect("the watch goes on").expect("it was just seen")
    }

    pub async fn until_gone<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let waiting = await_condition(self.all::<K>(), name, |it: Option<&K>| it.is_none());
        let gone = tokio::time::timeout(LIMIT, waiting).await;
        gone.unwrap_or_else(|_| panic!("{name} never goes")).expect("the watch goes on");
    }

    pub async fn until_armed(&self, name: &str, size: usize) -> BootstrapOrder {
        let armed = |it: &ConfigMap| order_in(it).is_some_and(|it| it.armed && it.members.len() == size);
        let object = self.until(&format!("{name}-bootstrap"), "an armed order", armed).await;
        order_in(&object).expect("it was just seen")
    }
}

fn order_in(object: &ConfigMap) -> Option<BootstrapOrder> {
    BootstrapOrder::parse(object.data.as_ref()?.get(order::KEY)?).ok()
}
