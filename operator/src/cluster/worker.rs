//! One cluster's worker: it observes, sends and sleeps as [`Round`] says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::decide::Goal;
use etcd_operator_core::desired::{Desired, OperatorPods};
use etcd_operator_core::form::Record;
use etcd_operator_core::intent::Intent;
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::{Objects, node_addresses};
use etcd_operator_core::plan::{Action, Plan, Terms};
use etcd_operator_core::request::{Request, Target};
use etcd_operator_core::round::{
    Clock, Considered, Effect, Ended, Freshness, Newest, Next, Outcome, Pause, Round, SideWrite, Version,
    Work,
};
use etcd_operator_core::status::{Trouble, after_denied_read, next_heartbeat};
use etcd_operator_core::tls::{Switch, next_renewal};
use etcd_operator_core::validate::{Problem, validate};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;
use tracing::Instrument;

use super::ask::Connections;
use super::comparison::Comparing;
use super::execute::Executor;
use super::foreign_reader::ForeignReaders;
use super::member_watch::MemberWatch;
use super::objects::{cached, live};
use super::observation::Observation;
use super::report::Reporter;
use super::secrets::Secrets;
use crate::caches::{Caches, Key};
use crate::client::is_forbidden;
use crate::metrics::{Meter, Metrics};
use crate::reach::Reach;
use crate::supervisor::PlantedPanic;
use crate::telemetry::{self, chain, log_observation};
use crate::traces;

/// What all workers share.
pub struct Context {
    pub client: kube::Client,
    pub caches: Caches,
    pub reach: Reach,
    /// The image that holds the agent: the operator's own.
    pub agent_image: String,
    /// None outside of Kubernetes.
    pub operator: Option<OperatorPods>,
    /// The DNS domain of clusters that have not been created yet.
    pub domain: String,
    /// Who we are, for events.
    pub identity: String,
    pub metrics: Metrics,
    pub planted_panic: PlantedPanic,
}

pub struct Worker {
    key: Key,
    context: Arc<Context>,
    wake: Arc<Notify>,
    newest: Newest<Arc<EtcdCluster>>,
    connections: Connections,
    comparing: Comparing,
    secrets: Secrets,
    foreign: ForeignReaders,
    /// When the next certificate has to be renewed.
    renewal: Option<Timestamp>,
    member_watch: MemberWatch,
    reporter: Reporter,
    meter: Arc<Meter>,
    round: Round,
}

impl Worker {
    pub fn new(key: Key, context: Arc<Context>, wake: Arc<Notify>, meter: Arc<Meter>) -> Self {
        Self {
            reporter: Reporter::new(&context),
            member_watch: MemberWatch::new(Arc::clone(&wake)),
            comparing: Comparing::new(Arc::clone(&wake)),
            key,
            context,
            wake,
            newest: Newest::default(),
            connections: Connections::default(),
            secrets: Secrets::default(),
            foreign: ForeignReaders::default(),
            renewal: None,
            meter,
            round: Round::default(),
        }
    }

