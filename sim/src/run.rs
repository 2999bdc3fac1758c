//! One run: some time with faults, then time to settle.

use std::fmt;

use etcd_operator_core::agent::Protocol;
use etcd_operator_core::assess::PodState;
use etcd_operator_core::auth::Wanted;
use etcd_operator_core::decide::Goal;
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::plan::{Plan, Refusal, WaitingOn};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::recovery::Survivor;
use etcd_operator_core::schedule::{Schedule, Window};
use etcd_operator_core::tls::Purpose;

use crate::agent;
use crate::agreement::Agreement;
use crate::bugs::Bug;
use crate::ending::{self, Ending};
use crate::etcd::{Change, Tick, election};
use crate::faults;
use crate::form::Edit;
use crate::kube::Cluster;
use crate::observe::{Sight, uid};
use crate::operator::{Operator, Troubles};
use crate::problem::{Problem, Promise, Violation, Wrong};
use crate::random::Random;
use crate::script::{Script, Step, with_password};
use crate::secrets::Secret;
use crate::switching;
use crate::volumes::{Class, Volumes};
use crate::world::World;

/// Ten minutes; a minute of it may be the order's, and nine members join one after the other.
const TIME_TO_SETTLE: Tick = 6000;
/// Five seconds.
const QUIET: Tick = 50;

pub fn play(script: &Script) -> Result<Success, Failure> {
    Run::new(script).play()
}

/// How a run ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success {
    pub ticks: Tick,
    pub acked: u64,
    /// How many actions the operators tried.
    pub effects: u64,
    /// How many objects they changed, and how many membership changes etcd agreed upon; counted only without faults.
    pub changes: (u64, usize),
    /// How many serving members they restarted.
    pub restarts: usize,
    pub ending: Ending,
}

/// How a run failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub problem: Box<Problem>,
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
    changes: u64,
    agreement: Agreement,
    /// A violation was excused, so the truth is not what the members know.
    truth_lost: bool,
}

impl<'a> Run<'a> {
    fn new(script: &'a Script) -> Self {
        let mut world = World::new(Random::new(script.seed), script.traced);
        world.strict = script.strict;
        world.killed_at_first_start = script.killed_at_first_start;
        world.past.depth = script.observation_time;
        world.network.loss_per_mille = script.loss_per_mille;
        world.agent_bugs = agent::Bugs {
            follows_old_orders: script.bug == Some(Bug::OldOrderHonoured),
            forces_again: script.bug == Some(Bug::ForcedTwice),
        };
        if script.recovers {
            (world.agent, world.recoveries.agents_respond) = (Protocol::CURRENT, true);
        }
        world.has_rivals = script.operators > 1;
        world.lifetime = script.lifetime;
        let form = world.new_form(script.release, None);
        let goal = Goal {
            on_stop: script.on_stop,
            on_delete: script.on_delete,
            disruption_budget: script.disruption_budget,
            windows: script.windows.clone(),
            node_loss_grace_seconds: script.node_loss_grace_seconds,
            consistency_interval_seconds: Some(script.compared_every_seconds),
            auth: script.auth.clone(),
            ..Goal::of_size(script.size)
        };
        world.create_cluster(goal, form, switching::spec(script.tls));
        world.give(script.gift);
        let operators = (0..script.operators)
            .map(|name| {
                let mut operator = Operator::new(name, script.bug);
                operator.sight = script.sight;
                operator.troubles = script.troubles;
                operator.disturbed = script.disturbed;
                operator.reports = script.reports;
                operator
            })
            .collect();
        Self { script, world, operators, changes: 0, agreement: Agreement::default(), truth_lost: false }
    }

    fn play(mut self) -> Result<Success, Failure> {
        for _ in 0..self.script.faulty_for {
            self.script.faults.strike(&mut self.world, &mut self.operators);
            self.tick()?;
        }
        self.end_faults();
        self.settle()?;
        let mut steps = self.script.steps.iter().copied().peekable();
        while let Some(step) = steps.next() {
            self.take(step);
            self.operators.iter_mut().for_each(|operator| operator.quiet_since = None);
            match (step, steps.peek()) {
                (Step::WhenRolled(count), _) => self.wait_for_rolled(count)?,
                (Step::Later(ticks), _) => (0..ticks).try_for_each(|_| self.tick())?,
                (_, Some(Step::WhenRolled(_) | Step::Later(_))) => {}
                _ => self.settle()?,
            }
        }
        let effects = self.operators.iter().map(|operator| operator.effects).sum();
        let logs = self.world.truth.clusters.values().map(|committed| &committed.log);
        let is_membership = |change: &Change| change.is_membership() && !matches!(change, Change::Found(..));
        let memberships = logs.flatten().filter(|entry| is_membership(&entry.change)).count();
        Ok(Success {
            ticks: self.world.now - 1000,
            acked: self.world.client.acked,
            effects,
            changes: (self.changes, memberships),
            restarts: self.world.ended.count,
            ending: Ending::of(&self.world),
        })
    }

