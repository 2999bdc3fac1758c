//! One run: some time with faults, then time to settle.

use std::fmt::{self, Write};

use etcd_operator_core::decide::{Goal, OnDelete, OnStop};
use etcd_operator_core::member::MemberProgress;
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::plan::Refusal;
use etcd_operator_core::quorum::quorum;

use crate::agent;
use crate::bugs::Bug;
use crate::etcd::Tick;
use crate::kube::{Cluster, Volume};
use crate::observe::Sight;
use crate::operator::{Operator, Troubles};
use crate::random::Random;
use crate::script::{Script, Step};
use crate::world::{Promise, World};

/// Ten minutes; a minute of it may be the order's, and nine members join one after the other.
const TIME_TO_SETTLE: Tick = 6000;
/// Five seconds.
const QUIET: Tick = 50;

pub fn play(script: &Script) -> Result<Success, Failure> {
    Run::new(script).play()
}

/// How a run ended well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Success {
    pub ticks: Tick,
    pub acked: u64,
    pub effects: u64,
}

/// How a run failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub problem: String,
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trace.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "seed {}: {}", self.seed, self.problem)
    }
}

struct Run<'a> {
    script: &'a Script,
    world: World,
    operators: Vec<Operator>,
}

impl<'a> Run<'a> {
    fn new(script: &'a Script) -> Self {
        let mut world = World::new(Random::new(script.seed), script.traced);
        world.release = script.release;
        world.strict = script.strict;
        world.network.loss_per_mille = script.loss_per_mille;
        world.agent_bugs = agent::Bugs { follows_old_orders: script.bug == Some(Bug::OldOrderHonoured) };
        let goal = Goal {
            size: script.size,
            paused: false,
            on_stop: script.on_stop,
            on_delete: script.on_delete,
            adopts: None,
        };
        world.note(|| format!("the user creates a cluster: {goal:?}"));
        let uid = world.kube.uid();
        world.kube.objects.cluster =
            Some(Cluster { uid, version: 1, goal, deleting: false, finalizer: false, formed: None });
        let operators = (0..script.operators)
            .map(|name| {
                let mut operator = Operator::new(name, script.bug);
                operator.sight = script.sight;
                operator.troubles = script.troubles;
                operator.crash_after = script.crash_after;
                operator
            })
            .collect();
        Self { script, world, operators }
    }

    fn play(mut self) -> Result<Success, Failure> {
        for _ in 0..self.script.faulty_for {
            self.script.faults.strike(&mut self.world, &mut self.operators);
            self.tick()?;
        }
        self.end_faults();
        self.settle()?;
        for &step in &self.script.steps {
            self.world.note(|| format!("{step:?}"));
            match (step, &mut self.world.kube.objects.cluster) {
                (Step::Size(size), Some(cluster)) => {
                    cluster.goal.size = size;
                    cluster.version += 1;
                }
                (Step::Size(_), None) => {}
                (Step::Away(ordinal), _) => self.world.cut_off(ordinal),
            }
            self.operators.iter_mut().for_each(|operator| operator.quiet_since = None);
            self.settle()?;
        }
        let effects = self.operators.iter().map(|operator| operator.effects).sum();
        Ok(Success { ticks: self.world.now - 1000, acked: self.world.client.acked, effects })
    }

    fn tick(&mut self) -> Result<(), Failure> {
        self.world.tick();
        for operator in &mut self.operators {
            operator.tick(&mut self.world);
        }
        // What is lost beyond what a quorum bears is lost; nobody can promise more.
        match self.world.violation.take() {
            Some((_, problem)) if !self.script.faults.unbearable => Err(self.fail(problem)),
            Some((Promise::Identity, problem)) if !self.world.order_at_risk => Err(self.fail(problem)),
            Some(_) | None => Ok(()),
        }
    }

    fn end_faults(&mut self) {
        self.world.note(|| "faults end".into());
        self.world.network.cut.clear();
        self.world.network.loss_per_mille = 0;
        self.world.kube.unplaceable.clear();
        if let Some(cluster) = &mut self.world.kube.objects.cluster {
            cluster.goal.paused = false;
            cluster.version += 1;
        }
        for operator in &mut self.operators {
            operator.thaw();
            operator.sight = Sight::default();
            operator.troubles = Troubles::default();
            operator.quiet_since = None;
        }
    }

