//! Drives the same [`Round`] as the operator's worker, one step at a time: killed at any moment, with old caches, lost
//! answers and requests that arrive late.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use etcd_operator_core::decide::{Goal, decide, resizes};
use etcd_operator_core::observed::Observed;
use etcd_operator_core::plan::{Action, Plan};
use etcd_operator_core::request::{Object, OnlyIf, Request, Write};
use etcd_operator_core::round::{
    Clock, Effect, Ended, Freshness, LearnsBy, Newest, Next, Outcome, Round, SideWrite, Unseen, Version,
};
use etcd_operator_core::status::Trouble;
use etcd_operator_core::tls::next_renewal;

use crate::bugs::Bug;
use crate::etcd::Tick;
use crate::execute::{Wanted, execute, send};
use crate::kube::{Cluster, Objects};
use crate::observe::{Sight, goal, observe, time};
use crate::report::Reporter;
use crate::rolling;
use crate::secrets::{Known, Secrets};
use crate::world::World;

#[derive(Clone, Default)]
pub struct Operator {
    pub name: usize,
    pub sight: Sight,
    /// Which kinds of objects are seen as they were: cluster, order, set, pods, claims.
    frozen: [Option<Rc<Objects>>; 5],
    round: Round,
    secrets: Known,
    reporter: Reporter,
    newest: Newest<Option<Cluster>>,
    /// Whether it writes the status.
    pub reports: bool,
    /// When it runs again after it was killed.
    down_until: Tick,
    /// What is left of the plan, and what it was made from.
    steps: VecDeque<Action>,
    basis: Option<(Observed, Wanted)>,
    next_round: Tick,
    last_step: Tick,
    /// Of which moment it has read objects already.
    last_read: Tick,
    /// The last plan, to tell whether it has become quiet.
    pub last_plan: Plan,
    pub quiet_since: Option<Tick>,
    /// How many actions it has carried out.
    pub effects: u64,
    /// What happens to one of them, counted from 1.
    pub disturbed: Option<(u64, Disturbance)>,
    pub troubles: Troubles,
    bug: Option<Bug>,
    /// Requests whose sender has given up, and that still arrive.
    pub late: Vec<(Tick, Action, Request, Wanted)>,
}

/// How long a settled cluster is left alone; the operator's status needs a new time then.
const HEARTBEAT: Duration = Duration::from_secs(300);

/// How often things go wrong, out of a thousand actions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    pub crash: u64,
    pub lost_answer: u64,
    pub late_request: u64,
}

/// What happens to one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    KilledBefore,
    KilledAfter,
    AnswerLost,
    FailsOnce,
}

impl Disturbance {
    pub const ALL: [Self; 4] = [Self::KilledBefore, Self::KilledAfter, Self::AnswerLost, Self::FailsOnce];
}

impl Operator {
    pub fn new(name: usize, bug: Option<Bug>) -> Self {
        Self { name, bug, ..Self::default() }
    }

    pub fn tick(&mut self, world: &mut World) {
        self.deliver_late(world);
        if world.now < self.next_round {
            return;
        }
        match self.steps.pop_front() {
            Some(action) => self.step(world, &action),
            None => self.observe(world),
        }
    }

    /// From now on some kinds of objects are seen as they are at this moment.
    pub fn freeze(&mut self, objects: &Rc<Objects>, kinds: [bool; 5]) {
        for (frozen, freeze) in self.frozen.iter_mut().zip(kinds) {
            if freeze && frozen.is_none() {
                *frozen = Some(Rc::clone(objects));
            }
        }
    }

    pub fn thaw(&mut self) {
        self.frozen = Default::default();
    }

    pub fn crash(&mut self, world: &mut World) {
        world.note(|| format!("operator {} is killed", self.name));
        self.steps.clear();
        (self.round, self.reporter, self.secrets, self.newest) = Default::default();
        self.thaw();
        self.quiet_since = None;
        self.next_round = world.now + world.random.between(5, 50);
        self.down_until = self.next_round;
    }

    pub fn is_running(&self, now: Tick) -> bool {
        now >= self.down_until
    }

