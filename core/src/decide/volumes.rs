//! Volumes get the wanted size and class. A volume grows while it is in use, so its claim is patched beside the plan and
//! without a quorum. No claim can get another class: its member is replaced. What new volumes are created with cannot be
//! changed in a StatefulSet either: it is deleted without its pods and created again.

use std::cmp::{Ordering, Reverse};

use super::Goal;
use crate::assess::Assessment;
use crate::observed::{Claim, MemberId, Members, Observed, Ordinal, Process, Set, VolumeForm};
use crate::plan::{Action, Plan, Refusal, WaitingOn};
use crate::request::{Change, Object, OnlyIf, Write};

/// Kubernetes lowers a request only to more than the volume has. So a growth that is reverted to what the volume has asks
/// for this much more.
pub const LEAST_GROWTH_BYTES: u64 = 1 << 20;

pub struct Volumes<'a> {
    goal: &'a Goal,
    pub wanted: &'a VolumeForm,
    seen: &'a Observed,
}

/// The writes that give claims the wanted size, each on its own: one that is rejected stops nothing else.
pub fn resizes(goal: &Goal, seen: &Observed) -> Vec<Write> {
    let Some(volumes) = Volumes::new(goal, seen).filter(|_| !goal.paused && !seen.cluster.deleting) else {
        return Vec::new();
    };
    let write = |(ordinal, claim): (Ordinal, &Claim)| {
        let change = Change::Resize(next_request(volumes.wanted.bytes, claim)?);
        let version = seen.versions.claims.get(&ordinal)?.clone();
        let only_if = OnlyIf::Unchanged(claim.uid.clone(), version);
        Some(Write { object: Object::Claim(ordinal), only_if, change })
    };
    volumes.claims().filter_map(write).collect()
}

/// What a claim asks for next, if not what it asks for now. Before it has a volume, nothing of it can be changed.
fn next_request(wanted_bytes: u64, claim: &Claim) -> Option<u64> {
    let (requested, capacity) = (claim.requested_bytes?, claim.capacity_bytes.filter(|_| claim.bound)?);
    match (requested.cmp(&wanted_bytes), capacity.cmp(&wanted_bytes)) {
        (Ordering::Less, _) | (Ordering::Greater, Ordering::Less) => Some(wanted_bytes),
        (Ordering::Greater, Ordering::Equal) => {
            Some(capacity.saturating_add(LEAST_GROWTH_BYTES)).filter(|least| *least < requested)
        }
        (Ordering::Equal, _) | (Ordering::Greater, Ordering::Greater) => None,
    }
}

impl<'a> Volumes<'a> {
    /// None while the spec is invalid.
    pub fn new(goal: &'a Goal, seen: &'a Observed) -> Option<Self> {
        Some(Self { goal, wanted: goal.volumes.as_ref()?, seen })
    }

    /// Those of this cluster that stay.
    pub fn claims(&self) -> impl Iterator<Item = (Ordinal, &'a Claim)> {
        let seen = self.seen;
        let stays = move |claim: &Claim| claim.cluster_uid == seen.cluster.uid && !claim.terminating;
        seen.claims.iter().filter(move |(_, claim)| stays(claim)).map(|(&ordinal, claim)| (ordinal, claim))
    }

    /// Volumes that have more than is wanted, with what they have. Storage rounds up: what a claim asks for counts, too.
    pub fn too_large(&self) -> Vec<(Ordinal, u64)> {
        let most = self.wanted.bytes.saturating_add(LEAST_GROWTH_BYTES);
        let has_more = |claim: &Claim| claim.capacity_bytes.filter(|it| *it > self.wanted.bytes);
        let asked_for = |claim: &Claim| claim.requested_bytes.is_some_and(|it| it > most);
        self.claims()
            .filter(|(_, claim)| asked_for(claim))
            .filter_map(|(it, claim)| Some((it, has_more(claim)?)))
            .collect()
    }

    /// Volumes that do not have the wanted size yet, or that still ask for more.
    pub fn growing(&self) -> impl Iterator<Item = (Ordinal, &'a Claim)> {
        let wanted = self.wanted.bytes;
        let lacks = move |claim: &Claim| claim.bound && claim.capacity_bytes.is_some_and(|it| it < wanted);
        self.claims().filter(move |(_, claim)| lacks(claim) || next_request(wanted, claim).is_some())
    }

    /// Without a wanted class, volumes keep theirs.
    pub fn of_another_class(&self) -> impl Iterator<Item = (Ordinal, &'a Claim)> {
        let wanted = self.wanted.class.as_ref();
        self.claims().filter(move |(_, claim)| wanted.is_some_and(|_| claim.class.as_ref() != wanted))
    }

    /// While some volumes are too large, new ones stay as large as they are created now.
    fn is_as_wanted(&self, set: &Set) -> bool {
        set.volumes.as_ref().is_none_or(|there| {
            there.class == self.wanted.class
                && (there.bytes == self.wanted.bytes || !self.too_large().is_empty())
        })
    }

    /// Another template of volumes needs another StatefulSet. Nothing else changes by that: it is created again with the form
    /// that is recorded, so it has to have that form now.
    pub fn recreate_set(&self) -> Plan {
        let Some(set) = self.seen.set.as_ref().filter(|set| !set.terminating && !self.is_as_wanted(set))
        else {
            return Plan::default();
        };
        let wanted = self.goal.form.as_ref().map(|wanted| &wanted.form);
        let (form, adopts) = match &self.seen.record {
            Some(record) => (Some(&record.form), &record.adopts),
            None => (wanted, &self.goal.adopts),
        };
        match (form, &self.seen.record) {
            (Some(form), _) if set.template.as_ref() != Some(form) => Plan::default(),
            _ if *adopts == set.adopts => Plan::act(Action::OrphanSet { uid: set.uid.clone() }),
            // The template alone knows whose volumes were adopted.
            (Some(form), Some(_)) => Plan::act(Action::RecordForm { form: form.clone() }),
            (Some(_) | None, _) => Plan::default(),
        }
    }

