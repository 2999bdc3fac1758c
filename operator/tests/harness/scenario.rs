//! A scenario, and one run of it with the faults that belong to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_operator::lease;
use etcd_operator_core::api::EtcdCluster;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::faults::{Effect, Faults};
use crate::inside;
use crate::operator::{LEASE_NAMESPACE, Operator};
use crate::oracles::{CONTRADICTION, CONTRADICTION_DISTURBED, Oracles};
use crate::recorder::{Changes, Objects, Recorder};
use crate::steps::{Cluster, Step, Until};
use crate::world::{CLUSTER, World};

/// Far more than any step takes, with a fault in it, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(45);
/// So long nothing is written any more at the end of a step.
const QUIET: Duration = Duration::from_millis(500);
/// Without a change that the undisturbed run had.
const QUIET_INCOMPLETE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// Waits until this holds and nothing is written any more.
pub async fn until(
    limit: Duration,
    recorder: &Recorder,
    faults: &Faults,
    what: &str,
    holds: impl Fn(&Recorder) -> bool,
) {
    let begun = Instant::now();
    while !holds(recorder) || recorder.quiet_for().min(faults.quiet_for()) < QUIET {
        let status = || recorder.object("EtcdCluster", CLUSTER).unwrap_or_default()["status"].clone();
        assert!(begun.elapsed() < limit, "{what}: not in effect\n{:#}", status());
        tokio::time::sleep(POLL).await;
    }
}

/// What happens to a cluster, one step after the other.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub steps: &'static [Step],
    /// So many steps only lead to where the scenario begins: no fault happens in them.
    pub setup: usize,
    /// From the end of the first step on, clients can write all the time.
    pub keeps_serving: bool,
    pub version: &'static str,
    pub on_delete: &'static str,
    /// `spec.security.tls`.
    pub tls: &'static str,
    /// How long each step after the setup may take.
    pub limit: Duration,
}

impl Scenario {
    pub const fn new(name: &'static str, steps: &'static [Step]) -> Self {
        let (setup, keeps_serving, version) = (0, false, inside::TWO_LEARNERS);
        let (on_delete, tls, limit) = ("Retain", "{}", LIMIT);
        Self { name, steps, setup, keeps_serving, version, on_delete, tls, limit }
    }
}

/// What a run led to.
pub struct Ran {
    /// After each step.
    pub ends: Vec<Objects>,
    /// Those of the setup are left out, as of the effects.
    pub changes: Changes,
    pub effects: Vec<Effect>,
    /// How many faults happened.
    pub faults: usize,
    /// Writes whose objects were changed right before, and what the API server answered.
    pub overtaken: Vec<(String, u16)>,
    /// Of each step.
    pub seconds: Vec<f64>,
}

struct Run<'a> {
    cluster: Cluster<'a>,
    faults: &'a Faults,
    recorder: &'a Recorder,
    oracles: Oracles,
    operator: Option<Operator>,
}

impl Scenario {
    /// Each step ends as in the reference. Without one it ends when the cluster is as it should be.
    pub async fn run(
        &self,
        world: &World,
        make_faults: impl FnOnce(&str) -> Faults,
        reference: Option<&Ran>,
    ) -> Result<Ran, String> {
        let namespace = world.namespace().await;
        let faults = make_faults(&namespace);
        let recorder = Arc::new(Recorder::start(&world.admin, &namespace).await);
        let contradiction = if reference.is_some() { CONTRADICTION_DISTURBED } else { CONTRADICTION };
        let oracles = Oracles::start(&namespace, &recorder, contradiction);
        let operator = Some(Operator::start(&world.kubeconfig, &faults));
        let cluster = Cluster::new(world, &namespace, &recorder);
        let mut run = Run { cluster, faults: &faults, recorder: &recorder, oracles, operator };
        let ran = run.steps(self, reference).await;
        let verdict = run.end().await;
        ran.and_then(|ran| verdict.map(|()| ran))
    }
}