    /// Until the cluster is gone.
    pub async fn run(mut self) {
        while let Some(cluster) = self.cluster() {
            self.context.planted_panic.strike(&self.key);
            let before = self.round.trouble().cloned();
            let round = telemetry::round(&self.object());
            let ended = self.turn(cluster).instrument(round.clone()).await;
            round.in_scope(|| self.log_trouble(before.as_ref()));
            let cluster = self.cluster();
            self.meter.reported(cluster.as_ref().and_then(|it| it.status.as_ref()));
            let now = Timestamp::now();
            let Some(Pause { at_least, at_most }) = self.round.rest(&ended, Clock::at(now)) else { continue };
            // A failure is not made better by looking more often.
            tokio::time::sleep(at_least).await;
            let at_most = until(self.renewal, now).map_or(at_most, |renewal| renewal.min(at_most));
            let _ = tokio::time::timeout(at_most, self.wake.notified()).await;
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
        let freshness = self.round.begin(Timestamp::now());
        let objects = match self.read(cluster, freshness, &names).instrument(traces::read()).await {
            Ok(Some(objects)) => objects,
            Ok(None) => return Ended::Superseded,
            Err(error) => {
                self.report_denied(&error, &names).await;
                let why = format!("cannot read the cluster's objects: {}", chain(&error));
                self.round.hold_up(Trouble::Failed(why));
                return Ended::Stuck;
            }
        };
        let checked = validate(&objects.cluster).map(|intent| intent.towards(objects.target()));
        self.consider(objects, freshness, &names, checked).await
    }

    async fn read(
        &mut self,
        cluster: Arc<EtcdCluster>,
        freshness: Freshness,
        names: &Names,
    ) -> Result<Option<Objects>, kube::Error> {
        let context = Arc::clone(&self.context);
        let Context { client, caches, .. } = &*context;
        let objects = match freshness {
            Freshness::Cached => Some(cached(caches, cluster, names)),
            Freshness::Live => live(client, caches, cluster.metadata.uid.as_deref(), names).await?,
        };
        let Some(mut objects) = objects else { return Ok(None) };
        if freshness == Freshness::Live {
            self.returned(Arc::clone(&objects.cluster));
            // What was read are volumes that the members do not have any more.
            if Names::of(&objects.cluster, &context.domain).volumes != names.volumes {
                return Ok(None);
            }
        }
        self.secrets.add_to(&mut objects, client, names).await?;
        self.foreign.add_to(&mut objects, client, names).await;
        // No member restarts for what another operator has changed since.
        if freshness == Freshness::Live && objects.trusts_differ(&self.round.memory) {
            self.secrets.outdate(names);
            self.secrets.add_to(&mut objects, client, names).await?;
        }
        Ok(Some(objects))
    }

    /// Another failure might be over soon, and is in the log.
    async fn report_denied(&mut self, error: &kube::Error, names: &Names) {
        let Some(cluster) = self.cluster().filter(|_| is_forbidden(error)) else { return };
        let report = after_denied_read(&cluster, &chain(error).to_string(), Timestamp::now());
        let Some(report) = report else { return };
        match self.reporter.unobserved(&cluster, names, report).await {
            Ok(written) => written.into_iter().for_each(|it| self.returned(Arc::new(it))),
            Err(error) => tracing::debug!(error = %chain(&error), "status not written"),
        }
    }

    async fn consider(
        &mut self,
        objects: Objects,
        freshness: Freshness,
        names: &Names,
        checked: Result<Intent, Vec<Problem>>,
    ) -> Ended {
        let context = Arc::clone(&self.context);
        let nodes = node_addresses(&objects);
        let goal = Goal::of(checked.as_ref().map_err(Vec::as_slice), &objects, names, &nodes);
        let credentials = self.secrets.credentials(&objects, names);
        let (connections, memory) = ((&mut self.connections, &mut self.comparing), &mut self.round.memory);
        let observation = Observation::at(objects, &goal, names, &context, credentials, connections, memory);
        let mut observation = observation.instrument(traces::observation()).await;
        // What comes next on the way to another transport depends on what etcd lists.
        let tls = &observation.objects.cluster.spec.security.tls;
        let checked = checked.map(|intent| {
            let switch = Switch::of(tls, intent.asked.apply_tls, &observation.seen);
            intent.with_switch(switch)
        });
        let spec = checked.as_ref().map_err(Vec::as_slice);
        let goal = Goal::of(spec, &observation.objects, names, &nodes);
        self.renewal = next_renewal(&goal.certificates, &observation.seen);
        log_observation(&self.object(), &goal, &observation.seen);
        let unseen = observation.objects.unseen(&nodes);
        let plan = match self.round.consider(&goal, &observation.seen, &unseen, freshness) {
            Next::Unchanged => {
                self.meter.observed_the_same(observation.seen.now);
                return Ended::Idle(Plan::default(), self.member_watch.keep(&observation));
            }
            Next::Confirm => return Ended::Moved,
            Next::Proceed(plan) => plan,
        };
        self.meter.observed(&goal, &observation.seen, &plan);
        let learns_by = self.member_watch.keep(&observation);
        let (agent_image, operator) = (&context.agent_image, context.operator.as_ref());
        let desired = spec.ok().map(|intent| Desired { intent, names, agent_image, operator });
        let desired = desired.as_ref();
        let (objects, seen) = (&observation.objects, &observation.seen);
        let considered = Considered { goal: &goal, spec, names, desired, objects, seen, plan: &plan };
        let Work { beside, steps } = self.round.work(&considered);
        let record = objects.record.as_deref().and_then(Record::parse);
        let (cluster, set) = (&objects.cluster, objects.set.as_deref());
        let target = Target { cluster, names, desired, set, record: record.as_ref(), issued: None };
        let executor = Executor {
            client: &context.client,
            reach: &context.reach,
            target,
            certificates: &goal.certificates,
            observation: &observation,
        };
        if let Some(ended) = self.send_beside(&beside, &executor).await {
            return ended;
        }
        if !plan.actions.is_empty() {
            return self.act(&steps, &goal, &executor).await;
        }
        observation.objects.cluster = self.at_least(observation.objects.cluster);
        let Observation { objects, seen, .. } = &observation;
        let until = settled_until(next_heartbeat(&objects.cluster), self.renewal);
        self.round.idle(plan, learns_by, (seen, &objects.unseen(&nodes), until))
    }

    /// Side by side: one that fails holds up nothing else.
    async fn send_beside(&mut self, effects: &[Effect], executor: &Executor<'_>) -> Option<Ended> {
        let sending = effects.iter().map(|effect| async move {
            let begun = Instant::now();
            let result = executor.send(&effect.request, (&effect.request).into()).await;
            (result, begun.elapsed())
        });
        let results = futures::future::join_all(sending).await;
        let (now, mut ended) = (Timestamp::now(), None);
        for (effect, (result, took)) in effects.iter().zip(results) {
            if effect.write == SideWrite::Status
                && let Some(written) = result.as_ref().ok().and_then(|it| EtcdCluster::deserialize(it).ok())
            {
                self.reporter.reported(executor.target.cluster, &written);
                self.returned(Arc::new(written));
            }
            if let Request::Kube(write) = &effect.request {
                self.foreign.outdate(write.object);
            }
            let outcome = result.map_or_else(|outcome| outcome, |_| Outcome::Done);
            if outcome != Outcome::Done {
                tracing::debug!(write = effect.write.title(), ?outcome, "write not done");
            }
            self.meter.requested((&effect.request).into(), &outcome, took);
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
                Ok(request) => {
                    let result = executor.send(&request, action.into()).await;
                    self.learn(action, result.as_ref().ok(), names);
                    result.map_or_else(|outcome| outcome.of(&action.to_string()), |_| Outcome::Done)
                }
            };
            self.meter.requested(action.into(), &outcome, begun.elapsed());
            let milliseconds = begun.elapsed().as_millis() as u64;
            self.note(action, &outcome, milliseconds, goal, observation, names);
            if let Some(ended) = self.round.stepped(action, outcome) {
                return ended;
            }
        }
        Ended::Moved
    }

