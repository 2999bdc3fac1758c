//! What the operator must never do while members get another form.

use std::collections::BTreeMap;

use etcd_operator_core::observed::{Observed, Ordinal, PreflightState, Seen};
use etcd_operator_core::plan::{Action, Plan};
use etcd_operator_core::quorum::quorum;
use etcd_operator_core::schedule::Opening;
use etcd_operator_core::tls::Switch;

use crate::etcd::{Tick, api};
use crate::execute::Wanted;
use crate::form::Form;
use crate::kube::{Pod, Template};
use crate::observe::time;
use crate::problem::Violation;
use crate::world::World;

/// How many observations operators need at most to notice that a pod has a form that has not proved itself, and to have it
/// replaced in the template. Requests are lost, late and overtaken in between.
const ENOUGH: u32 = 12;
/// With fewer voters a restart stops writes anyway.
const TOLERATES_A_RESTART: usize = 3;

/// What operators ended to give it another form.
#[derive(Debug, Default)]
pub struct Ended {
    /// The UIDs of pods that served, until a member serves in their place, and from when on operators know of their end.
    pods: BTreeMap<Ordinal, (u64, Tick)>,
    /// How many there were.
    pub count: usize,
    /// How often operators observed that the template should go back to the form that is recorded.
    pub observed: u32,
}

impl World {
    /// These serve linearizable reads now.
    pub fn watch_service(&mut self, serving: &[Ordinal]) {
        for (ordinal, sandbox) in &mut self.kube.sandboxes {
            sandbox.ready = serving.contains(ordinal);
            if sandbox.ready {
                self.forms.serves(sandbox.template.form, *ordinal);
                self.ended.pods.retain(|it, (uid, _)| it != ordinal || *uid == sandbox.uid);
            }
        }
        let members = self.members();
        self.ended.pods.retain(|it, _| members.values().any(|peer| peer.ordinal == *it));
        if !self.is_exposed() {
            self.ended.observed = 0;
        }
    }

    pub fn all_serve(&self) -> bool {
        let serves = |ordinal: &Ordinal| self.kube.sandboxes.get(ordinal).is_some_and(|it| it.ready);
        self.members().values().filter(|peer| !peer.learner).all(|peer| serves(&peer.ordinal))
            || self.servers.is_empty()
    }

    /// Whether every pod that is created now gets a form that is not known to work, although the pod that was ended for it is
    /// there.
    fn is_exposed(&self) -> bool {
        let objects = &self.kube.objects;
        let Some((cluster, set)) = objects.cluster.as_ref().zip(objects.set) else { return false };
        let form = set.spec.template.form;
        cluster.form.number == form.number && self.is_on_trial(form) && self.pods_of(form).next().is_some()
    }

    /// Whether nothing shows that a form works.
    fn is_on_trial(&self, form: Form) -> bool {
        let recorded = self.kube.objects.record.is_some_and(|record| record.form != form);
        recorded && !self.forms.has_served(form)
    }

    fn pods_of(&self, form: Form) -> impl Iterator<Item = Ordinal> {
        let pods = self.kube.objects.pods.iter();
        pods.filter(move |(_, pod)| pod.template.form == form && !pod.terminating).map(|(&it, _)| it)
    }

    fn window_is_open(&self) -> bool {
        let cluster = self.kube.objects.cluster.as_ref();
        cluster.is_some_and(|it| Opening::of(&it.goal.windows, time(self.now)) == Opening::Now)
    }

    /// An operator has decided that sees everything, unless it cannot reach a pod: then it might not know of a quorum.
    pub fn observed_clearly(&mut self) {
        if self.unreachable.is_empty() {
            self.ended.observed += 1;
        }
    }

    /// The StatefulSet controller has created a pod.
    pub fn watch_creation(&mut self, ordinal: Ordinal) {
        let Some(form) = self.kube.objects.pods.get(&ordinal).map(|pod| pod.template.form) else { return };
        self.note(|| format!("pod {ordinal} is created in form {}", form.number));
        let another = self.pods_of(form).any(|it| it != ordinal);
        // Without a quorum, members that cannot start are created again before one of them can prove anything.
        let quorum = self.kube.sandboxes.values().any(|sandbox| sandbox.ready);
        // Two operators overtake each other.
        let enough = if self.has_rivals { 2 * ENOUGH } else { ENOUGH };
        if quorum && self.is_on_trial(form) && another && self.ended.observed > enough {
            self.violate(Violation::FormSpread(ordinal));
        }
    }
}

