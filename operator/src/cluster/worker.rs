//! One cluster's worker: observe, decide, report, act, and sleep until something happens.

use std::sync::Arc;
use std::time::Instant;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::decide::{Goal, decide};
use etcd_operator_core::desired::{Desired, not_rolled_out};
use etcd_operator_core::intent::Intent;
use etcd_operator_core::names::Names;
use etcd_operator_core::plan::{Action, Plan, Terms};
use etcd_operator_core::status::{Round, Trouble, next_heartbeat};
use etcd_operator_core::validate::{Problem, validate};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::Notify;

use super::ask::Connections;
use super::execute::Hands;
use super::failure::Failure;
use super::look::{Look, Memory, SilentSince, replicas, watch_silence};
use super::objects::Objects;
use super::pace::{LearnsBy, Pace, Pause};
use super::publications::Publications;
use super::report::Reporter;
use super::settled::{Settled, Versions};
use super::side_writes::{SideWrite, SideWrites};
use super::surroundings::{Surroundings, peer_service};
use super::vigil::Vigil;
use crate::caches::{Caches, Key};
use crate::reach::Reach;
use crate::supervisor::PlantedPanic;

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
    publications: Publications,
    vigil: Vigil,
    silent_since: SilentSince,
    pods_missing_since: Option<Instant>,
    side_writes: SideWrites,
    reporter: Reporter,
    pace: Pace,
    /// Whether the caches may not have seen yet what we did: then the API server itself is asked.
    caches_lag: bool,
    trouble: Option<Trouble>,
    /// How often in a row etcd has refused the next step.
    refusals: usize,
    settled: Option<Settled>,
}

/// What a round ends with.
enum Outcome {
    /// The cluster is gone.
    Gone,
    /// Something was done, or somebody else was faster: look again at once.
    Again,
    /// The cache does not know yet that the cluster went, or that another came under its name.
    Superseded,
    /// Nothing to do until something happens.
    Idle(Plan, LearnsBy),
}

impl Worker {
    pub fn new(key: Key, context: Arc<Context>, wake: Arc<Notify>) -> Self {
        Self {
            reporter: Reporter::new(&context),
            vigil: Vigil::new(Arc::clone(&wake)),
            key,
            context,
            wake,
            connections: Connections::default(),
            publications: Publications::default(),
            silent_since: SilentSince::default(),
            pods_missing_since: None,
            side_writes: SideWrites::default(),
            pace: Pace::default(),
            caches_lag: false,
            trouble: None,
            refusals: 0,
            settled: None,
        }
    }

    /// Until the cluster is gone.
    pub async fn run(mut self) {
        loop {
            let outcome = self.round().await;
            let pause = match outcome {
                Ok(Outcome::Gone) => return,
                Ok(Outcome::Again) => {
                    self.pace.progress();
                    continue;
                }
                Ok(Outcome::Superseded) => self.pace.waiting(),
                Ok(Outcome::Idle(plan, learns_by)) => {
                    let (pause, now) = (self.pace.after(&plan, learns_by), Instant::now());
                    let retry = self.side_writes.next_retry(now);
                    pause.or_sooner(self.publications.next_known(now)).or_sooner(retry)
                }
                Err(Failure::Overtaken) => {
                    self.caches_lag = true;
                    continue;
                }
                Err(failure) => self.pace_after(failure.trouble()),
            };
            // A failure is not made better by looking more often.
            tokio::time::sleep(pause.at_least).await;
            let _ = tokio::time::timeout(pause.at_most, self.wake.notified()).await;
        }
    }