    /// A claim that never got a volume, and never will: a user has reverted what it asks for.
    pub fn is_abandoned(&self, ordinal: Ordinal) -> bool {
        let Some(claim) = self.seen.claims.get(&ordinal).filter(|claim| !claim.bound) else { return false };
        let Some(set) = self.seen.set.as_ref().filter(|set| !set.terminating && self.is_as_wanted(set))
        else {
            return false;
        };
        let Some(there) = &set.volumes else { return false };
        let too_much = claim.requested_bytes.is_some_and(|it| it > there.bytes);
        let other_class = match &there.class {
            Some(_) => claim.class != there.class,
            // The default class is not known, but that of the other volumes is.
            None => {
                let known = |(_, other): (_, &Claim)| other.bound && other.class == claim.class;
                claim.precedes_set && !self.claims().any(known)
            }
        };
        too_much || other_class
    }

    /// A pod that was created with a claim that is gone. Nothing was ever started in it.
    pub fn lacks_claim(&self, ordinal: Ordinal) -> bool {
        let pod = self.seen.pods.get(&ordinal);
        let never_started = pod.is_some_and(|pod| matches!(pod.etcd, Process::CannotStart(_)));
        never_started && !self.seen.claims.contains_key(&ordinal)
    }

    /// The member that is replaced next, because its volume has another class: first one that does not serve, then
    /// followers, the leader last. Only while all others serve, and only when its new volume will have the class.
    pub fn next_to_replace(
        &self,
        facts: &Assessment<'_>,
        members: &Members,
    ) -> Option<Result<MemberId, WaitingOn>> {
        let set = self.seen.set.as_ref().filter(|set| self.is_as_wanted(set) && set.volumes.is_some())?;
        let outdated: Vec<Ordinal> = self.of_another_class().map(|(ordinal, _)| ordinal).collect();
        let rank = |id: MemberId, ordinal| (facts.serves(id), members.leader == Some(id), Reverse(ordinal));
        let candidates = members.voters().filter_map(|(id, member)| Some((id, member.ordinal?)));
        let (next, _) = candidates
            .filter(|(_, ordinal)| outdated.contains(ordinal))
            .min_by_key(|&(id, ordinal)| rank(id, ordinal))?;
        let others = || members.voters().map(|(id, _)| id).filter(|id| *id != next);
        let down = others().filter(|id| !facts.serves(*id) || facts.is_ending(*id));
        let down: Vec<MemberId> = down.collect();
        match others().next() {
            // Refused: its data would be lost.
            None => None,
            Some(_) if !down.is_empty() => Some(Err(WaitingOn::OthersServe { down })),
            Some(_) if !set.followed => Some(Err(WaitingOn::Template)),
            Some(_) => Some(Ok(next)),
        }
    }

    /// What of the wanted size and class is impossible. It blocks nothing else, so it is reported when nothing else is left.
    pub fn refusals(&self, members: Option<&Members>) -> Plan {
        let (mut plan, volumes) = (Plan::default(), self.too_large());
        if !volumes.is_empty() {
            let wanted_bytes = self.wanted.bytes;
            plan.refusals.push(Refusal::VolumesCannotShrink { wanted_bytes, volumes });
        }
        let alone = members.is_some_and(|members| members.voters().count() == 1);
        if let Some((ordinal, claim)) = self.of_another_class().find(|_| alone) {
            let (class, wanted) = (claim.class.clone(), self.wanted.class.clone().unwrap_or_default());
            plan.refusals.push(Refusal::ClassNeedsMembers { ordinal, class, wanted });
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: u64 = 1 << 30;

    fn claim(requested: u64, capacity: u64) -> Claim {
        Claim {
            bound: true,
            requested_bytes: Some(requested),
            capacity_bytes: Some(capacity),
            ..Claim::default()
        }
    }

    #[test]
    fn a_claim_asks_for_what_is_wanted_as_far_as_kubernetes_accepts_it() {
        for (wanted, requested, capacity, next) in [
            (GI, GI, GI, None),
            (2 * GI, GI, GI, Some(2 * GI)),
            // Storage rounds up.
            (GI, GI, 2 * GI, None),
            (2 * GI, GI, 2 * GI, Some(2 * GI)),
            // A growth that is not done yet is reverted.
            (2 * GI, 9 * GI, GI, Some(2 * GI)),
            (GI, 9 * GI, GI, Some(GI + LEAST_GROWTH_BYTES)),
            (GI, GI + LEAST_GROWTH_BYTES, GI, None),
            (GI, GI + LEAST_GROWTH_BYTES, GI + LEAST_GROWTH_BYTES, None),
            // No volume shrinks.
            (GI, 2 * GI, 2 * GI, None),
        ] {
            assert_eq!(
                next_request(wanted, &claim(requested, capacity)),
                next,
                "{wanted} {requested} {capacity}"
            );
        }
        let pending = Claim { bound: false, ..claim(GI, GI) };
        assert_eq!(
            next_request(2 * GI, &pending),
            None,
            "nothing of a claim without a volume can be changed"
        );
    }
}
