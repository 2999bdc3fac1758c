//! One cluster's worker: it observes, sends and sleeps as [`Round`] says.

use std::sync::Arc;
use std::time::Instant;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::decide::Goal;
use etcd_operator_core::desired::{Desired, not_rolled_out};
use etcd_operator_core::intent::Intent;
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::Objects;
use etcd_operator_core::plan::{Action, Plan, Terms};
use etcd_operator_core::round::{Clock, Ended, Freshness, Next, Outcome, Round, SideWrite};
use etcd_operator_core::status::{Basis, Trouble, next_heartbeat};
use etcd_operator_core::validate::{Problem, validate};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::Notify;

use super::ask::Connections;
use super::execute::Hands;
use super::failure::Failure;
use super::look::Look;
use super::objects::{cached, live, versions};
use super::report::Reporter;
use super::surroundings::{Surroundings, peer_service};
use super::vigil::Vigil;
use crate::caches::{Caches, Key};
use crate::reach::Reach;
use crate::supervisor::PlantedPanic;
use crate::telemetry;

/// What all workers share.
pub struct Context {
    pub client: kube::Client,
    pub caches: Caches,
    pub reach: Reach,
    /// The image that holds the agent: the operator's own.
    pub agent_image: String,
    /// The DNS domain of clusters that have not been created yet.
    pub domain: String,
    /// Who we are, for events.
    pub identity: String,
    pub planted_panic: PlantedPanic,
}

pub struct Worker {
    key: Key,
    context: Arc<Context>,
    wake: Arc<Notify>,
    connections: Connections,
    vigil: Vigil,
    reporter: Reporter,
    round: Round,
}

type Spec<'a> = Result<&'a Intent, &'a [Problem]>;

impl Worker {
    pub fn new(key: Key, context: Arc<Context>, wake: Arc<Notify>) -> Self {
        Self {
            reporter: Reporter::new(&context),
            vigil: Vigil::new(Arc::clone(&wake)),
            key,
            context,
            wake,
            connections: Connections::default(),
            round: Round::default(),
        }
    }

    /// Until the cluster is gone.
    pub async fn run(mut self) {
        while let Some(cluster) = self.cluster() {
            self.context.planted_panic.strike(&self.key);
            let ended = self.turn(cluster).await.unwrap_or_else(|failure| self.stuck(&failure));
            let Some(pause) = self.round.rest(&ended, Clock::at(Timestamp::now())) else { continue };
            // A failure is not made better by looking more often.
            tokio::time::sleep(pause.at_least).await;
            let _ = tokio::time::timeout(pause.at_most, self.wake.notified()).await;
        }
    }

    fn object(&self) -> String {
        format!("EtcdCluster {}/{}", self.key.namespace, self.key.name)
    }

    /// The objects could not be read, or what was read is outdated.
    fn stuck(&mut self, failure: &Failure) -> Ended {
        match failure.outcome() {
            Outcome::NotDone(trouble) => {
                self.held_up(trouble);
                Ended::Stuck
            }
            Outcome::Done | Outcome::Overtaken => {
                self.round.overtaken();
                Ended::Overtaken
            }
        }
    }

    fn held_up(&mut self, trouble: Trouble) {
        let cause = trouble.cause();
        match (trouble.is_wait(), self.round.hold_up(trouble)) {
            (false, true) => tracing::warn!(object = self.object(), error = cause, "step failed, retrying"),
            (true, true) => tracing::debug!(object = self.object(), reason = cause, "step waits"),
            (_, false) => {}
        }
    }

    async fn turn(&mut self, cluster: Arc<EtcdCluster>) -> Result<Ended, Failure> {
        let names = Names::of(&cluster, &self.context.domain);
        let Context { client, caches, .. } = &*self.context;
        let freshness = self.round.begin();
        let objects = match freshness {
            Freshness::Cached => cached(caches, cluster, &names),
            Freshness::Live => {
                let what = || "read the cluster's objects".to_owned();
                let read = live(client, caches, cluster.metadata.uid.as_deref(), &names).await;
                let read = read.map_err(|source| Failure::Kubernetes { what: what(), source })?;
                let Some(objects) = read else { return Ok(Ended::Superseded) };
                objects
            }
        };
        let checked = validate(&objects.cluster);
        self.consider(objects, freshness, &names, checked.as_ref().map_err(Vec::as_slice)).await
    }