    fn take(&mut self, step: Step) {
        let world = &mut self.world;
        world.note(|| format!("{step:?}"));
        match step {
            Step::Size(size) => {
                if let Some(cluster) = &mut world.kube.objects.cluster {
                    cluster.goal.size = size;
                    cluster.version += 1;
                }
            }
            Step::Edit(edit) => world.edit_form(edit),
            Step::RequireAgent => world.agent = Protocol(world.agent.0 + 1),
            Step::WhenRolled(_) | Step::Later(_) => {}
            Step::Lead(ordinal) => {
                election::wins(&mut world.servers, &world.network, ordinal, world.now, true);
            }
            Step::DeletePod(ordinal) => {
                world.kube.objects.pods.entry(ordinal).and_modify(|pod| pod.terminating = true);
            }
            Step::NodeDown(ordinal) => world.take_node_down(ordinal),
            Step::NodesUp => world.kube.nodes_down.clear(),
            Step::ForceDeletion(ordinal) => world.force_deletion(ordinal),
            Step::LoseForGood(ordinal) => world.lose_for_good(ordinal),
            Step::Consent(named) => world.consent(Some(named.map_or(Survivor::Auto, Survivor::Pod))),
            Step::TakeConsentBack => world.consent(None),
            Step::Wipe(ordinal) => faults::wipe(world, ordinal),
            Step::Rot(ordinal) => faults::rot(world, ordinal),
            Step::Delete(on_delete) => world.delete_cluster(on_delete),
            Step::Volumes(volumes) => world.edit_volumes(volumes),
            Step::Transport(transport) => world.edit_transport(transport),
            Step::DeleteSecret(purpose) => world.delete_secret(purpose),
            Step::RestoreAuthorities => world.restore_authorities(),
            Step::Auth(enabled) => world.edit_auth(if enabled { with_password() } else { Wanted::Disabled }),
            Step::AuthByHand(enabled) => world.toggle_auth(enabled),
            Step::RootPassword(password) => world.edit_root_password(password),
            Step::GiveAccess => world.give_operators_access(),
            Step::RotateAuthorities => world.rotate_authorities(),
            Step::Give(gift) => world.give(gift),
            Step::GrowthFails(fails) => world.kube.growth_fails = fails,
            Step::ForgetAdoption => {
                if let Some(cluster) = &mut world.kube.objects.cluster {
                    cluster.goal.adopts = None;
                    cluster.version += 1;
                }
            }
            Step::Adopt => {
                if let Some(former) = world.lineage.deleted.clone() {
                    let goal = Goal { adopts: Some(uid("cluster", former.uid)), ..former.goal };
                    world.create_cluster(goal, former.form, former.tls);
                }
            }
        }
    }

    fn tick(&mut self) -> Result<(), Failure> {
        self.world.tick();
        for operator in &mut self.operators {
            let before = (self.script.faulty_for == 0).then(|| self.world.objects(0));
            operator.tick(&mut self.world);
            self.changes += before.map_or(0, |before| self.world.kube.objects.changes_since(&before));
        }
        if self.script.reports {
            self.agreement.check(&mut self.world, &self.operators);
        }
        if let Some(purpose) = self.world.expired().filter(|_| self.script.faulty_for == 0) {
            self.world.violate(Violation::CertificateExpired(purpose));
        }
        let Some(violation) = self.world.violation.take() else { return Ok(()) };
        let excused = match violation.promise() {
            // What is lost beyond what a quorum bears is lost.
            Promise::Data => self.world.data_at_risk,
            // A pod whose volume is lost while it can still follow the order might follow it again.
            // An adopted cluster of which nothing is left bootstraps anew.
            Promise::Identity => {
                self.world.data_at_risk && (self.world.order_at_risk || self.world.has_adopted())
            }
            // After that, what members know is not the truth that service and status are measured by.
            Promise::Service | Promise::Status => self.truth_lost,
        };
        self.truth_lost |= excused;
        if excused { Ok(()) } else { Err(self.fail(Problem::Violated(violation))) }
    }