/// No pod is ended whose member serves in the form that is wanted, or while too many others have been.
pub fn pod_may_end(world: &mut World, ordinal: Ordinal, wanted: Wanted, evicted: bool) {
    let Some(pod) = world.kube.objects.pods.get(&ordinal).filter(|pod| !pod.terminating) else { return };
    let (uid, Template { form, agent, .. }) = (pod.uid, pod.template);
    let Some(server) = world.servers.get(&ordinal) else { return };
    let member = server.id();
    let members = world.members();
    let votes = members.get(&member).is_some_and(|peer| !peer.learner);
    if !votes || world.formed() != Some(server.data.cluster) {
        return;
    }
    // Authorities change only because a user asked for that.
    let edited = form != wanted.form || world.distrusts(ordinal, &world.kube.objects.secrets);
    if !edited && agent >= world.agent {
        world.violate(Violation::VoterDisrupted { member, ordinal });
    }
    if !world.kube.sandboxes.get(&ordinal).is_some_and(|sandbox| sandbox.ready) {
        return;
    }
    let voters = members.values().filter(|peer| !peer.learner).count();
    if voters < TOLERATES_A_RESTART && !edited && !world.window_is_open() {
        world.violate(Violation::EndedWithoutConsent(ordinal));
    }
    world.ended.count += 1;
    // Nobody knows of a request that is late before it is observed what it did.
    let known_from = if wanted.late { world.now + world.past.depth + 2 } else { world.now };
    world.ended.pods.insert(ordinal, (uid, known_from));
    let ended = world.ended.pods.values().filter(|(_, known_from)| *known_from <= world.now).count();
    // Operators that act at the same time know nothing of each other, and neither does a request that is late: a budget would.
    let alone = evicted || !wanted.late && !world.has_rivals;
    if alone && ended > (voters - quorum(voters)).max(1) {
        world.violate(Violation::TooManyEnded { ended, voters });
    }
    // What was created while the operator observed is unknown to it.
    let known = |it: &Ordinal| {
        let pod = world.kube.objects.pods.get(it);
        pod.is_some_and(|pod| pod.created + world.past.depth + 2 < world.now)
    };
    // One that cannot join yet proves nothing.
    let joined = |it: &Ordinal| members.values().any(|peer| peer.ordinal == *it);
    let spreads =
        world.is_on_trial(wanted.form) && world.pods_of(wanted.form).any(|it| known(&it) && joined(&it));
    if spreads && !wanted.late && !world.has_rivals {
        world.violate(Violation::FormSpread(ordinal));
    }
}

/// What all members ran together is what each of them served in.
pub fn form_is_run_by_all(world: &mut World, form: Form) {
    let Some(record) = world.kube.objects.record else { return };
    let voters = world.members();
    // Another operator might have promoted a member in this very moment.
    let serves = |it: &Ordinal| {
        let pod = world.kube.sandboxes.get(it).is_some_and(|sandbox| sandbox.template.form == form);
        pod && api::linearizable_revision(&world.servers, &world.network, *it).is_some()
    };
    let has_run = |it: &Ordinal| world.forms.has_served_in(form, *it) || serves(it);
    // Who joins meanwhile does not run it yet.
    let voters = voters.values().filter(|peer| !peer.learner);
    let missing = voters.map(|peer| peer.ordinal).find(|it| !has_run(it));
    if let Some(ordinal) = missing.filter(|_| record.form != form) {
        world.violate(Violation::RecordedEarly(ordinal));
    }
}

/// What was decided on what is so in this moment.
pub fn decision_is_safe(world: &mut World, seen: &Observed, plan: &Plan) {
    for action in &plan.actions {
        if let Action::EvictPod { ordinal, .. } | Action::DeletePod { ordinal, .. } = action {
            end_is_safe(world, seen, *ordinal);
        }
    }
}