    /// What the API server responded to a step, which is newer than what was read.
    fn learn(&mut self, action: &Action, response: Option<&Value>, names: &Names) {
        if let Some(purpose) = action.writes_secret() {
            self.secrets.wrote(purpose, response, names);
        }
        let written = response.filter(|_| action.changes_cluster());
        if let Some(written) = written.and_then(|it| EtcdCluster::deserialize(it).ok()) {
            self.returned(Arc::new(written));
        }
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

/// None if it is now or was before: then nothing comes of waking up for it.
fn until(time: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    Duration::try_from(time?.duration_since(now)).ok().filter(|rest| !rest.is_zero())
}

/// Without a status nothing is settled.
fn settled_until(heartbeat: Option<Timestamp>, renewal: Option<Timestamp>) -> Option<Timestamp> {
    heartbeat.map(|heartbeat| renewal.map_or(heartbeat, |renewal| renewal.min(heartbeat)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_cluster_is_considered_again_when_a_certificate_has_to_be_renewed() {
        let at = |second| Timestamp::from_second(second).ok();
        assert_eq!(settled_until(at(300), at(100)), at(100));
        assert_eq!(settled_until(at(300), at(900)), at(300));
        assert_eq!((settled_until(at(300), None), settled_until(None, at(100))), (at(300), None));
        let now = Timestamp::from_second(90).expect("a time");
        assert_eq!(until(at(100), now), Some(Duration::from_secs(10)));
        assert_eq!((until(at(90), now), until(at(80), now), until(None, now)), (None, None, None));
    }
}