impl Run<'_> {
    async fn steps(&mut self, scenario: &Scenario, reference: Option<&Ran>) -> Result<Ran, String> {
        let (mut ends, mut seconds) = (Vec::new(), Vec::new());
        for (index, &step) in scenario.steps.iter().enumerate() {
            if index == scenario.setup {
                self.faults.begin();
                self.recorder.begin();
            }
            let begun = Instant::now();
            let until = self.cluster.take(step, scenario).await;
            let expected = reference.map(|reference| &reference.ends[index]);
            let limit = if index < scenario.setup { LIMIT } else { scenario.limit };
            let is_last = index + 1 == scenario.steps.len();
            let changes = reference.map(|reference| &reference.changes).filter(|_| is_last);
            let settled = self.settled(&until, limit, expected, changes).await;
            ends.push(settled.map_err(|why| format!("{step:?}: {why}"))?);
            seconds.push(begun.elapsed().saturating_sub(QUIET).as_secs_f64());
            if index == 0 && scenario.keeps_serving {
                self.oracles.write();
            }
        }
        let unconfirmed =
            self.faults.effects().into_iter().filter(|effect| !effect.confirmed).collect::<Vec<_>>();
        if !unconfirmed.is_empty() {
            return Err(format!("these did not follow a live read:\n{}", lines(&unconfirmed)));
        }
        Ok(Ran {
            ends,
            changes: self.recorder.changes(),
            effects: self.faults.effects(),
            faults: self.faults.happened(),
            overtaken: self.faults.overtaken(),
            seconds,
        })
    }

    /// Waits, and starts the operator again whenever a fault ended it.
    async fn settled(
        &mut self,
        until: &Until,
        limit: Duration,
        expected: Option<&Objects>,
        changes: Option<&Changes>,
    ) -> Result<Objects, String> {
        let begun = Instant::now();
        loop {
            if self.operator.as_ref().is_some_and(Operator::has_ended) {
                self.start_again().await;
            }
            // An operator that starts again can take a while before it does what is left.
            let all_done = changes.is_none_or(|changes| *changes == self.recorder.changes());
            let rest = if all_done { QUIET } else { QUIET_INCOMPLETE };
            let quiet = self.recorder.quiet_for().min(self.faults.quiet_for()) >= rest;
            if quiet && until.holds(self.recorder) {
                let objects = self.recorder.comparable(self.cluster.namespace);
                if expected.is_none_or(|expected| *expected == objects) {
                    return Ok(objects);
                }
            }
            if begun.elapsed() > limit {
                let objects = self.recorder.comparable(self.cluster.namespace);
                return Err(format!(
                    "not settled after {} s\n{}\neffects:\n{}",
                    limit.as_secs(),
                    expected.map_or_else(
                        || format!(
                            "{:#}",
                            self.recorder.object("EtcdCluster", CLUSTER).unwrap_or_default()["status"]
                        ),
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
        let world = self.cluster.world;
        let leases: Api<Lease> = world.all(LEASE_NAMESPACE);
        let deleted = leases.delete(lease::NAME, &DeleteParams::default()).await;
        assert!(deleted.is_ok() || leases.get_opt(lease::NAME).await.is_ok_and(|it| it.is_none()));
        self.operator = Some(Operator::start(&world.kubeconfig, self.faults));
    }

    async fn end(self) -> Result<(), String> {
        let verdict = self.oracles.verdict();
        drop(self.operator);
        clean_up(self.cluster.world, self.cluster.namespace).await;
        verdict
    }
}

/// When no operator runs any more. Leaves nothing that runs, without waiting for it.
pub async fn clean_up(world: &World, namespace: &str) {
    let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    let leases: Api<Lease> = world.all(LEASE_NAMESPACE);
    let clusters: Api<EtcdCluster> = world.all(namespace);
    let sets: Api<StatefulSet> = world.all(namespace);
    let pods: Api<Pod> = world.all(namespace);
    let claims: Api<PersistentVolumeClaim> = world.all(namespace);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // What is not there need not be deleted.
    let _ = leases.delete(lease::NAME, &DeleteParams::default()).await;
    let _ = clusters.patch(CLUSTER, &PatchParams::default(), &free).await;
    let _ = clusters.delete(CLUSTER, &DeleteParams::default()).await;
    let _ = sets.delete(CLUSTER, &DeleteParams::background()).await;
    let _ = pods.delete_collection(&now, &all).await;
    let _ = claims.delete_collection(&DeleteParams::default(), &all).await;
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
