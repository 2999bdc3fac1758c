//! Bugs to plant, so that it is seen whether the simulation finds them.

use std::collections::BTreeSet;

use etcd_operator_core::observed::{Answer, Observed, Seen};
use etcd_operator_core::plan::{Action, Plan, Refusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Every voter is taken for a serving one, so that a healthy one is removed although too few are left.
    QuorumSkipped,
    /// Volumes of removed members are not deleted, so the next member gets one with data.
    VolumeReused,
    /// The order stays, and agents follow it again.
    OldOrderHonoured,
    /// Volumes are never told whose data they hold.
    LabelSkipped,
    /// What could do harm is done on the word of a cache.
    CacheTrusted,
    /// Volumes are deleted on the word of a cache.
    ClaimDeletedUnconfirmed,
    /// Writes do not depend on what was read before.
    PreconditionsSkipped,
    /// Volumes of another cluster are taken for our own.
    ForeignVolumesIgnored,
    /// Volumes are adopted although no annotation asks for it.
    AdoptionUnasked,
}

impl Bug {
    /// What the operator fails to see.
    pub fn blind(self, seen: &mut Observed) {
        if self == Self::LabelSkipped {
            let members = seen.etcd.members.known().cloned();
            for (ordinal, claim) in &mut seen.claims {
                claim.member = members.as_ref().and_then(|members| members.at(*ordinal)).map(|(id, _)| id);
            }
        }
        if self == Self::QuorumSkipped {
            everybody_serves(seen);
        }
        if self == Self::ForeignVolumesIgnored {
            let own = seen.cluster.uid.clone();
            seen.claims.values_mut().for_each(|claim| claim.cluster_uid.clone_from(&own));
        }
    }

    /// Whether a plan that comes from a cache is not decided a second time.
    pub fn trusts_cache(self, plan: &Plan) -> bool {
        let mut harmful = plan.actions.iter().filter(|action| action.is_decided_twice());
        harmful.all(|action| self.skips_confirmation(action))
    }

    fn skips_confirmation(self, action: &Action) -> bool {
        let deletes_claim = matches!(action, Action::DeleteClaim { .. });
        self == Self::CacheTrusted || self == Self::ClaimDeletedUnconfirmed && deletes_claim
    }

    /// What the operator does instead.
    pub fn twist(self, mut plan: Plan, seen: &Observed) -> Plan {
        if self == Self::OldOrderHonoured {
            plan.actions.retain(|action| !matches!(action, Action::DeleteOrder { .. }));
        }
        if self == Self::VolumeReused {
            plan.actions.retain(|action| !matches!(action, Action::DeleteClaim { .. }));
        }
        if self == Self::AdoptionUnasked {
            adopt_all(seen, &mut plan);
        }
        plan
    }
}

fn adopt_all(seen: &Observed, plan: &mut Plan) {
    if let [Refusal::ForeignVolumes { ordinals, .. }] = &plan.refusals[..] {
        let claims = ordinals.iter().filter_map(|it| Some((*it, seen.claims.get(it)?.uid.clone())));
        plan.actions.extend(claims.map(|(ordinal, uid)| Action::AdoptClaim { ordinal, uid }));
        plan.refusals.clear();
    }
}

fn everybody_serves(seen: &mut Observed) {
    let Seen::Known(members) = &seen.etcd.members else { return };
    for (member, voter) in members.voters() {
        let Some(ordinal) = voter.ordinal else { continue };
        let answer = Answer {
            cluster: members.cluster,
            member,
            leader: members.leader,
            linearizable: true,
            applied_index: 0,
            version: None,
            listed: None,
            hash: Some(1),
            alarms: BTreeSet::new(),
        };
        seen.etcd.answers.insert(ordinal, Seen::Known(answer));
    }
}