    /// Whether it reads the objects as they are, and can reach etcd.
    pub fn sees_all(&self) -> bool {
        self.frozen.iter().all(Option::is_none) && !self.sight.etcd_unreachable
    }

    /// The EtcdCluster as its cache has it, or newer.
    fn cluster(&mut self, live: &Objects) -> Option<Cluster> {
        let cached = self.frozen[0].as_deref().unwrap_or(live);
        self.newest.at_least(version(cached)?, cached.cluster.clone())
    }

    /// The API server returned these, or it did what led to them.
    fn returned(&mut self, objects: &Objects) {
        if let Some(version) = version(objects) {
            self.newest.returned(version, objects.cluster.clone());
        }
    }

    /// With an EtcdCluster that is at least as new as the one in its cache.
    fn cached(&self, live: &Objects, cluster: Option<Cluster>) -> Objects {
        let [_, order, set, pods, claims] = &self.frozen;
        Objects {
            cluster,
            order: order.as_deref().unwrap_or(live).order,
            // Both are ConfigMaps.
            record: order.as_deref().unwrap_or(live).record,
            section: order.as_deref().unwrap_or(live).section.clone(),
            cleared: order.as_deref().unwrap_or(live).cleared.clone(),
            set: set.as_deref().unwrap_or(live).set,
            pods: pods.as_deref().unwrap_or(live).pods.clone(),
            preflights: pods.as_deref().unwrap_or(live).preflights.clone(),
            claims: claims.as_deref().unwrap_or(live).claims.clone(),
            // They are in no cache.
            secrets: Secrets::new(),
        }
    }

    fn observe(&mut self, world: &mut World) {
        let freshness = self.round.begin(time(world.now));
        // An observation begins when the step before it is done.
        let ago = world.observation_time().min(world.now - self.last_step);
        let live = world.objects(ago);
        let cluster = self.cluster(&live);
        // Observations overlap here, so a read can show what was there before the one that precedes it.
        let is_newest = world.now - ago >= self.last_read;
        self.last_read = self.last_read.max(world.now - ago);
        let mut objects = match freshness {
            Freshness::Live if self.bug != Some(Bug::CacheTrusted) => {
                if is_newest {
                    self.returned(&live);
                }
                (*live).clone()
            }
            Freshness::Cached | Freshness::Live => self.cached(&live, cluster),
        };
        let transport = objects.transports();
        if let Some(cluster) = &objects.cluster {
            objects.secrets = self.secrets.read(cluster, transport, &live, world.now);
            let mut running = world.servers.keys();
            if freshness == Freshness::Live && running.any(|&it| world.distrusts(it, &objects.secrets)) {
                self.secrets.outdate();
                objects.secrets = self.secrets.read(cluster, transport, &live, world.now);
            }
        }
        let memory = &mut self.round.memory;
        let observed = observe(world, &objects, ago, self.sight, memory).and_then(|mut seen| {
            self.bug.iter().for_each(|bug| bug.blind(&mut seen));
            Some((goal(world, &objects, &seen)?, seen))
        });
        let Some((goal, seen)) = observed else {
            self.settle(world, Plan::default());
            return self.rest(world, &Ended::Superseded);
        };
        let mut trusted = freshness;
        if self.bug.is_some_and(|bug| bug.trusts_cache(&decide(&goal, &seen))) {
            trusted = Freshness::Live;
        }
        let unseen = unseen_in(&objects);
        match self.round.consider(&goal, &seen, &unseen, trusted) {
            Next::Unchanged => self.rest(world, &Ended::Idle(Plan::default(), LearnsBy::Asking)),
            Next::Confirm => {}
            Next::Proceed(plan) => {
                let plan = match self.bug {
                    Some(bug) => bug.twist(plan, &seen),
                    None => plan,
                };
                let plan = with_rendering(plan, &goal, &seen);
                if ago == 0 && !seen.cluster.deleting {
                    rolling::decision_is_safe(world, &seen, &plan);
                }
                if self.sees_all() && !goal.paused {
                    world.observed_clearly();
                }
                if plan != self.last_plan && !plan.is_settled() {
                    let text = plan.to_string();
                    world.note(|| format!("operator {}: {}", self.name, text.trim_end().replace('\n', "; ")));
                }
                let (wanted, steps) = match self.report(world, &mut objects, &live, (&goal, &seen, &plan)) {
                    Ok(reported) => reported,
                    Err(ended) => return self.rest(world, &ended),
                };
                if self.resize(world, &goal, &seen, wanted) {
                    return;
                }
                if plan.actions.is_empty() {
                    let unseen = unseen_in(&objects);
                    let heartbeat = seen.now + HEARTBEAT;
                    let renewal = next_renewal(&goal.certificates, &seen).unwrap_or(heartbeat);
                    let settled = (&seen, &unseen, Some(heartbeat.min(renewal)));
                    let ended = self.round.idle(plan.clone(), LearnsBy::Asking, settled);
                    self.rest(world, &ended);
                }
                self.steps = steps.into();
                self.basis = Some((seen, wanted));
                self.settle(world, plan);
                // A member that fails between the two is the business of etcd's own check.
                if !world.strict
                    && let Some(action) = self.steps.pop_front()
                {
                    self.step(world, &action);
                }
            }
        }
    }

