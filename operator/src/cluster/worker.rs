//! One cluster's worker: it observes, sends and sleeps as [`Round`] says.

use std::sync::Arc;
use std::time::Instant;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::decide::Goal;
use etcd_operator_core::desired::Desired;
use etcd_operator_core::form::Record;
use etcd_operator_core::intent::Intent;
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::Objects;
use etcd_operator_core::plan::{Action, Plan, Terms};
use etcd_operator_core::request::Target;
use etcd_operator_core::round::{
    Clock, Considered, Effect, Ended, Freshness, Newest, Next, Outcome, Round, SideWrite, Version, Work,
};
use etcd_operator_core::status::{Trouble, next_heartbeat};
use etcd_operator_core::validate::{Problem, validate};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use serde::Deserialize;
use tokio::sync::Notify;

use super::ask::Connections;
use super::execute::Executor;
use super::member_watch::MemberWatch;
use super::objects::{cached, live};
use super::observation::Observation;
use super::report::Reporter;
use crate::caches::{Caches, Key};
use crate::reach::Reach;
use crate::supervisor::PlantedPanic;
use crate::telemetry::{chain, log_observation};

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
    newest: Newest<Arc<EtcdCluster>>,
    connections: Connections,
    member_watch: MemberWatch,
    reporter: Reporter,
    round: Round,
}

impl Worker {
    pub fn new(key: Key, context: Arc<Context>, wake: Arc<Notify>) -> Self {
        Self {
            reporter: Reporter::new(&context),
            member_watch: MemberWatch::new(Arc::clone(&wake)),
            key,
            context,
            wake,
            newest: Newest::default(),
            connections: Connections::default(),
            round: Round::default(),
        }
    }

    /// Until the cluster is gone.
    pub async fn run(mut self) {
        while let Some(cluster) = self.cluster() {
            self.context.planted_panic.strike(&self.key);
            let before = self.round.trouble().cloned();
            let ended = self.turn(cluster).await;
            self.log_trouble(before.as_ref());
            let Some(pause) = self.round.rest(&ended, Clock::at(Timestamp::now())) else { continue };
            // A failure is not made better by looking more often.
            tokio::time::sleep(pause.at_least).await;
            let _ = tokio::time::timeout(pause.at_most, self.wake.notified()).await;
        }
    }

    fn object(&self) -> String {
        format!("EtcdCluster {}/{}", self.key.namespace, self.key.name)
    }

    fn log_trouble(&self, before: Option<&Trouble>) {
        match self.round.trouble().filter(|trouble| before != Some(trouble)) {
            Some(wait) if wait.is_wait() => {
                tracing::debug!(object = self.object(), reason = wait.cause(), "step waits");
            }
            Some(failure) => {
                tracing::warn!(object = self.object(), error = failure.cause(), "step failed, retrying");
            }
            None => {}
        }
    }

    async fn turn(&mut self, cluster: Arc<EtcdCluster>) -> Ended {
        let names = Names::of(&cluster, &self.context.domain);
        let context = Arc::clone(&self.context);
        let Context { client, caches, .. } = &*context;
        let freshness = self.round.begin(Timestamp::now());
        let objects = match freshness {
            Freshness::Cached => cached(caches, cluster, &names),
            Freshness::Live => match live(client, caches, cluster.metadata.uid.as_deref(), &names).await {
                Ok(Some(objects)) => {
                    self.returned(Arc::clone(&objects.cluster));
                    objects
                }
                Ok(None) => return Ended::Superseded,
                Err(error) => {
                    let why = format!("cannot read the cluster's objects: {}", chain(&error));
                    self.round.hold_up(Trouble::Failed(why));
                    return Ended::Stuck;
                }
            },
        };
        let checked = validate(&objects.cluster);
        self.consider(objects, freshness, &names, checked.as_ref().map_err(Vec::as_slice)).await
    }

