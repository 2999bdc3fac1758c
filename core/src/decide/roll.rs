//! Members get the wanted form, one at a time: first those that do not serve, then followers, the leader last. A pod is ended
//! only while the StatefulSet creates pods of the wanted form. Until one of them has proved itself, and whenever one of them
//! cannot start, every other pod that is created gets the form that all members ran together last.

mod consent;
mod copy;
mod preflight;
mod reason;
mod unproven;
mod version;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Goal;
use super::step::SILENCE_SECONDS;
use crate::asked::Accepted;
use crate::assess::{Apart, Assessment, PodState, Quorum};
use crate::form::{Digest, Wanted};
use crate::observed::{MemberId, Members, Ordinal, Pod, Seen, Set};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::quorum::quorum;
use crate::tls::Section;
use crate::version::Version;
use crate::version::path::Verdict;
pub(crate) use preflight::{Trial, leftovers};
pub use reason::Reason;

/// With fewer voters a restart stops writes anyway, and a disruption budget would allow no eviction.
const TOLERATES_A_RESTART: usize = 3;

pub struct Roll<'a> {
    goal: &'a Goal,
    wanted: &'a Wanted,
    facts: &'a Assessment<'a>,
    set: &'a Set,
}

/// What comes next for the members that do not have the wanted form.
enum Next<'a> {
    /// The pod of this ordinal is ended, in one of two ways.
    End(Ordinal, Ending),
    Act(Action),
    /// The wanted form is tried first, on each of these nodes.
    Try(Vec<Trial<'a>>),
    Wait(WaitingOn),
    Refuse(Refusal),
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// With the consent of the disruption budget, which keeps us and drains from acting at the same time.
    Evict,
    Delete,
}

impl<'a> Roll<'a> {
    /// None while the spec is invalid, and without a StatefulSet that stays.
    pub fn new(goal: &'a Goal, facts: &'a Assessment<'a>) -> Option<Self> {
        let set = facts.seen.set.as_ref().filter(|set| !set.terminating)?;
        let wanted = goal.form.as_ref()?;
        Some(Self { goal, wanted, facts, set })
    }

