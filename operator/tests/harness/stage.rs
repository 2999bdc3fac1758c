//! One cluster that a test leads by hand, with an operator and all oracles.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator::lease;
use etcd_operator::metrics::Metrics;
use etcd_operator_core::api::EtcdCluster;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::faults::Faults;
use crate::operator::{LEASE_NAMESPACE, Operator};
use crate::oracles::{CONTRADICTION_DISTURBED, Oracles};
use crate::recorder::Recorder;
use crate::scenario::{LIMIT, clean_up, until};
use crate::steps::Until;
use crate::world::{CLUSTER, World};

pub struct Stage {
    pub world: &'static World,
    pub namespace: String,
    pub recorder: Arc<Recorder>,
    pub clusters: Api<EtcdCluster>,
    pub faults: Faults,
    oracles: Oracles,
    operator: Option<Operator>,
}

impl Stage {
    /// With an operator, and without a cluster.
    pub async fn start(world: &'static World) -> Self {
        let namespace = world.namespace().await;
        let faults = Faults::none(&namespace);
        let recorder = Arc::new(Recorder::start(&world.admin, &namespace).await);
        // Tests end the operator, too.
        let oracles = Oracles::start(&namespace, &recorder, CONTRADICTION_DISTURBED);
        let operator = Some(Operator::start(&world.kubeconfig, &faults));
        let clusters = world.all(&namespace);
        Self { world, namespace, recorder, clusters, faults, oracles, operator }
    }

    /// Until it is ready.
    pub async fn create(&self, spec: Value) -> EtcdCluster {
        let cluster = EtcdCluster::new(CLUSTER, serde_json::from_value(spec).expect("a spec"));
        let size = u8::try_from(cluster.spec.size).expect("a size");
        let created = self.clusters.create(&PostParams::default(), &cluster).await.expect("it is accepted");
        self.until("created", |it| Until::Ready(size).holds(it)).await;
        created
    }

    /// A merge patch of the spec.
    pub async fn edit(&self, spec: &Value) -> kube::Result<EtcdCluster> {
        let change = Patch::Merge(json!({"spec": spec}));
        self.clusters.patch(CLUSTER, &PatchParams::default(), &change).await
    }

    /// Without a value, the annotation is removed.
    pub async fn annotate(&self, name: &str, value: Option<&str>) {
        let change = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
        self.clusters.patch(CLUSTER, &PatchParams::default(), &change).await.expect("it is accepted");
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&Recorder) -> bool) {
        self.until_within(LIMIT, what, holds).await;
    }

    /// Also: nothing is written any more.
    pub async fn until_within(&self, limit: Duration, what: &str, holds: impl Fn(&Recorder) -> bool) {
        until(limit, &self.recorder, &self.faults, what, holds).await;
    }

    /// From now on a client writes, with a new connection every second.
    pub fn write(&mut self) {
        self.oracles.write();
    }

    /// Of the operator that runs.
    pub fn metrics(&self) -> Metrics {
        self.operator.as_ref().expect("it runs").metrics.clone()
    }

    pub async fn end_operator(&mut self) {
        drop(self.operator.take());
        let leases: Api<Lease> = self.world.all(LEASE_NAMESPACE);
        leases.delete(lease::NAME, &DeleteParams::default()).await.expect("the operator held it");
    }

    pub fn start_operator(&mut self) {
        self.operator = Some(Operator::start(&self.world.kubeconfig, &self.faults));
    }

    /// Until everything is gone.
    pub async fn delete(&self) {
        self.clusters.delete(CLUSTER, &DeleteParams::default()).await.expect("it is there");
        self.until("deleted", |it| Until::Gone.holds(it)).await;
    }

    pub async fn end(self) {
        if let Some(gap) = self.oracles.longest_gap() {
            println!("the longest time without a write: {:.3} s", gap.as_secs_f64());
        }
        let verdict = self.oracles.verdict();
        drop(self.operator);
        clean_up(self.world, &self.namespace).await;
        verdict.unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}