    async fn consider(
        &mut self,
        objects: Objects,
        freshness: Freshness,
        names: &Names,
        spec: Result<&Intent, &[Problem]>,
    ) -> Ended {
        let context = Arc::clone(&self.context);
        let goal =
            spec.map_or_else(|_| Goal::in_effect(&objects.cluster.spec, objects.replicas()), Goal::from);
        let (connections, memory) = (&mut self.connections, &mut self.round.memory);
        let mut observation = Observation::at(objects, &goal, names, &context, connections, memory).await;
        log_observation(&self.object(), &goal, &observation.seen);
        let plan =
            match self.round.consider(&goal, &observation.seen, &observation.objects.unseen(), freshness) {
                Next::Unchanged => return Ended::Idle(Plan::default(), self.member_watch.keep(&observation)),
                Next::Confirm => return Ended::Moved,
                Next::Proceed(plan) => plan,
            };
        let learns_by = self.member_watch.keep(&observation);
        let desired = spec.ok().map(|intent| Desired { intent, names, agent_image: &context.agent_image });
        let desired = desired.as_ref();
        let (objects, seen) = (&observation.objects, &observation.seen);
        let considered = Considered { goal: &goal, spec, names, desired, objects, seen, plan: &plan };
        let Work { beside, steps } = self.round.work(&considered);
        let record = objects.record.as_deref().and_then(Record::parse);
        let set = objects.set.as_deref();
        let target = Target { cluster: &objects.cluster, names, desired, set, record: record.as_ref() };
        let executor =
            Executor { client: &context.client, reach: &context.reach, target, observation: &observation };
        if let Some(ended) = self.send_beside(&beside, &executor).await {
            return ended;
        }
        if !plan.actions.is_empty() {
            return self.act(&steps, &goal, &executor).await;
        }
        observation.objects.cluster = self.at_least(observation.objects.cluster);
        let settled =
            (&observation.seen, &observation.objects.unseen(), next_heartbeat(&observation.objects.cluster));
        self.round.idle(plan, learns_by, settled)
    }

    /// Side by side: one that fails holds up nothing else.
    async fn send_beside(&mut self, effects: &[Effect], executor: &Executor<'_>) -> Option<Ended> {
        let sending = effects.iter().map(|effect| executor.send(&effect.request));
        let results = futures::future::join_all(sending).await;
        let (now, mut ended) = (Timestamp::now(), None);
        for (effect, result) in effects.iter().zip(results) {
            if effect.write == SideWrite::Status
                && let Some(written) = result.as_ref().ok().and_then(|it| EtcdCluster::deserialize(it).ok())
            {
                self.reporter.reported(executor.target.cluster, &written);
                self.returned(Arc::new(written));
            }
            let outcome = result.map_or_else(|outcome| outcome, |_| Outcome::Done);
            if outcome != Outcome::Done {
                tracing::debug!(write = effect.write.title(), ?outcome, "write not done");
            }
            ended = self.round.sent(effect, outcome, now).or(ended);
        }
        ended
    }

    /// As many steps as one observation allows.
    async fn act(&mut self, steps: &[Action], goal: &Goal, executor: &Executor<'_>) -> Ended {
        let (observation, names) = (executor.observation, executor.target.names);
        for action in steps {
            let begun = Instant::now();
            let outcome = match self.round.request(action, &observation.seen, names) {
                Err(trouble) => Outcome::NotDone(trouble),
                Ok(request) => match executor.send(&request).await {
                    Ok(response) => {
                        if action.changes_cluster()
                            && let Ok(written) = EtcdCluster::deserialize(&response)
                        {
                            self.returned(Arc::new(written));
                        }
                        Outcome::Done
                    }
                    Err(outcome) => outcome.of(&action.to_string()),
                },
            };
            let milliseconds = begun.elapsed().as_millis() as u64;
            self.note(action, &outcome, milliseconds, goal, observation, names);
            if let Some(ended) = self.round.stepped(action, outcome) {
                return ended;
            }
        }
        Ended::Moved
    }

    fn note(
        &mut self,
        action: &Action,
        outcome: &Outcome,
        milliseconds: u64,
        goal: &Goal,
        observation: &Observation,
        names: &Names,
    ) {
        match outcome {
            Outcome::Done => {}
            Outcome::Overtaken => return tracing::debug!(%action, "object changed in the meantime"),
            Outcome::Ambiguous(why) => return tracing::debug!(%action, error = why, "no response"),
            Outcome::NotDone(_) => return,
        }
        self.reporter.did(action, goal, observation, names);
        if let Action::RemoveMember { member, .. } = action
            && let Some(pod) = observation.pod_of(*member)
        {
            self.round.memory.expect_silence(pod);
        }
        let action = Terms::Names { names, seen: &observation.seen }.action(action);
        tracing::info!(object = self.object(), action, milliseconds, "step done");
    }

    /// As the cache has it, or newer.
    fn cluster(&mut self) -> Option<Arc<EtcdCluster>> {
        let key = ObjectRef::new(&self.key.name).within(&self.key.namespace);
        let cached = self.context.caches.clusters.get(&key)?;
        Some(self.at_least(cached))
    }

    fn at_least(&mut self, cluster: Arc<EtcdCluster>) -> Arc<EtcdCluster> {
        match Version::of(&cluster) {
            Some(version) => self.newest.at_least(version, cluster),
            None => cluster,
        }
    }

    /// For a read or a write.
    fn returned(&mut self, cluster: Arc<EtcdCluster>) {
        if let Some(version) = Version::of(&cluster) {
            self.newest.returned(version, cluster);
        }
    }
}
