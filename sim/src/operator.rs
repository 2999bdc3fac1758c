//! The operator as the real one will be: observe, decide, execute one action at a time; killed at any moment,
//! with old caches, lost answers and requests that arrive late.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use etcd_operator_core::decide::decide;
use etcd_operator_core::observed::{MemberId, Observed, Seen};
use etcd_operator_core::plan::{Action, Plan};

use crate::bugs::Bug;
use crate::etcd::Tick;
use crate::execute::{Evidence, Outcome, execute};
use crate::kube::Objects;
use crate::observe::{Sight, observe};
use crate::world::World;

#[derive(Clone, Debug, Default)]
pub struct Operator {
    pub name: usize,
    pub sight: Sight,
    /// Which kinds of objects are seen as they were: cluster, order, set, pods, claims.
    frozen: [Option<Rc<Objects>>; 5],
    queue: VecDeque<Action>,
    silent_since: BTreeMap<MemberId, Tick>,
    next_round: Tick,
    /// The last plan, to tell whether it has become quiet.
    pub last_plan: Plan,
    pub quiet_since: Option<Tick>,
    /// How many actions it has carried out.
    pub effects: u64,
    /// What happens to one of them, counted from 1.
    pub disturbed: Option<(u64, Disturbance)>,
    /// What the API server held when the round observed it.
    read: Rc<Objects>,
    pub troubles: Troubles,
    bug: Option<Bug>,
    late: Vec<(Tick, Action, Evidence)>,
}

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
        match self.queue.pop_front() {
            Some(action) => self.act(world, &action),
            None => self.round(world),
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
        self.queue.clear();
        self.silent_since.clear();
        self.thaw();
        self.quiet_since = None;
        self.next_round = world.now + world.random.between(5, 50);
    }

    fn cached(&self, live: &Objects) -> Objects {
        let [cluster, order, set, pods, claims] = &self.frozen;
        let view = |frozen: &Option<Rc<Objects>>| frozen.clone();
        Objects {
            cluster: view(cluster).map_or_else(|| live.cluster.clone(), |old| old.cluster.clone()),
            order: view(order).map_or(live.order, |old| old.order),
            set: view(set).map_or(live.set, |old| old.set),
            pods: view(pods).map_or_else(|| live.pods.clone(), |old| old.pods.clone()),
            claims: view(claims).map_or_else(|| live.claims.clone(), |old| old.claims.clone()),
        }
    }

    fn plan(&self, world: &mut World, objects: &Objects, ago: Tick) -> Option<(Plan, Observed)> {
        let (goal, mut seen) = observe(world, objects, ago, self.sight, &self.silent_since)?;
        if let Some(bug) = self.bug {
            bug.blind(&mut seen);
        }
        let plan = decide(&goal, &seen);
        let plan = match self.bug {
            Some(bug) => bug.twist(plan, &seen),
            None => plan,
        };
        Some((plan, seen))
    }

    fn round(&mut self, world: &mut World) {
        self.next_round = world.now + world.random.between(2, 8);
        let ago = world.observation_time();
        self.read = Rc::new(self.cached(&world.objects(ago)));
        let Some((plan, seen)) = self.plan(world, &Rc::clone(&self.read), ago) else {
            self.settle(world, Plan::default());
            return;
        };
        self.watch_silence(world.now, &seen);
        if plan != self.last_plan && !plan.is_settled() {
            let text = plan.to_string();
            world.note(|| format!("operator {}: {}", self.name, text.trim_end().replace('\n', "; ")));
        }
        self.queue = plan.actions.iter().cloned().collect();
        self.settle(world, plan);
    }

    fn settle(&mut self, world: &World, plan: Plan) {
        let quiet = plan.actions.is_empty() && plan.waiting.is_empty();
        self.quiet_since = if quiet { self.quiet_since.or(Some(world.now)) } else { None };
        self.last_plan = plan;
    }

    fn watch_silence(&mut self, now: Tick, seen: &Observed) {
        let Seen::Known(members) = &seen.etcd.members else { return };
        let serving = seen.serving();
        self.silent_since.retain(|id, _| members.list.contains_key(id));
        for (&id, member) in &members.list {
            let speaks = if member.learner { seen.answer_of(id).is_some() } else { serving.contains(&id) };
            if speaks {
                self.silent_since.remove(&id);
            } else {
                self.silent_since.entry(id).or_insert(now);
            }
        }
    }

    fn act(&mut self, world: &mut World, action: &Action) {
        let unconfirmed = self.bug.is_some_and(|bug| bug.skips_confirmation(action));
        if action.is_decided_twice() && !unconfirmed {
            let ago = world.observation_time();
            self.read = world.objects(ago);
            let plan = self.plan(world, &Rc::clone(&self.read), ago);
            let confirmed = plan.is_some_and(|(plan, _)| plan.actions.contains(action));
            if !confirmed {
                world.note(|| format!("  dropped, outdated: {action}"));
                self.queue.clear();
                return;
            }
        }
        let unconditional = self.bug == Some(Bug::PreconditionsSkipped);
        let evidence = Evidence::read(if unconditional { &world.kube.objects } else { &self.read });
        if world.random.chance(self.troubles.late_request) {
            let when = world.now + world.random.between(1, 50);
            world.note(|| format!("  delayed: {action}"));
            self.late.push((when, action.clone(), evidence));
            self.queue.clear();
            return;
        }
        self.effects += 1;
        let disturbance = self.disturbed.filter(|(nth, _)| *nth == self.effects).map(|(_, it)| it);
        let prevented = matches!(disturbance, Some(Disturbance::KilledBefore | Disturbance::FailsOnce));
        let done = !prevented && execute(world, action, &evidence) == Outcome::Done;
        let answered = disturbance != Some(Disturbance::AnswerLost);
        if !done || !answered || world.random.chance(self.troubles.lost_answer) {
            self.queue.clear();
        }
        let killed = matches!(disturbance, Some(Disturbance::KilledBefore | Disturbance::KilledAfter));
        if killed || world.random.chance(self.troubles.crash) {
            self.crash(world);
        }
    }

    fn deliver_late(&mut self, world: &mut World) {
        let due: Vec<_> = self.late.extract_if(.., |(when, _, _)| world.now >= *when).collect();
        for (_, action, evidence) in due {
            execute(world, &action, &evidence);
        }
    }
}