    /// What was not done may not have been seen by the caches, either.
    fn pace_after(&mut self, trouble: Trouble) -> Pause {
        let Key { namespace, name } = &self.key;
        let object = || format!("EtcdCluster {namespace}/{name}");
        match &trouble {
            _ if self.trouble.as_ref() == Some(&trouble) => {}
            Trouble::Failed(error) => {
                tracing::warn!(object = object(), error, "step failed, retrying");
            }
            Trouble::EtcdNotYet(_) | Trouble::LeftBehind(_) | Trouble::NamespaceEnding => {
                tracing::debug!(object = object(), reason = trouble.words(), "step waits");
            }
        }
        if matches!(trouble, Trouble::EtcdNotYet(_)) {
            self.refusals = self.refusals.saturating_add(1);
        }
        let pause = match &trouble {
            Trouble::EtcdNotYet(_) | Trouble::LeftBehind(_) => self.pace.waiting(),
            // That the cluster goes with its namespace wakes us.
            Trouble::Failed(_) | Trouble::NamespaceEnding => self.pace.failure(),
        };
        self.trouble = Some(trouble);
        self.caches_lag = true;
        pause
    }

    async fn round(&mut self) -> Result<Outcome, Failure> {
        self.context.planted_panic.strike(&self.key);
        let Some(cluster) = self.cluster() else { return Ok(Outcome::Gone) };
        let names = Names::of(&cluster, &self.context.domain);
        let live = std::mem::take(&mut self.caches_lag);
        let objects = if live {
            let Context { client, caches, .. } = &*self.context;
            let live = Objects::live(client, caches, cluster.metadata.uid.as_deref(), &names).await;
            let live = live.map_err(|source| Failure::Kubernetes {
                what: "read the cluster's objects".into(),
                source,
            })?;
            let Some(objects) = live else { return Ok(Outcome::Superseded) };
            objects
        } else {
            Objects::cached(&self.context.caches, cluster, &names)
        };
        let checked = validate(&objects.cluster);
        self.decide_and_act(objects, live, &names, checked.as_ref().map_err(Vec::as_slice)).await
    }

    async fn decide_and_act(
        &mut self,
        objects: Objects,
        live: bool,
        names: &Names,
        spec: Result<&Intent, &[Problem]>,
    ) -> Result<Outcome, Failure> {
        let context = Arc::clone(&self.context);
        let desired = spec.ok().map(|intent| Desired { intent, names, agent_image: &context.agent_image });
        let goal = spec.map_or_else(
            |_| Goal::in_effect(&objects.cluster.spec, objects.set.as_deref().map_or(0, replicas)),
            Goal::from,
        );
        let mut look = self.look(objects, &goal, names).await;
        watch_silence(&mut self.silent_since, &look.observed);
        let versions = |look: &Look| Versions::of(&look.objects, &context.caches, names);
        if self.settled.as_ref().is_some_and(|it| it.still_holds(&look.observed, &versions(&look))) {
            return Ok(Outcome::Idle(Plan::default(), self.vigil.keep(&look)));
        }
        self.settled = None;
        let plan = decide(&goal, &look.observed);
        // What could do harm is decided a second time, on what no cache answers.
        if !live && plan.actions.iter().any(Action::is_decided_twice) {
            self.caches_lag = true;
            return Ok(Outcome::Again);
        }
        let (trouble, reported) = (self.trouble.clone(), self.side_writes.failed());
        let set = look.objects.set.as_deref().zip(desired.as_ref());
        let differing =
            set.map(|(set, desired)| not_rolled_out(set, &desired.stateful_set(look.observed.replicas())));
        let round = Round {
            goal: &goal,
            spec,
            names,
            seen: &look.observed,
            plan: &plan,
            trouble: trouble.as_ref(),
            failed_writes: &reported,
            not_rolled_out: &differing.unwrap_or_default(),
        };
        look.objects.cluster = self.report(&look.objects.cluster, &round).await?;
        if let Some(desired) = desired.as_ref().filter(|_| !goal.paused && !look.observed.cluster.deleting) {
            let Context { client, caches, .. } = &*context;
            let surroundings = Surroundings { client, caches, cluster: &look.objects.cluster, desired };
            surroundings.keep(&look.observed, &mut self.side_writes).await;
        }
        let learns_by = self.vigil.keep(&look);
        look.tell_agents(&plan, &context.reach, &mut self.side_writes).await;
        if plan.actions.is_empty() {
            // The status has just reported it, and nothing newer.
            if self.trouble.take().is_some() || self.side_writes.failed() != reported {
                return Ok(Outcome::Again);
            }
            let until = next_heartbeat(&look.objects.cluster);
            let all_written = self.side_writes.next_retry(Instant::now()).is_none();
            self.settled = (plan.is_settled() && all_written)
                .then(|| Settled::of(&look.observed, versions(&look), until));
            return Ok(Outcome::Idle(plan, learns_by));
        }
        let desired = desired.as_ref();
        let hands = Hands { client: &context.client, names, desired, look: &look, refusals: self.refusals };
        self.act(&plan, &hands).await?;
        (self.trouble, self.refusals) = (None, 0);
        self.caches_lag = true;
        Ok(Outcome::Again)
    }