    async fn consider(
        &mut self,
        objects: Objects,
        freshness: Freshness,
        names: &Names,
        spec: Spec<'_>,
    ) -> Result<Ended, Failure> {
        let context = Arc::clone(&self.context);
        let goal =
            spec.map_or_else(|_| Goal::in_effect(&objects.cluster.spec, objects.replicas()), Goal::from);
        let (connections, memory) = (&mut self.connections, &mut self.round.memory);
        let mut look = Look::at(objects, &goal, names, &context, connections, memory).await;
        telemetry::log_observation(&self.object(), &goal, &look.observed);
        let before = versions(&look.objects, &context.caches, names);
        let plan = match self.round.consider(&goal, &look.observed, &before, freshness) {
            Next::Unchanged => return Ok(Ended::Idle(Plan::default(), self.vigil.keep(&look))),
            Next::Confirm => return Ok(Ended::Moved),
            Next::Proceed(plan) => plan,
        };
        let desired = spec.ok().map(|intent| Desired { intent, names, agent_image: &context.agent_image });
        let reported = self.round.writes.failed();
        look.objects.cluster = self.report(&look, &goal, spec, names, &plan, desired.as_ref()).await?;
        if let Some(desired) = desired.as_ref().filter(|_| !goal.paused && !look.observed.cluster.deleting) {
            let Context { client, caches, .. } = &*context;
            let surroundings = Surroundings { client, caches, cluster: &look.objects.cluster, desired };
            surroundings.keep(&look.observed, &mut self.round.writes).await;
        }
        let learns_by = self.vigil.keep(&look);
        look.tell_agents(&plan, &context.reach, &mut self.round.writes).await;
        if plan.actions.is_empty() {
            let versions = versions(&look.objects, &context.caches, names);
            let settled = (&look.observed, &versions, next_heartbeat(&look.objects.cluster));
            return Ok(self.round.idle(plan, learns_by, &reported, settled));
        }
        Ok(self.act(&plan, &look, names, desired.as_ref()).await)
    }

    /// The EtcdCluster as it is afterwards. A status that cannot be written holds nothing else up; one that was overtaken
    /// means that what was observed is outdated.
    async fn report(
        &mut self,
        look: &Look,
        goal: &Goal,
        spec: Spec<'_>,
        names: &Names,
        plan: &Plan,
        desired: Option<&Desired<'_>>,
    ) -> Result<Arc<EtcdCluster>, Failure> {
        let cluster = &look.objects.cluster;
        if !self.round.writes.is_due(&SideWrite::Status, Timestamp::now()) {
            return Ok(Arc::clone(cluster));
        }
        let set = look.objects.set.as_deref().zip(desired);
        let differing =
            set.map(|(set, desired)| not_rolled_out(set, &desired.stateful_set(look.observed.replicas())));
        let basis = Basis {
            goal,
            spec,
            names,
            seen: &look.observed,
            plan,
            trouble: self.round.trouble(),
            failed_writes: &self.round.writes.failed(),
            not_rolled_out: &differing.unwrap_or_default(),
        };
        let (written, result) = match self.reporter.report(cluster, &basis).await {
            Ok(written) => (written, Ok(())),
            Err(Failure::Overtaken) => return Err(Failure::Overtaken),
            Err(failure) => (Arc::clone(cluster), Err(failure)),
        };
        super::record(&mut self.round.writes, SideWrite::Status, result);
        Ok(written)
    }

    /// As many steps as one observation allows.
    async fn act(&mut self, plan: &Plan, look: &Look, names: &Names, desired: Option<&Desired<'_>>) -> Ended {
        for action in &plan.actions {
            if let Some(trouble) = self.round.obstacle(action, &look.observed, &peer_service(names)) {
                self.held_up(trouble);
                return Ended::Stuck;
            }
            let begun = Instant::now();
            let context = Arc::clone(&self.context);
            let hands = Hands { client: &context.client, names, desired, look, round: &self.round };
            match hands.carry_out(action).await.map_or_else(|failure| failure.outcome(), |()| Outcome::Done) {
                Outcome::NotDone(trouble) => {
                    self.held_up(trouble);
                    return Ended::Stuck;
                }
                outcome @ (Outcome::Done | Outcome::Overtaken) => {
                    self.note(action, &outcome, look, names, begun);
                    if !self.round.stepped(action, outcome) {
                        break;
                    }
                }
            }
        }
        Ended::Moved
    }

    fn note(&mut self, action: &Action, outcome: &Outcome, look: &Look, names: &Names, begun: Instant) {
        if *outcome != Outcome::Done {
            tracing::debug!(%action, "object changed in the meantime");
            return;
        }
        self.reporter.did(action, look, names);
        if let Action::RemoveMember { member, .. } = action
            && let Some(pod) = look.pod_of(*member)
        {
            self.round.memory.expect_silence(pod);
        }
        let milliseconds = begun.elapsed().as_millis() as u64;
        let action = Terms::Names { names, seen: &look.observed }.action(action);
        tracing::info!(object = self.object(), action, milliseconds, "step done");
    }

    /// What we wrote ourselves is newer than what the cache has seen.
    fn cluster(&self) -> Option<Arc<EtcdCluster>> {
        let key = ObjectRef::new(&self.key.name).within(&self.key.namespace);
        let cached = self.context.caches.clusters.get(&key)?;
        Some(self.reporter.newer_than(&cached).unwrap_or(cached))
    }
}
