//! Before the first member stops, the image and the arguments of the wanted form are tried: one preflight pod on each node on
//! which a member serves. These pods are the state. Nothing else records what was tried.

use std::collections::BTreeMap;

use super::{Next, Roll};
use crate::decide::Goal;
use crate::observed::{Observed, Ordinal, Preflight, PreflightState};
use crate::plan::{Action, Plan, Refusal, WaitingOn};

/// A pod that its node ended without a result gets a successor when it is this old: what the node lacked might be there again.
const RETRY_SECONDS: i64 = 30;

/// A node on which the wanted form is tried.
pub struct Trial<'a> {
    pub node: &'a str,
    /// Of the pod, which has the ordinal of a member on this node.
    pub ordinal: Ordinal,
    pub pod: Option<&'a Preflight>,
}

impl<'a> Roll<'a> {
    /// The nodes on which the form is tried now; none if nothing else comes before it.
    pub fn trials_under_way(&self) -> Vec<Trial<'a>> {
        if let Next::Try(trials) = self.next() { trials } else { Vec::new() }
    }

    /// One for each node, unless all have passed. A member that does not serve needs none: nothing is lost if it does not
    /// start in the wanted form either, and the kubelet of its node might be down.
    pub(super) fn trials(&self) -> Vec<Trial<'a>> {
        if !self.is_untried() {
            return Vec::new();
        }
        let serving = self.pods().filter(|(ordinal, pod)| !self.has_form(pod) && self.serves(*ordinal));
        let mut first = BTreeMap::new();
        for (ordinal, node) in serving.filter_map(|(ordinal, pod)| Some((ordinal, pod.node.as_deref()?))) {
            first.entry(node).or_insert(ordinal);
        }
        let trial = |(node, ordinal)| match self.kept().find(|(_, pod)| pod.node.as_deref() == Some(node)) {
            Some((ordinal, pod)) => Trial { node, ordinal, pod: Some(pod) },
            None => Trial { node, ordinal, pod: None },
        };
        let trials: Vec<Trial<'a>> = first.into_iter().map(trial).collect();
        if trials.iter().all(Trial::has_passed) { Vec::new() } else { trials }
    }

    pub(super) fn plan_of(&self, trials: &[Trial<'a>]) -> Plan {
        let failed = trials.iter().find_map(|trial| {
            if let PreflightState::Failed(exit) = &trial.pod?.state {
                Some((trial, exit.clone()))
            } else {
                None
            }
        });
        if let Some((&Trial { node, ordinal, .. }, exit)) = failed {
            return Plan::refuse(Refusal::PreflightFailed { ordinal, node: node.into(), exit });
        }
        // A name is free only when the pod that had it is gone.
        let is_free = |ordinal: &Ordinal| !self.facts.seen.preflights.contains_key(ordinal);
        let missing = trials.iter().filter(|trial| trial.pod.is_none() && is_free(&trial.ordinal));
        let create =
            |trial: &Trial<'_>| Action::CreatePreflight { ordinal: trial.ordinal, node: trial.node.into() };
        let open = trials.iter().filter(|trial| !trial.has_passed()).map(|trial| trial.ordinal);
        Plan {
            actions: missing.map(create).collect(),
            ..Plan::wait(WaitingOn::Preflight { ordinals: open.collect() })
        }
    }

    /// Whether the wanted form differs from the last one that all members ran in what such a pod can prove, and no member
    /// has proved it. One that is restarted for another reason than its form has proved it as well.
    fn is_untried(&self) -> bool {
        let recorded = self.facts.seen.record.as_ref().and_then(|record| record.proof.as_ref());
        let differs = recorded.zip(self.wanted.proof.as_ref()).is_some_and(|(there, wanted)| there != wanted);
        differs && !self.pods().any(|(ordinal, pod)| self.has_form(pod) && self.serves_as_wanted(ordinal))
    }

    fn kept(&self) -> impl Iterator<Item = (Ordinal, &'a Preflight)> {
        let all = self.facts.seen.preflights.iter().map(|(&ordinal, pod)| (ordinal, pod));
        all.filter(|(ordinal, pod)| !pod.terminating && self.keeps(*ordinal, pod))
    }

    /// A pod whose member has moved to another node would have the name of the one that is needed there.
    fn keeps(&self, ordinal: Ordinal, preflight: &Preflight) -> bool {
        let member = self.facts.seen.pods.get(&ordinal).and_then(|pod| pod.node.as_ref());
        self.is_untried()
            && preflight.proof == self.wanted.proof
            && member.is_none_or(|node| preflight.node.as_ref() == Some(node))
    }
}

impl Trial<'_> {
    fn has_passed(&self) -> bool {
        self.pod.is_some_and(|pod| pod.state == PreflightState::Passed)
    }
}

/// Deletes the pods that try nothing that is wanted, and those that have to try it again. While the spec is invalid, it is
/// not known what is wanted.
pub fn leftovers(goal: &Goal, roll: Option<&Roll<'_>>, seen: &Observed) -> Plan {
    let is_kept = |ordinal, pod: &Preflight| {
        let has_result = !matches!(pod.state, PreflightState::Interrupted(_));
        let is_young = seen.now.as_second() - pod.created.as_second() < RETRY_SECONDS;
        roll.map_or(goal.form.is_none(), |roll| roll.keeps(ordinal, pod)) && (has_result || is_young)
    };
    let left = seen.preflights.iter().filter(|(ordinal, pod)| !pod.terminating && !is_kept(**ordinal, pod));
    let delete = |(&ordinal, pod): (_, &Preflight)| Action::DeletePreflight { ordinal, uid: pod.uid.clone() };
    Plan { actions: left.map(delete).collect(), ..Plan::default() }
}