    pub fn wanted_form(&self) -> &'a Digest {
        &self.wanted.form
    }

    /// What new pods are made from, and what is recorded of that: comes before anything else is done to members.
    pub fn keep_forms(&self) -> Plan {
        let seen = self.facts.seen;
        let there = self.set.template.as_ref();
        let recorded = seen.record.as_ref().map(|record| &record.form);
        let wanted = &self.wanted.form;
        let record = |form: &Digest| Plan::act(Action::RecordForm { form: form.clone() });
        let set_template = |form: &Digest| Plan::act(Action::SetTemplate { form: form.clone() });
        let follow = |form: &Digest| if there == Some(form) { Plan::default() } else { set_template(form) };
        // Before the bootstrap there is no form that members ran together. Pods that can start bootstrap as they are: then
        // the template has what they run, and an edit rolls out as any other.
        if self.facts.quorum == Quorum::NotBootstrapped {
            return if self.can_bootstrap() { Plan::default() } else { follow(wanted) };
        }
        if self.outdated_clearing() {
            return Plan::act(Action::RecordCleared { members: BTreeSet::new() });
        }
        if let Some(section) = self.unrecorded_section() {
            return Plan::act(Action::RecordTls { section });
        }
        match (recorded, there) {
            // What pods run and nobody recorded is only in the template.
            (None, Some(there)) if self.set.unmarked || there != wanted && !seen.pods.is_empty() => {
                record(there)
            }
            _ if recorded != Some(wanted) && self.all_have_it() => record(wanted),
            (None, _) => follow(wanted),
            (Some(recorded), _) if recorded == wanted => follow(wanted),
            (Some(_), _) if seen.pods.is_empty() && self.may_start_with_it() => follow(wanted),
            (Some(_), _) if self.may_stay() => Plan::default(),
            (Some(recorded), _) => follow(recorded),
        }
    }

    /// Whether `spec.security.tls` takes effect, if the record does not say so.
    fn unrecorded_section(&self) -> Option<Section> {
        let (record, switch) = (self.facts.seen.record.as_ref()?, self.goal.switch.as_ref()?);
        (record.tls.as_ref() != Some(&switch.section)).then(|| switch.section.clone())
    }

    fn can_bootstrap(&self) -> bool {
        let can_start = |ordinal: Ordinal| {
            let state = self.facts.pod(ordinal);
            !matches!(state, PodState::Missing | PodState::Rejected(_)) && !state.cannot_start()
        };
        self.set.replicas > 0 && Ordinal::below(self.set.replicas).all(can_start)
    }

    /// A cluster without pods starts in the wanted form, but not with another minor version: that is for one member at a
    /// time.
    fn may_start_with_it(&self) -> bool {
        self.refusal().is_none() && matches!(self.verdict(), Verdict::Nothing | Verdict::Patch)
    }

    /// Pods that cannot start, or members that do not serve: to end them costs nothing. Or why they are not ended, if nothing
    /// else can be done.
    pub fn mend(&self) -> Option<Plan> {
        let next = self.next();
        let is_due = match next {
            Next::End(ordinal, _) => !self.serves(ordinal),
            // With a quorum, other concerns come first.
            Next::Refuse(Refusal::OldEntries { .. }) => self.facts.listed().is_none(),
            Next::Act(_) | Next::Try(_) | Next::Wait(_) | Next::Refuse(_) | Next::Nothing => false,
        };
        is_due.then(|| self.plan(next))
    }

    pub fn restart_serving(&self) -> Option<Plan> {
        Some(self.plan(self.next()))
    }

    fn plan(&self, next: Next<'a>) -> Plan {
        match next {
            Next::End(..) if self.set.template.as_ref() != Some(&self.wanted.form) => {
                Plan::act(Action::SetTemplate { form: self.wanted.form.clone() })
            }
            Next::End(..) if !self.set.followed => Plan::wait(WaitingOn::Template),
            // A template with an older agent is written again beside the plan.
            Next::End(..) if self.set.agent < self.goal.lowest_agent => Plan::wait(WaitingOn::Template),
            Next::End(ordinal, ending) => match self.facts.seen.pods.get(&ordinal).map(|pod| pod.uid.clone())
            {
                Some(uid) if ending == Ending::Evict => Plan::act(Action::EvictPod { ordinal, uid }),
                Some(uid) => Plan::act(Action::DeletePod { ordinal, uid }),
                None => Plan::default(),
            },
            Next::Act(action) => Plan::act(action),
            Next::Try(trials) => self.plan_of(&trials),
            Next::Wait(waiting) => Plan::wait(waiting),
            Next::Refuse(refusal) => Plan::refuse(refusal),
            Next::Nothing => Plan::default(),
        }
    }

    fn next(&self) -> Next<'a> {
        let outdated: Vec<Ordinal> = self.outdated().map(|(ordinal, _)| ordinal).collect();
        if let Some(cancel) = self.leftover_downgrade() {
            return cancel;
        }
        if outdated.is_empty() {
            return self.last_to_serve();
        }
        if let Some(refusal) = self.refusal() {
            return Next::Refuse(refusal);
        }
        // The wanted form itself is at fault: it goes no further.
        if !self.has_worked()
            && let Some((ordinal, state)) = self.tried().find(|(_, state)| state.cannot_start())
        {
            return Next::Wait(WaitingOn::Rolled { ordinal, state: state.clone() });
        }
        let broken = outdated.iter().filter(|it| self.is_broken(**it));
        if let Some(&ordinal) = broken.min_by_key(|it| self.lacks_volume(**it))
            && self.may_mend(ordinal)
        {
            let members = self.unreadable_logs();
            return match members.is_empty() {
                true => Next::End(ordinal, Ending::Delete),
                false => Next::Refuse(Refusal::OldEntries { members }),
            };
        }
        let Some(members) = self.facts.listed() else { return Next::Nothing };
        // A pod whose member is still to be added is not of this rollout: it might not join before the rollout is over.
        let mut joined = self.rolled().filter(|(ordinal, _)| members.at(*ordinal).is_some());
        if let Some((ordinal, state)) = joined.find(|(ordinal, _)| !self.is_proven(*ordinal)) {
            return Next::Wait(WaitingOn::Rolled { ordinal, state: state.clone() });
        }
        let away: Vec<Ordinal> = Ordinal::below(self.set.replicas).filter(|it| self.is_away(*it)).collect();
        if !away.is_empty() {
            return Next::Wait(WaitingOn::PodsBack { ordinals: away });
        }
        if self.needs_approval() {
            return Next::Wait(WaitingOn::Approval { form: self.wanted.form.clone() });
        }
        if let Some(consent) = self.consent() {
            return Next::Wait(consent);
        }
        let trials = self.trials();
        if !trials.is_empty() {
            return Next::Try(trials);
        }
        self.before_version(members).unwrap_or_else(|| self.next_of(members, &outdated))
    }

    /// One member has the new form by now, and nobody has approved it for the others.
    fn needs_approval(&self) -> bool {
        let wanted = Some(&self.wanted.form);
        let is_new = self.facts.seen.record.as_ref().is_some_and(|record| Some(&record.form) != wanted);
        let approved = self.goal.asked.approved.as_ref() == wanted;
        self.goal.supervised && is_new && !approved && self.rolled().next().is_some()
    }

    /// A restart that was not accepted yet: of the pods that exist now.
    pub fn accept_restart(&self) -> Plan {
        let Some(request) = &self.goal.asked.restart else { return Plan::default() };
        if self.facts.seen.cluster.restart.as_ref().is_some_and(|(token, _)| *token == request.token) {
            return Plan::default();
        }
        let pods = self.pods().filter(|(ordinal, _)| request.pod.is_none_or(|pod| pod == *ordinal));
        let pods = pods.map(|(_, pod)| pod.uid.clone()).collect();
        Plan::act(Action::Accept(Accepted::Restart { token: request.token.clone(), pods }))
    }

    /// Every pod has the wanted form: a rollout is over when every member serves with it.
    fn last_to_serve(&self) -> Next<'a> {
        let recorded = self.facts.seen.record.as_ref().is_none_or(|record| record.form == self.wanted.form);
        match self.rolled().find(|(ordinal, _)| !recorded && !self.is_proven(*ordinal)) {
            Some((ordinal, state)) => Next::Wait(WaitingOn::Rolled { ordinal, state: state.clone() }),
            None => Next::Nothing,
        }
    }

    /// Of members whose pods can start, while everybody else is well.
    fn next_of(&self, members: &Members, outdated: &[Ordinal]) -> Next<'a> {
        let voters = members.voters().count();
        let leader = |ordinal: Ordinal| {
            members.leader.filter(|leader| members.at(ordinal).is_some_and(|it| it.0 == *leader))
        };
        let rank = |it: &Ordinal| (self.serves(*it), leader(*it).is_some(), Reverse(*it));
        // Who joins is promoted first.
        let votes = |ordinal: &&Ordinal| members.at(**ordinal).is_some_and(|(_, member)| !member.learner);
        let begins = |ordinal: &&Ordinal| {
            self.facts.seen.pods.get(ordinal).is_some_and(|pod| self.may_begin(members, pod))
        };
        let Some(&ordinal) = outdated.iter().filter(votes).filter(begins).min_by_key(|it| rank(it)) else {
            return Next::Nothing;
        };
        if let Some(waiting) = self.against_restart(members, ordinal) {
            return Next::Wait(waiting);
        }
        // The budget also counts members that are still to be added, and might then allow no eviction.
        let allows = voters > quorum(voters.max(usize::from(self.goal.size)));
        let evicts = self.goal.disruption_budget && allows && !self.is_down(members, ordinal);
        let ending = if evicts { Ending::Evict } else { Ending::Delete };
        // Once this one has ended, the others need each other, and they might have been restarted, too. One that does not respond
        // to the operator might be what connects them.
        if let Some(Apart { from, to }) = self.facts.apart(None).filter(|_| voters >= TOLERATES_A_RESTART) {
            return Next::Wait(WaitingOn::Connection { from, to });
        }
        if !self.serves(ordinal) {
            return Next::End(ordinal, ending);
        }
        let rolled = |id: &MemberId| {
            members.list.get(id).and_then(|it| it.ordinal).is_some_and(|it| self.is_proven(it))
        };
        match leader(ordinal).and_then(|from| Some((from, self.facts.serving().find(rolled)?))) {
            Some((from, to)) => Next::Act(Action::MoveLeader { from, to, cluster: members.cluster }),
            None => Next::End(ordinal, ending),
        }
    }

    fn against_restart(&self, members: &Members, ordinal: Ordinal) -> Option<WaitingOn> {
        let voters = members.voters().count();
        let others = self.facts.serving().filter(|id| members.at(ordinal).is_none_or(|it| it.0 != *id));
        let (serving, needed) = (others.count(), quorum(voters));
        (voters >= TOLERATES_A_RESTART && serving < needed).then_some(WaitingOn::QuorumMargin {
            ordinal,
            serving,
            needed,
        })
    }

    /// A kubelet can be late to report that etcd runs. What serves might also be of another cluster.
    fn is_broken(&self, ordinal: Ordinal) -> bool {
        let answer = self.facts.seen.etcd.answers.get(&ordinal).and_then(Seen::known);
        let state = self.facts.pod(ordinal);
        // In the wanted form it might not be able to join either: then the members change first.
        let joins = |cluster: Version| self.wanted.version.minor() >= cluster;
        matches!(state, PodState::VersionTooLow { cluster, .. } if joins(*cluster))
            || state.cannot_start() && !answer.is_some_and(|answer| answer.linearizable)
    }

    /// One response that is missing proves nothing: until it is certain, the disruption budget decides with us.
    fn is_down(&self, members: &Members, ordinal: Ordinal) -> bool {
        let silent = |(id, _): (MemberId, _)| self.facts.is_silent_for(id, SILENCE_SECONDS);
        self.is_broken(ordinal) || members.at(ordinal).is_some_and(silent)
    }

    /// Why no member may get the wanted form, if so.
    pub fn refusal(&self) -> Option<Refusal> {
        let held = self.facts.seen.record.as_ref().and_then(|record| record.held_generation);
        let held = held.filter(|held| Some(*held) == self.facts.seen.cluster.generation);
        // Whether the transport waits is recorded by itself.
        let plain = self.facts.seen.record.as_ref().and_then(|record| record.plain.as_ref());
        let held = held.filter(|_| plain.is_none() || plain != self.wanted.plain.as_ref());
        held.map(|_| Refusal::EditHeld).or_else(|| self.against_version())
    }

    /// The pods that stay.
    fn pods(&self) -> impl Iterator<Item = (Ordinal, &'a Pod)> {
        let (replicas, pods) = (self.set.replicas, &self.facts.seen.pods);
        pods.iter()
            .map(|(&ordinal, pod)| (ordinal, pod))
            .filter(move |(it, pod)| it.0 < replicas && !pod.terminating)
    }

    /// Why this pod is replaced.
    pub fn reasons(&self, pod: &Pod) -> impl Iterator<Item = Reason> {
        Reason::of(pod, self.goal, self.facts.seen)
    }

    pub fn has_it(&self, pod: &Pod) -> bool {
        self.reasons(pod).next().is_none()
    }

    fn has_form(&self, pod: &Pod) -> bool {
        pod.form.as_ref() == Some(&self.wanted.form)
    }

    /// The pods that stay and are replaced.
    fn outdated(&self) -> impl Iterator<Item = (Ordinal, &'a Pod)> {
        self.pods().filter(|(_, pod)| !self.has_it(pod))
    }

    /// Pods that have the wanted form, and how they are; without those that cannot join before the members have it, too.
    fn rolled(&self) -> impl Iterator<Item = (Ordinal, &PodState)> {
        let rolled = self.pods().filter(|(_, pod)| self.has_it(pod));
        rolled
            .map(|(ordinal, _)| (ordinal, self.facts.pod(ordinal)))
            .filter(|(_, state)| !state.cannot_join())
    }

    /// A voter that serves and is what was wanted, whatever its pod says.
    pub fn is_proven(&self, ordinal: Ordinal) -> bool {
        self.serves_as_wanted(ordinal)
            && self.facts.seen.pods.get(&ordinal).is_some_and(|pod| self.has_it(pod))
    }

    /// In the wanted version.
    fn serves_as_wanted(&self, ordinal: Ordinal) -> bool {
        let Some((id, _)) = self.facts.listed().and_then(|members| members.at(ordinal)) else { return false };
        let version = self.facts.answer_of(id).and_then(|answer| answer.version);
        self.facts.serves(id) && version == Some(self.wanted.version)
    }

    fn serves(&self, ordinal: Ordinal) -> bool {
        let member = self.facts.listed().and_then(|members| members.at(ordinal));
        member.is_some_and(|(id, _)| self.facts.serves(id))
    }

    fn is_away(&self, ordinal: Ordinal) -> bool {
        self.facts.seen.pods.get(&ordinal).is_none_or(|pod| pod.terminating)
    }

    /// Every member runs in the wanted form and serves.
    fn all_have_it(&self) -> bool {
        let Some(members) = self.facts.listed() else { return false };
        let listed = members.list.len() == usize::from(self.set.replicas) && self.set.replicas > 0;
        listed
            && Ordinal::below(self.set.replicas)
                .all(|ordinal| !self.is_away(ordinal) && self.is_proven(ordinal))
    }
}