fn end_is_safe(world: &mut World, seen: &Observed, ordinal: Ordinal) {
    let objects = &world.kube.objects;
    let members = world.members();
    let is_voter = |it: Ordinal| members.values().any(|peer| peer.ordinal == it && !peer.learner);
    let (Some(cluster), Some(set)) = (&objects.cluster, objects.set) else { return };
    // Nothing ever ran in a pod without a volume.
    let has_volume = objects.claims.get(&ordinal).is_some_and(|claim| claim.volume.is_some());
    if !is_voter(ordinal) || !has_volume {
        return;
    }
    let wanted = cluster.form.with(Switch::of(&cluster.tls, cluster.goal.asked.apply_tls, seen).form);
    let prepared = set.spec.template.form == wanted && set.spec.template.agent >= world.agent;
    if !prepared || !set.is_followed() {
        world.violate(Violation::EndedUnprepared(ordinal));
        return;
    }
    // As an operator would be answered now; another one might have promoted a member in this very moment.
    let serves = |it: &Ordinal| api::linearizable_revision(&world.servers, &world.network, *it).is_some();
    let voters: Vec<Ordinal> =
        members.values().filter(|peer| !peer.learner).map(|peer| peer.ordinal).collect();
    let others: Vec<Ordinal> = voters.iter().copied().filter(|it| *it != ordinal && serves(it)).collect();
    let needed = quorum(voters.len());
    // An etcd that starts in this very moment has answered nobody, and its kubelet has not reported it.
    let starts = world.kube.sandboxes.get(&ordinal).is_some_and(|sandbox| sandbox.starts + 1 >= world.now);
    if !serves(&ordinal) || starts {
        return;
    }
    if voters.len() >= TOLERATES_A_RESTART && others.len() < needed {
        world.violate(Violation::QuorumLost { connected: others.len(), voters: voters.len() });
        return;
    }
    let supporters =
        |it: &Ordinal| others.iter().filter(|other| world.network.connects(*it, **other)).count();
    let most = others.iter().map(supporters).max().unwrap_or(0);
    if voters.len() >= TOLERATES_A_RESTART && most < needed {
        world.violate(Violation::VotersApart { connected: most, voters: voters.len() });
        return;
    }
    // What the operator cannot reach might not serve.
    let answer = seen.etcd.answers.get(&ordinal).and_then(Seen::known);
    let knows_leader = seen.etcd.members.known().is_some_and(|members| members.leader.is_some())
        && answer.is_some_and(|answer| answer.linearizable);
    let leads = world.servers.get(&ordinal).is_some_and(|server| server.leads());
    let waits = |it: &Ordinal| {
        let is_outdated = |pod: &Pod| pod.template.form != wanted || pod.template.agent < world.agent;
        let outdated = objects.pods.get(it).is_some_and(is_outdated);
        outdated && world.servers.get(it).is_some_and(|server| !server.leads())
    };
    if knows_leader && leads && others.iter().any(waits) {
        world.violate(Violation::LeaderEndedFirst(ordinal));
    }
    if !is_tried(world, seen, wanted) {
        world.violate(Violation::EndedUntried(ordinal));
    }
}

/// Whether the image and the arguments of a form are known to work: all members ran them, a member serves with them, or a pod
/// has passed on the node of every member that serves, as far as the operator reaches it.
fn is_tried(world: &World, seen: &Observed, wanted: Form) -> bool {
    let objects = &world.kube.objects;
    let serves = |it: &Ordinal| {
        let answer = seen.etcd.answers.get(it).and_then(Seen::known);
        answer.is_some_and(|answer| answer.linearizable)
    };
    let passed = |node| {
        let mut pods = objects.preflights.values().filter(|pod| Some(pod.node) == node);
        pods.any(|pod| pod.form.proof == wanted.proof && pod.state == PreflightState::Passed)
    };
    let serving = objects.pods.iter().filter(|(it, pod)| !pod.terminating && serves(it));
    let serving: Vec<_> = serving.map(|(_, pod)| pod).collect();
    objects.record.is_none_or(|record| record.form.proof == wanted.proof)
        || serving.iter().any(|pod| pod.template.form == wanted)
        || serving.iter().all(|pod| passed(pod.node))
}