    fn end_faults(&mut self) {
        self.world.note(|| "faults end".into());
        self.end_loss_of_nodes();
        self.world.kube.unplaceable.clear();
        self.world.network.severed.clear();
        self.world.network.loss_per_mille = 0;
        self.world.unreachable.clear();
        self.world.take_back_upgrade();
        if let Some(cluster) = &mut self.world.kube.objects.cluster {
            cluster.goal.paused = false;
            cluster.goal.asked.apply_tls = true;
            // A user consents to every restart that waits for it.
            if self.script.faulty_for > 0 {
                let schedule = Schedule::new("* * * * *", "UTC").expect("every minute");
                cluster.goal.windows = vec![Window { schedule, minutes: 1 }];
            }
            cluster.version += 1;
        }
        self.mend_form();
        self.mend_volumes();
        self.world.restore_authorities();
        self.world.correct_gift();
        self.world.give_operators_access();
        for operator in &mut self.operators {
            operator.thaw();
            operator.sight = Sight::default();
            operator.troubles = Troubles::default();
            operator.quiet_since = None;
        }
    }

    /// All nodes return, unless they stay down and a quorum is elsewhere.
    fn end_loss_of_nodes(&mut self) {
        let members = self.world.members();
        let voters: Vec<Ordinal> =
            members.values().filter(|peer| !peer.learner).map(|peer| peer.ordinal).collect();
        let kube = &mut self.world.kube;
        let (mut down, volumes) = (kube.pods_on_nodes_down(), kube.volumes_on_nodes_down());
        down.extend(volumes);
        let elsewhere = voters.iter().filter(|it| !down.contains(it)).count();
        let formed = kube.objects.cluster.as_ref().is_some_and(|it| it.formed.is_some());
        let bears = formed && kube.objects.order.is_none() && elsewhere >= quorum(voters.len());
        if !self.script.nodes_stay_down || !bears {
            kube.nodes_down.clear();
        }
    }

    /// After that, a pod on a lost node that is not replaced has to be deleted by a user.
    fn time_to_replace(&self) -> Tick {
        self.script.node_loss_grace().map_or(0, |grace| grace + 600)
    }

    /// A user who asked for a form that cannot work reverts it in the end.
    fn mend_form(&mut self) {
        for edit in [Edit::Revert, Edit::Harmless] {
            let flawed = |cluster: &Cluster| cluster.form.flaw.is_some() && !cluster.deleting;
            if self.world.kube.objects.cluster.as_ref().is_some_and(flawed) {
                self.world.edit_form(edit);
            }
        }
    }

    /// Whoever asked for a class that does not exist notices that in the end.
    fn mend_volumes(&mut self) {
        self.world.kube.growth_fails = false;
        let volumes = self.world.kube.objects.cluster.as_ref().map(|cluster| cluster.volumes);
        if let Some(missing) = volumes.filter(|it| it.class == Class::Missing) {
            let class = if self.world.random.chance(500) { Class::Slow } else { Class::Default };
            self.world.edit_volumes(Volumes { class, ..missing });
        }
    }

    fn wait_for_rolled(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..TIME_TO_SETTLE {
            let objects = &self.world.kube.objects;
            let wanted = objects.cluster.as_ref().map(|cluster| cluster.form.number);
            let rolled = objects.pods.values().filter(|pod| Some(pod.template.form.number) == wanted);
            if rolled.count() >= count {
                return Ok(());
            }
            self.tick()?;
        }
        Err(self.fail(Problem::NotRolled))
    }

