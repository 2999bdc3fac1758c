//! Which pods get the wanted form while nothing has proved that it works: one at a time.

use super::{Next, Roll};
use crate::assess::PodState;
use crate::observed::{Ordinal, Process};
use crate::version::Version;

impl Roll<'_> {
    /// Whether the template may have the wanted form, although not all members do: for the pod that was ended for it, and when
    /// the form has proved itself. A pod that is missing while another one is on trial was ended by somebody else.
    pub(super) fn may_stay(&self) -> bool {
        let works = self.rolled().any(|(ordinal, _)| self.is_proven(ordinal));
        let on_trial = self.tried().any(|(ordinal, state)| self.is_on_trial(ordinal, state));
        let fails = self.tried().any(|(_, state)| state.cannot_start());
        let expected = Ordinal::below(self.set.replicas).any(|ordinal| self.is_away(ordinal));
        let ends = expected && !on_trial || matches!(self.next(), Next::End(..));
        self.set.template.as_ref() == Some(&self.wanted.form)
            && (works && !fails || ends && !self.adds_pods())
    }

    /// Whether the StatefulSet is about to create pods of further members, which can join in the form that is recorded.
    /// Without a quorum it is not.
    fn adds_pods(&self) -> bool {
        let Some(members) = self.facts.listed() else { return false };
        let recorded = self.facts.seen.record.as_ref().map(|record| record.version.minor());
        let versions = members.list.keys().filter_map(|id| self.facts.answer_of(*id)?.version);
        let lowest = versions.map(Version::minor).min();
        self.set.replicas < self.goal.size && lowest <= recorded
    }

    /// All members ran it together, so a pod that has it and cannot start has another reason.
    pub(super) fn has_worked(&self) -> bool {
        self.facts.seen.record.as_ref().is_some_and(|record| record.form == self.wanted.form)
    }

    /// Whether it is open whether the form works in a pod that has it. Without a quorum no member serves, so it is enough that
    /// the container has started.
    fn is_on_trial(&self, ordinal: Ordinal, state: &PodState) -> bool {
        match self.facts.listed() {
            Some(_) => !self.is_proven(ordinal),
            None => state.blocks_start(),
        }
    }

    /// A pod that was ended because it could not start, while the next one of its name is not there yet. One that ran might
    /// be on a node that is down, and stay.
    fn is_being_mended(&self, ordinal: Ordinal) -> bool {
        match self.facts.seen.pods.get(&ordinal) {
            Some(pod) => pod.terminating && matches!(pod.etcd, Process::CannotStart(_) | Process::Failing(_)),
            None => *self.facts.pod(ordinal) == PodState::Missing,
        }
    }

    /// Whether a broken pod gets the wanted form, although others that have it might be on trial.
    pub(super) fn may_mend(&self, ordinal: Ordinal) -> bool {
        let Some(members) = self.facts.listed() else {
            // Of pods without a volume, only one gets a form that nothing has proved.
            let counts = |it: Ordinal| self.lacks_volume(ordinal) || !self.lacks_volume(it);
            let unproven = self.rolled().any(|(it, state)| counts(it) && self.is_on_trial(it, state));
            let begun = Ordinal::below(self.set.replicas).any(|it| self.is_being_mended(it));
            return self.has_worked() || !unproven && !begun;
        };
        let votes = |ordinal| members.at(ordinal).is_some_and(|(_, member)| !member.learner);
        let proven = self.has_worked() || self.rolled().all(|(it, _)| !votes(it) || self.is_proven(it));
        proven && (!votes(ordinal) || self.against_restart(members, ordinal).is_none())
    }

    /// The pods of the wanted form that show whether it works.
    pub(super) fn tried(&self) -> impl Iterator<Item = (Ordinal, &PodState)> {
        self.rolled().filter(|(ordinal, _)| !self.lacks_volume(*ordinal))
    }

    /// Without a quorum, a pod that waits for its first volume has no data that helps, and might wait for ever: its form is not
    /// why it does not start.
    pub(super) fn lacks_volume(&self, ordinal: Ordinal) -> bool {
        let claim = self.facts.seen.claims.get(&ordinal);
        self.facts.listed().is_none() && claim.is_some_and(|claim| !claim.bound)
    }
}