    /// Writes the status, if there is a new one. Returns the steps that follow, unless what was observed might not hold any
    /// more.
    fn report(
        &mut self,
        world: &mut World,
        objects: &mut Objects,
        live: &Objects,
        considered: (&Goal, &Observed, &Plan),
    ) -> Result<(Wanted, Vec<Action>), Ended> {
        let read = objects.cluster.as_ref().zip(Wanted::of(objects, live, considered.0));
        let Some((cluster, wanted)) = read else { return Err(Ended::Superseded) };
        let (_, seen, plan) = considered;
        if !self.reports {
            return Ok((wanted, plan.actions.clone()));
        }
        let (status, work) = self.reporter.work(&mut self.round, cluster, considered);
        let Some(status) = status.filter(|_| !self.bug.is_some_and(|bug| bug.hides(seen))) else {
            return Ok((wanted, work.steps));
        };
        self.last_step = world.now;
        let outcome = send(world, &status.request, wanted);
        if outcome == Outcome::Done {
            self.returned(&world.kube.objects);
            objects.cluster.clone_from(&world.kube.objects.cluster);
        }
        self.round.sent(&status, outcome, seen.now).map_or(Ok((wanted, work.steps)), Err)
    }

    /// Something may wake it at any moment of the pause.
    fn rest(&mut self, world: &mut World, ended: &Ended) {
        let dice = world.random.between(0, 400) as u32;
        let pause = self.round.rest(ended, Clock { now: time(world.now), dice });
        let ticks = |time: Duration| (time.as_millis() / 100) as Tick;
        let woken = world.random.between(2, 8);
        self.next_round =
            world.now + pause.map_or(1, |pause| ticks(pause.at_least) + ticks(pause.at_most).min(woken));
    }

    fn settle(&mut self, world: &World, plan: Plan) {
        let quiet = plan.actions.is_empty() && plan.waiting.is_empty();
        self.quiet_since = if quiet { self.quiet_since.or(Some(world.now)) } else { None };
        self.last_plan = plan;
    }

    fn step(&mut self, world: &mut World, action: &Action) {
        self.last_step = world.now;
        let Some((seen, wanted)) = &self.basis else { return };
        let wanted = *wanted;
        let mut request = match self.round.request(action, seen, &self.reporter.names) {
            Ok(request) => request,
            Err(trouble) => return self.conclude(world, action, Outcome::NotDone(trouble)),
        };
        if self.bug == Some(Bug::PreconditionsSkipped) {
            expect_what_is_there(&mut request, &world.kube.objects);
        }
        if world.random.chance(self.troubles.late_request) {
            let when = world.now + world.random.between(1, 100);
            world.note(|| format!("  delayed: {action}"));
            self.late.push((when, action.clone(), request, wanted));
            return self.conclude(world, action, unanswered());
        }
        self.effects += 1;
        let disturbance = self.disturbed.filter(|(nth, _)| *nth == self.effects).map(|(_, it)| it);
        let outcome = match disturbance {
            Some(Disturbance::KilledBefore) => unanswered(),
            Some(Disturbance::FailsOnce) => Outcome::NotDone(Trouble::Failed("it fails once".into())),
            Some(Disturbance::KilledAfter | Disturbance::AnswerLost) | None => {
                execute(world, action, &request, wanted)
            }
        };
        let lost =
            disturbance == Some(Disturbance::AnswerLost) || world.random.chance(self.troubles.lost_answer);
        if outcome == Outcome::Done && !lost && action.changes_cluster() {
            self.returned(&world.kube.objects);
        }
        self.conclude(world, action, if lost { unanswered() } else { outcome });
        let killed = matches!(disturbance, Some(Disturbance::KilledBefore | Disturbance::KilledAfter));
        if killed || world.random.chance(self.troubles.crash) {
            self.crash(world);
        }
    }

