//! A rollout that is not finished: how far it has come, what comes next, and what stops it.

use super::conditions::{Value, find};
use super::view::{Service, View};
use crate::assess::{MemberState, PodState};
use crate::decide::{Reason, Roll};
use crate::names::{condition, reason};
use crate::observed::{Blocked, Ordinal, Seen};
use crate::plan::{Action, Refusal};
use crate::version::Version;

/// How long a restarted member can take to serve, or a preflight pod to succeed, before the rollout counts as stalled.
pub(super) const SERVES_WITHIN_SECONDS: i64 = 60;

pub(super) struct Rollout<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) roll: Roll<'a>,
}

/// Why a restarted member does not count as rolled, or a preflight pod has not succeeded.
pub(super) struct Cause {
    pub reason: &'static str,
    pub text: String,
    /// Time alone does not end it.
    pub lasting: bool,
}

impl<'a> View<'a> {
    /// None if all members ran with what the spec asks for, or if nothing is rolled out.
    pub fn rollout(&self) -> Option<Rollout<'_>> {
        self.edited_form().filter(|it| it.roll.refusal().is_none() && it.roll.consent().is_none())
    }

    /// Restarts for reasons of the operator that wait for consent. Until then the cluster is what its spec asks for.
    pub fn awaiting_consent(&self) -> Option<Rollout<'_>> {
        self.edited_form().filter(|it| it.roll.refusal().is_none() && it.roll.consent().is_some())
    }

    /// Why an edit of the members is not rolled out, if so.
    pub fn refused_rollout(&self) -> Option<Refusal> {
        self.edited_form()?.roll.refusal()
    }

    fn edited_form(&self) -> Option<Rollout<'_>> {
        let running = !matches!(self.service, Service::NotBootstrapped | Service::Stopped);
        let wanted = running && self.size() > 0 && !self.seen().cluster.deleting;
        let roll = Roll::new(self.basis.goal, &self.facts).filter(|_| wanted)?;
        let recorded = self.seen().record.as_ref().is_none_or(|record| record.form == *roll.wanted_form());
        let everywhere = self.seen().pods.values().all(|pod| roll.has_it(pod));
        (!recorded || !everywhere).then_some(Rollout { view: self, roll })
    }
}