    /// Everything gets where it should be, and stays there.
    fn settle(&mut self) -> Result<(), Failure> {
        let deadline = self.world.now + TIME_TO_SETTLE + self.time_to_rotate();
        let mut blocked_for = 0;
        while self.world.now < deadline {
            self.tick()?;
            // What was given up and still arrives is a reason to act.
            for operator in self.operators.iter_mut().filter(|operator| !operator.late.is_empty()) {
                operator.quiet_since = None;
            }
            let now = self.world.now;
            let quiet = |operator: &Operator| operator.quiet_since.is_some_and(|since| now - since > QUIET);
            blocked_for = if self.waits_for_a_node() { blocked_for + 1 } else { 0 };
            if blocked_for > QUIET + self.time_to_replace() {
                return Ok(());
            }
            // A member that has not caught up yet is not what is expected, and nothing can be done about it.
            if self.world.volumes_grow() {
                self.operators.iter_mut().for_each(|operator| operator.quiet_since = None);
            }
            let serves = self.world.all_serve() && !self.world.has_unreported_exits();
            let settles = serves && self.world.certificates_are_valid() && self.world.auth_is_as_wanted();
            if !settles && now + TIME_TO_SETTLE / 2 < deadline {
                self.operators.iter_mut().for_each(|operator| operator.quiet_since = None);
            }
            if self.operators.iter().all(quiet) {
                let wrong = self.differences();
                return match wrong.is_empty() || self.is_given_up() {
                    true => Ok(()),
                    false => Err(self.fail(Problem::WrongEnd(wrong))),
                };
            }
        }
        if self.is_hopeless() {
            return Ok(());
        }
        let plan = self.operators.first().map(|operator| operator.last_plan.clone()).unwrap_or_default();
        Err(self.fail(Problem::NotConverged { wrong: self.differences(), plan }))
    }

    /// Clients have five minutes to read their new certificates, and kubelets might mount old ones twice.
    fn time_to_rotate(&self) -> Tick {
        let cluster = self.world.kube.objects.cluster.as_ref();
        let rotates = |authority: Secret| authority.trusts.count() > 1;
        let given =
            self.world.kube.objects.secrets.get(&Purpose::ClientAuthority).copied().is_some_and(rotates);
        let is_due = |cluster: &Cluster| cluster.goal.asked.rotation.is_some() || cluster.gift.is_some();
        if cluster.is_some_and(is_due) || given { TIME_TO_SETTLE } else { 0 }
    }

    fn plans(&self) -> Vec<&Plan> {
        self.operators.iter().map(|operator| &operator.last_plan).collect()
    }

    fn differences(&self) -> Vec<Wrong> {
        ending::differences(&self.world, &self.plans())
    }

    /// Whether the cluster cannot converge any more: too much data is lost, or nothing can tell whether a bootstrap began,
    /// and the operators wait for exactly that.
    fn is_hopeless(&self) -> bool {
        let lost = self.world.data_at_risk && !ending::quorum_is_kept(&self.world);
        let in_doubt = |plan: &&Plan| {
            let waits =
                |it: &WaitingOn| matches!(it, WaitingOn::Volumes { .. } | WaitingOn::Formation { .. });
            plan.waiting.iter().any(waits)
                || plan.refusals.iter().any(|it| matches!(it, Refusal::FormationFailed { .. }))
        };
        let doubtful = ending::is_doubtful(&self.world) && self.plans().iter().all(in_doubt);
        lost || doubtful || self.truth_lost
    }

    /// Whether it is hopeless, and the operators report that.
    fn is_given_up(&self) -> bool {
        let reported = self.plans().iter().all(|plan| !plan.refusals.is_empty());
        self.truth_lost || self.is_hopeless() && reported
    }

    /// Whether all that is missing is a pod that stays Terminating because its node is down. Kubernetes creates no other
    /// pod of that name before a user forces the deletion or the node returns.
    fn waits_for_a_node(&self) -> bool {
        let down = &self.world.network.cut;
        let is_down = |ordinals: &[Ordinal]| ordinals.iter().all(|ordinal| down.contains(ordinal));
        let for_pod = |waiting: &WaitingOn| matches!(waiting, WaitingOn::Pod { ordinal, state: PodState::Terminating } if is_down(&[*ordinal]));
        let for_claim =
            |waiting: &WaitingOn| matches!(waiting, WaitingOn::ClaimsGone { ordinals } if is_down(ordinals));
        let for_node = |waiting: &WaitingOn| {
            let returns = waiting.member_on_lost_node().is_some();
            returns || for_pod(waiting) || for_claim(waiting) || waiting.is_rotation()
        };
        let waits = |plan: &&Plan| {
            plan.actions.is_empty() && !plan.waiting.is_empty() && plan.waiting.iter().all(for_node)
        };
        !down.is_empty() && self.plans().iter().all(waits)
    }

    fn fail(&mut self, problem: Problem) -> Failure {
        Failure {
            seed: self.script.seed,
            problem: problem.into(),
            trace: self.world.trace.take().unwrap_or_default(),
        }
    }
}