    /// Everything gets where it should be, and stays there.
    fn settle(&mut self) -> Result<(), Failure> {
        let deadline = self.world.now + TIME_TO_SETTLE;
        while self.world.now < deadline {
            self.tick()?;
            // What was given up and still arrives is a reason to act.
            if !self.world.late_orders.is_empty() {
                self.operators.iter_mut().for_each(|operator| operator.quiet_since = None);
            }
            let now = self.world.now;
            let quiet = |operator: &Operator| operator.quiet_since.is_some_and(|since| now - since > QUIET);
            if self.operators.iter().all(quiet) {
                let problems = self.problems();
                let given_up =
                    self.is_doubtful() && self.refuses(|it| matches!(it, Refusal::FormationFailed { .. }));
                return if problems.is_empty() || given_up || self.script.faults.unbearable {
                    Ok(())
                } else {
                    Err(self.fail(format!("the final state is wrong: {problems}")))
                };
            }
        }
        if self.script.faults.unbearable || self.is_doubtful() {
            return Ok(());
        }
        let plan = self.operators.first().map(|operator| operator.last_plan.to_string()).unwrap_or_default();
        Err(self.fail(format!("the cluster did not converge: {}; last plan: {plan}", self.problems())))
    }

    fn refuses(&self, what: fn(&Refusal) -> bool) -> bool {
        self.operators.iter().any(|operator| operator.last_plan.refusals.iter().any(what))
    }

    /// Whether a pod was killed in its very first moment, so that nobody can say whether it had begun: then it is
    /// waited for or given up, and said so, until the user deletes the cluster.
    fn is_doubtful(&self) -> bool {
        let begun = |volume: &Volume| volume.followed.is_some() && volume.data.is_none();
        self.world.formed().is_none() && self.world.kube.volumes.values().any(begun)
    }

    fn quorum_is_kept(&self) -> bool {
        let members = self.world.members();
        let voters: Vec<_> = members.iter().filter(|(_, peer)| !peer.learner).collect();
        voters.iter().filter(|(id, _)| self.world.has_data(**id)).count() >= quorum(voters.len())
    }

    /// What is not as it should be in the end.
    fn problems(&self) -> String {
        let objects = &self.world.kube.objects;
        let mut problems = String::new();
        let mut expect = |right: bool, what: &str| {
            if !right {
                write!(problems, "{what}; ").ok();
            }
        };
        let claims: Vec<Ordinal> = objects.claims.keys().copied().collect();
        let Some(cluster) = &objects.cluster else {
            expect(objects.set.is_none() && objects.pods.is_empty(), "pods of a deleted cluster remain");
            let kept = self.world.deleted != Some(OnDelete::Delete) || claims.is_empty();
            expect(kept, "volumes of a deleted cluster remain");
            return problems;
        };
        expect(objects.order.is_none(), "the bootstrap order still exists");
        let lost = self.refuses(|refusal| *refusal == Refusal::DataLost);
        if lost && cluster.goal.on_stop == OnStop::Delete && claims.iter().all(|_| cluster.formed.is_some()) {
            return problems;
        }
        let size = cluster.goal.size;
        let wanted: Vec<Ordinal> = Ordinal::below(size).collect();
        expect(objects.set.map_or(0, |set| set.replicas) == size, "the number of pods is wrong");
        expect(objects.pods.keys().copied().eq(wanted.iter().copied()), "unexpected pods exist");
        if size > 0 {
            expect(claims == wanted, "unexpected volumes exist");
            let members = self.world.members();
            let mut ordinals: Vec<Ordinal> = members.values().map(|peer| peer.ordinal).collect();
            ordinals.sort();
            expect(ordinals == wanted, "the members are wrong");
            let fine = members.values().all(|peer| !peer.learner && peer.start == MemberProgress::Published);
            expect(fine, "a member is not a voter or has not started");
            let runs = |ordinal: &Ordinal| self.world.servers.contains_key(ordinal);
            let away = |ordinal: &Ordinal| self.world.network.cut.contains(ordinal);
            expect(wanted.iter().all(|ordinal| runs(ordinal) || away(ordinal)), "an etcd is not running");
        } else if self.world.formed().is_some() {
            match cluster.goal.on_stop {
                OnStop::Retain => expect(claims == [Ordinal(0)], "expected exactly one volume"),
                OnStop::RetainAll => expect(self.quorum_is_kept(), "volumes are missing"),
                OnStop::Delete => expect(claims.is_empty(), "volumes are left"),
            }
        } else {
            expect(claims.is_empty(), "volumes are left");
        }
        problems
    }

    fn fail(&mut self, problem: String) -> Failure {
        Failure { seed: self.script.seed, problem, trace: self.world.trace.take().unwrap_or_default() }
    }
}