    /// Writes beside the plan. Returns whether the round ends with one of them.
    fn resize(&mut self, world: &mut World, goal: &Goal, seen: &Observed, wanted: Wanted) -> bool {
        for write in resizes(goal, seen) {
            let what = format!("resize {:?}", write.object);
            let (name, request) = (SideWrite::Object(what.clone()), Request::Kube(write));
            let effect = Effect { write: name, request };
            if !self.round.is_due(&effect, seen.now) {
                continue;
            }
            self.effects += 1;
            let disturbance = self.disturbed.filter(|(nth, _)| *nth == self.effects).map(|(_, it)| it);
            let outcome = match disturbance {
                Some(Disturbance::KilledBefore) => unanswered(),
                Some(Disturbance::FailsOnce) => Outcome::NotDone(Trouble::Failed("it fails once".into())),
                Some(Disturbance::KilledAfter | Disturbance::AnswerLost) | None => {
                    execute(world, &what, &effect.request, wanted)
                }
            };
            let outcome = if disturbance == Some(Disturbance::AnswerLost) { unanswered() } else { outcome };
            let ended = self.round.sent(&effect, outcome, seen.now);
            if matches!(disturbance, Some(Disturbance::KilledBefore | Disturbance::KilledAfter)) {
                self.crash(world);
                return true;
            }
            if let Some(ended) = ended {
                self.rest(world, &ended);
                return true;
            }
        }
        false
    }

    fn conclude(&mut self, world: &mut World, action: &Action, outcome: Outcome) {
        if let Some(purpose) = action.writes_secret() {
            let written = world.kube.objects.secrets.get(&purpose).filter(|_| outcome == Outcome::Done);
            self.secrets.wrote(purpose, written.copied());
        }
        if let Some(ended) = self.round.stepped(action, outcome) {
            self.steps.clear();
            self.rest(world, &ended);
        }
    }

    fn deliver_late(&mut self, world: &mut World) {
        let due: Vec<_> = self.late.extract_if(.., |(when, ..)| world.now >= *when).collect();
        for (_, action, request, wanted) in due {
            execute(world, &action, &request, Wanted { late: true, ..wanted });
        }
    }
}

/// What the operator writes beside a plan is a step of its own here: the template of a new version.
fn with_rendering(plan: Plan, goal: &Goal, seen: &Observed) -> Plan {
    let outdated = seen.set.as_ref().filter(|set| set.agent < goal.lowest_agent && !goal.paused);
    match outdated.and_then(|set| set.template.clone()) {
        Some(form) if plan.actions.is_empty() => plan.then(Plan::act(Action::SetTemplate { form })),
        Some(_) | None => plan,
    }
}

/// Of the EtcdCluster.
fn version(objects: &Objects) -> Option<Version> {
    let (uid, resource_version) = objects.identity(Object::Cluster)?;
    Some(Version { uid, resource_version })
}

/// A write that depends on nothing that was read.
fn expect_what_is_there(request: &mut Request, objects: &Objects) {
    if let Request::Kube(Write { object, only_if: only_if @ OnlyIf::Unchanged(..), .. }) = request
        && let Some((uid, version)) = objects.identity(*object)
    {
        *only_if = OnlyIf::Unchanged(uid, version);
    }
}

fn unanswered() -> Outcome {
    Outcome::Ambiguous("no response".into())
}

/// The goal.
fn unseen_in(objects: &Objects) -> Unseen {
    vec![objects.cluster.as_ref().map(|cluster| format!("{} {}", cluster.uid, cluster.version))]
}