impl Rollout<'_> {
    /// Such as `2 of 3 members rolled`: restarted and serving. Unless the spec was edited, also why.
    pub fn progress(&self) -> String {
        let all = self.view.seen().replicas();
        let done = Ordinal::below(all).filter(|ordinal| self.roll.is_proven(*ordinal)).count();
        let why = match Ordinal::below(all).filter_map(|ordinal| self.reason_to_restart(ordinal)).min() {
            Some(reason) if reason != Reason::FormDiffers => format!(" {}", reason.words()),
            Some(_) | None => String::new(),
        };
        format!("{done} of {all} members rolled{why}")
    }

    /// The version that members get, if some ran another one.
    pub fn new_version(&self) -> Option<Version> {
        let wanted = self.view.basis.goal.form.as_ref()?.version;
        let recorded = self.view.seen().record.as_ref().map(|record| record.version);
        let mut others = self.view.facts.answers().filter_map(|answer| answer.version).chain(recorded);
        others.any(|version| version != wanted).then_some(wanted)
    }

    /// Why this pod is replaced, if it is there and waits for that.
    pub fn reason_to_restart(&self, ordinal: Ordinal) -> Option<Reason> {
        let pod = self.view.seen().pods.get(&ordinal).filter(|pod| !pod.terminating)?;
        self.roll.reasons(pod).next()
    }

    /// The steps of the plan, as parts of the rollout.
    pub fn steps(&self) -> Vec<String> {
        let tried = self.tried().map(|tried| format!(", {tried}")).unwrap_or_default();
        let mut steps = vec![self.progress() + &tried];
        let is_about_trials =
            |it: &&Action| matches!(it, Action::CreatePreflight { .. } | Action::DeletePreflight { .. });
        for action in self.view.basis.plan.actions.iter().filter(|it| !is_about_trials(it)) {
            match self.next(action) {
                Some(next) => steps[0] += &format!(", next {next}"),
                None => steps.push(self.other(action)),
            }
        }
        steps
    }

    /// The member that restarts next, and what that costs.
    fn next(&self, action: &Action) -> Option<String> {
        let members = self.view.facts.listed();
        let name = |ordinal| self.view.basis.names.pod(ordinal);
        if let Action::MoveLeader { from, to, cluster: _ } = action {
            let ordinal = |id| members.and_then(|members| members.list.get(id)?.ordinal);
            let (from, to) = (ordinal(from)?, ordinal(to)?);
            let stays = from.0 < self.view.basis.goal.size;
            return stays.then(|| format!("{} after leadership moves to {}", name(from), name(to)));
        }
        let (Action::EvictPod { ordinal, uid: _ } | Action::DeletePod { ordinal, uid: _ }) = action else {
            return None;
        };
        let pod = name(*ordinal);
        self.reason_to_restart(*ordinal).map(|_| match self.view.facts.restart_stops_writes(*ordinal) {
            true => format!("{pod}: restarting {pod} stops writes until it returns"),
            false => pod,
        })
    }

    fn other(&self, action: &Action) -> String {
        let Action::SetTemplate { form } = action else { return self.view.terms().action(action) };
        match form == self.roll.wanted_form() {
            true => "prepare the next restart".into(),
            false => "let other new pods have the previous spec".into(),
        }
    }

    /// Whether the rollout is stalled: unknown while a restarted member has not had its time to serve.
    pub fn stalled(&self) -> (Value, &'static str, String) {
        if let Some(before_the_first) = self.stalled_trial() {
            return before_the_first;
        }
        if let Some(before_the_first) = self.stalled_copy() {
            return before_the_first;
        }
        let unproven: Vec<_> = self.unproven().collect();
        let lasting: Vec<_> = unproven.iter().filter(|(_, cause)| cause.lasting).collect();
        let Some((first, cause)) = lasting.first().copied().or(unproven.first()) else {
            return (Value::False, reason::NOT_STALLED, "nothing blocks the rollout".into());
        };
        let pod = self.view.basis.names.pod(*first);
        let reported = self.reported(&pod);
        let long = self.view.was(condition::ROLLOUT_STALLED, Value::Unknown, SERVES_WITHIN_SECONDS);
        match reported {
            // Between two crashes etcd runs for a moment and has nothing to report.
            Some(reported) if !cause.lasting && self.is_silent(*first) => reported,
            None if !cause.lasting && !long => {
                let message = format!("waiting for {pod} to serve after its restart: {}", cause.text);
                (Value::Unknown, reason::ROLLING_OUT, message)
            }
            Some(_) | None => (Value::True, cause.reason, self.way_out(*first, cause)),
        }
    }

    /// Why, since when, and what to do.
    fn way_out(&self, ordinal: Ordinal, cause: &Cause) -> String {
        let pod = self.view.basis.names.pod(ordinal);
        let since = self.down_since(ordinal).map(|since| format!(" has not served since {since:.0}"));
        let (Cause { text, .. }, edit) = (cause, self.edit());
        format!(
            "{pod}{}: {text}; the rollout waits for it: revert {edit}, or correct it",
            since.unwrap_or_default()
        )
    }

    pub(super) fn edit(&self) -> String {
        match self.view.basis.edited {
            [] => "the edit".into(),
            fields => format!("the edit of {}", fields.join(", ")),
        }
    }

    /// What the condition said of this pod before, if it was stalled.
    pub(super) fn reported(&self, pod: &str) -> Option<(Value, &'static str, String)> {
        let before = find(&self.view.before.conditions, condition::ROLLOUT_STALLED)?;
        let same = before.status == "True" && before.message.split([' ', ':']).next() == Some(pod);
        let reason = reason::ALL.iter().find(|reason| **reason == before.reason).filter(|_| same)?;
        Some((Value::True, reason, before.message.clone()))
    }

    /// Pods that have what is wanted, or cannot be created with it, and have not served yet.
    fn unproven(&self) -> impl Iterator<Item = (Ordinal, Cause)> {
        let seen = self.view.seen();
        let created =
            seen.set.as_ref().and_then(|set| set.template.as_ref()) == Some(self.roll.wanted_form());
        let has_it = move |ordinal: &Ordinal| match seen.pods.get(ordinal) {
            Some(pod) => !pod.terminating && self.roll.has_it(pod),
            None => created && matches!(self.view.facts.pod(*ordinal), PodState::Rejected(_)),
        };
        let candidates = Ordinal::below(seen.replicas()).filter(has_it);
        let unproven = candidates.filter(|ordinal| !self.roll.is_proven(*ordinal));
        unproven
            .map(|ordinal| (ordinal, self.cause(ordinal)))
            .filter(|(it, cause)| cause.lasting || !self.joins(*it))
    }

    /// A member that joins takes its time, and not because of the edit.
    fn joins(&self, ordinal: Ordinal) -> bool {
        let listed = self.view.facts.listed();
        listed.is_some_and(|members| members.at(ordinal).is_none_or(|(_, member)| member.learner))
    }

    fn cause(&self, ordinal: Ordinal) -> Cause {
        let pod = self.view.facts.pod(ordinal);
        let lasting = pod.cannot_start() || matches!(pod, PodState::Rejected(_));
        if *pod == PodState::Running {
            return self.cause_of_running(ordinal);
        }
        let crashes = matches!(pod, PodState::Crashing(_));
        let reason = if crashes { reason::MEMBER_CRASHING } else { reason_of(pod) };
        Cause { reason, text: pod.text(), lasting }
    }

    fn cause_of_running(&self, ordinal: Ordinal) -> Cause {
        let seen = self.view.seen();
        let answer = seen.etcd.answers.get(&ordinal).and_then(Seen::known);
        let state = MemberState::of(answer);
        let wanted = self.view.basis.goal.form.as_ref().map(|wanted| wanted.version);
        let behind = answer.and_then(|answer| self.view.facts.entries_behind(answer.member));
        let (reason, text) = match (&state, behind) {
            (MemberState::Serving, _) => {
                let version =
                    |version: Option<Version>| version.map_or("unknown".into(), |it| it.to_string());
                let text = format!(
                    "its image contains etcd {} instead of {}",
                    version(answer.and_then(|it| it.version)),
                    version(wanted)
                );
                return Cause {
                    reason: reason::VERSION_MISMATCH,
                    text,
                    lasting: self.view.facts.listed().is_some(),
                };
            }
            (MemberState::NoLeader, _) => (reason::NO_LEADER, state.to_string()),
            (MemberState::ReadsFailing, Some(behind @ 1..)) => {
                (reason::CATCHING_UP, format!("{} the leader", self.view.terms().behind(behind)))
            }
            (MemberState::ReadsFailing, _) => (reason::MEMBERS_NOT_SERVING, state.to_string()),
            _ => (reason::MEMBER_STARTING, MemberState::Silent.to_string()),
        };
        Cause { reason, text, lasting: false }
    }

    fn is_silent(&self, ordinal: Ordinal) -> bool {
        self.view.seen().etcd.answers.get(&ordinal).and_then(Seen::known).is_none()
    }

    /// None for a pod that is no member, and for one that serves.
    fn down_since(&self, ordinal: Ordinal) -> Option<jiff::Timestamp> {
        let pod = self.view.basis.names.pod(ordinal);
        let id = match self.view.facts.listed() {
            Some(members) => {
                let (id, _) = members.at(ordinal).filter(|(id, _)| !self.view.facts.serves(*id))?;
                id.to_string()
            }
            None => {
                let mut known = self.view.before.members.iter();
                known.find(|it| it.name.as_ref() == Some(&pod))?.id.clone()?
            }
        };
        Some(self.view.since(&id, false).0)
    }
}

/// That an image is missing has a reason of its own.
pub(super) fn reason_of(pod: &PodState) -> &'static str {
    let no_image =
        matches!(pod, PodState::Blocked(Blocked::Container { reason, .. }) if is_about_the_image(reason));
    if no_image { reason::IMAGE_PULL_FAILED } else { pod.reason() }
}

/// In the kubelet's words: `ErrImagePull`, `ImagePullBackOff`, `InvalidImageName`.
fn is_about_the_image(reason: &str) -> bool {
    reason.contains("Image") || matches!(reason, "RegistryUnavailable" | "SignatureValidationFailed")
}