    /// The object as it is afterwards. A status that cannot be written holds nothing else up; one that was overtaken
    /// means that what was observed is outdated.
    async fn report(
        &mut self,
        cluster: &Arc<EtcdCluster>,
        round: &Round<'_>,
    ) -> Result<Arc<EtcdCluster>, Failure> {
        if !self.side_writes.is_due(&SideWrite::Status, Instant::now()) {
            return Ok(Arc::clone(cluster));
        }
        let (written, result) = match self.reporter.report(cluster, round).await {
            Ok(written) => (written, Ok(())),
            Err(Failure::Overtaken) => return Err(Failure::Overtaken),
            Err(failure) => (Arc::clone(cluster), Err(failure)),
        };
        self.side_writes.record(SideWrite::Status, result, Instant::now());
        Ok(written)
    }

    /// Up to the first action that needs a live observation: the world is observed anew after it.
    async fn act(&mut self, plan: &Plan, hands: &Hands<'_>) -> Result<(), Failure> {
        for action in &plan.actions {
            if action.needs_peer_service(&hands.look.observed)
                && let Some(trouble) = self.side_writes.trouble(&peer_service(hands.names))
            {
                return Err(Failure::NoPeerService { trouble: trouble.clone() });
            }
            let done = self.carry_out(hands, action).await?;
            // The EtcdCluster has changed, so what was read of it is no evidence any more.
            let spent = matches!(action, Action::AddFinalizer | Action::RecordFormed { .. });
            if !done || spent || action.is_decided_twice() {
                break;
            }
        }
        Ok(())
    }

    async fn look(&mut self, objects: Objects, goal: &Goal, names: &Names) -> Look {
        let context = Arc::clone(&self.context);
        let memory = Memory {
            connections: &mut self.connections,
            publications: &mut self.publications,
            silent_since: &self.silent_since,
            pods_missing_since: &mut self.pods_missing_since,
        };
        Look::at(objects, goal, names, &context, memory).await
    }

    /// Whether it was done; if not, somebody was faster.
    async fn carry_out(&mut self, hands: &Hands<'_>, action: &Action) -> Result<bool, Failure> {
        let begun = Instant::now();
        match hands.carry_out(action).await {
            Ok(()) => {
                self.reporter.did(action, hands.look, hands.names);
                if let Action::RemoveMember { member, .. } = action
                    && let Some(pod) = hands.look.pod_of(*member)
                {
                    self.connections.expect_silence(pod);
                }
                let Key { namespace, name } = &self.key;
                let milliseconds = begun.elapsed().as_millis() as u64;
                let terms = Terms::Names { names: hands.names, seen: &hands.look.observed };
                let action = terms.action(action);
                tracing::info!(
                    object = format!("EtcdCluster {namespace}/{name}"),
                    action,
                    milliseconds,
                    "step done"
                );
                Ok(true)
            }
            Err(Failure::Overtaken) => {
                tracing::debug!(%action, "object changed in the meantime");
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    /// What we wrote ourselves is newer than what the cache has seen.
    fn cluster(&self) -> Option<Arc<EtcdCluster>> {
        let key = ObjectRef::new(&self.key.name).within(&self.key.namespace);
        let cached = self.context.caches.clusters.get(&key)?;
        Some(self.reporter.newer_than(&cached).unwrap_or(cached))
    }
}
