//! A scenario, and one run of it with the faults that belong to it.

use std::time::{Duration, Instant};

use etcd_operator::lease;
use etcd_operator_core::api::EtcdCluster;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::faults::{Effect, Faults};
use crate::inside;
use crate::operator::{LEASE_NAMESPACE, Operator};
use crate::recorder::{Changes, Objects, Recorder};
use crate::world::{CLUSTER, World};

/// Far more than any step takes, with a fault in it, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(45);
/// So long nothing is written any more, statuses aside.
const QUIET: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(20);

/// The sizes that a cluster is given one after the other: it is created with the first.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub sizes: &'static [u8],
    /// How long each may take.
    pub limit: Duration,
}

/// What a run led to.
pub struct Ran {
    /// After each step.
    pub ends: Vec<Objects>,
    pub changes: Changes,
    pub effects: Vec<Effect>,
    /// How many faults happened.
    pub faults: usize,
    /// Of each step.
    pub seconds: Vec<f64>,
}

struct Run<'a> {
    world: &'a World,
    namespace: &'a str,
    faults: &'a Faults,
    recorder: Recorder,
    operator: Option<Operator>,
}

impl Scenario {
    /// Each step ends as in the reference. Without one it ends when the cluster is ready.
    pub async fn run(
        &self,
        world: &World,
        make_faults: impl FnOnce(&str) -> Faults,
        reference: Option<&Ran>,
    ) -> Result<Ran, String> {
        let namespace = world.namespace().await;
        let faults = make_faults(&namespace);
        let recorder = Recorder::start(&world.admin, &namespace);
        let operator = Some(Operator::start(&world.kubeconfig, &faults));
        let mut run = Run { world, namespace: &namespace, faults: &faults, recorder, operator };
        let ran = run.steps(self, reference).await;
        run.end().await;
        ran
    }
}

impl Run<'_> {
    async fn steps(&mut self, scenario: &Scenario, reference: Option<&Ran>) -> Result<Ran, String> {
        let (mut ends, mut seconds) = (Vec::new(), Vec::new());
        for (index, &size) in scenario.sizes.iter().enumerate() {
            let begun = Instant::now();
            self.edit(index == 0, size).await;
            let expected = reference.map(|reference| &reference.ends[index]);
            let settled = self.settled(size, scenario.limit, expected).await;
            ends.push(settled.map_err(|why| format!("size {size}: {why}"))?);
            seconds.push(begun.elapsed().saturating_sub(QUIET).as_secs_f64());
        }
        let (effects, faults) = (self.faults.effects(), self.faults.happened());
        Ok(Ran { ends, changes: self.recorder.changes(), effects, faults, seconds })
    }

    async fn edit(&self, create: bool, size: u8) {
        let clusters: Api<EtcdCluster> = self.world.all(self.namespace);
        if create {
            let spec = json!({"size": size, "version": inside::ETCD});
            let cluster = EtcdCluster::new(CLUSTER, serde_json::from_value(spec).expect("a spec"));
            clusters.create(&PostParams::default(), &cluster).await.expect("it is taken");
        } else {
            let change = Patch::Merge(json!({"spec": {"size": size}}));
            clusters.patch(CLUSTER, &PatchParams::default(), &change).await.expect("it is taken");
        }
    }

    /// Waits, and starts the operator again whenever a fault ended it.
    async fn settled(
        &mut self,
        size: u8,
        limit: Duration,
        expected: Option<&Objects>,
    ) -> Result<Objects, String> {
        let begun = Instant::now();
        loop {
            if self.operator.as_ref().is_some_and(Operator::has_ended) {
                self.start_again().await;
            }
            let cluster = self.recorder.object("EtcdCluster", CLUSTER).unwrap_or_default();
            let quiet = self.recorder.quiet_for().min(self.faults.quiet_for()) >= QUIET;
            if quiet && is_settled(&cluster, size) {
                let objects = self.recorder.comparable(self.namespace);
                if expected.is_none_or(|expected| *expected == objects) {
                    return Ok(objects);
                }
            }
            if begun.elapsed() > limit {
                let objects = self.recorder.comparable(self.namespace);
                return Err(format!(
                    "not settled after {} s\n{}\neffects:\n{}",
                    limit.as_secs(),
                    expected.map_or_else(
                        || format!("{:#}", cluster["status"]),
                        |expected| difference(expected, &objects)
                    ),
                    lines(&self.faults.effects())
                ));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// As after a crash, except that nobody waits for the Lease to expire.
    async fn start_again(&mut self) {
        self.operator = None;
        let leases: Api<Lease> = self.world.all(LEASE_NAMESPACE);
        let deleted = leases.delete(lease::NAME, &DeleteParams::default()).await;
        assert!(deleted.is_ok() || leases.get_opt(lease::NAME).await.is_ok_and(|it| it.is_none()));
        self.operator = Some(Operator::start(&self.world.kubeconfig, self.faults));
    }

    /// Leaves nothing that runs, without waiting for it.
    async fn end(mut self) {
        self.operator = None;
        let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
        let leases: Api<Lease> = self.world.all(LEASE_NAMESPACE);
        let clusters: Api<EtcdCluster> = self.world.all(self.namespace);
        let sets: Api<StatefulSet> = self.world.all(self.namespace);
        let pods: Api<Pod> = self.world.all(self.namespace);
        let claims: Api<PersistentVolumeClaim> = self.world.all(self.namespace);
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        // What is not there need not be deleted.
        let _ = leases.delete(lease::NAME, &DeleteParams::default()).await;
        let _ = clusters.patch(CLUSTER, &PatchParams::default(), &free).await;
        let _ = clusters.delete(CLUSTER, &DeleteParams::default()).await;
        let _ = sets.delete(CLUSTER, &DeleteParams::background()).await;
        let _ = pods.delete_collection(&now, &all).await;
        let _ = claims.delete_collection(&DeleteParams::default(), &all).await;
    }
}

/// What users would wait for.
fn is_settled(cluster: &Value, size: u8) -> bool {
    let (status, generation) = (&cluster["status"], &cluster["metadata"]["generation"]);
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is =
        |type_: &str, value: &str| conditions.iter().any(|it| it["type"] == type_ && it["status"] == value);
    status["observedGeneration"] == *generation
        && status["readyReplicas"] == json!(size)
        && status["replicas"] == json!(size)
        && is("Ready", "True")
        && !["Reconciling", "Stalled", "WriteFailed"].iter().any(|type_| is(type_, "True"))
}

/// One effect a line.
pub fn lines(effects: &[Effect]) -> String {
    effects.iter().map(|effect| format!("  {effect}\n")).collect()
}

/// The objects that differ, as both are.
pub fn difference(expected: &Objects, found: &Objects) -> String {
    let names: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let mut text = String::new();
    for name in names.into_iter().filter(|name| expected.get(*name) != found.get(*name)) {
        let lines = |objects: &Objects| -> Vec<String> {
            let object = objects.get(name).map_or_else(|| "none".into(), |it| format!("{it:#}"));
            object.lines().map(str::to_owned).collect()
        };
        let (before, after) = (lines(expected), lines(found));
        text.push_str(&format!("{name}\n"));
        before.iter().filter(|it| !after.contains(it)).for_each(|it| text.push_str(&format!("  - {it}\n")));
        after.iter().filter(|it| !before.contains(it)).for_each(|it| text.push_str(&format!("  + {it}\n")));
    }
    text
}
