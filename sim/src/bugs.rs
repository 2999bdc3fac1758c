//! Bugs to plant, so that it is seen whether the simulation finds them.

use etcd_operator_core::observed::Observed;
use etcd_operator_core::plan::{Action, Plan, Refusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A member is removed although too few would be left.
    QuorumSkipped,
    /// The volume of a removed member is taken for a fresh one.
    VolumeReused,
    /// The order stays, and agents follow it again.
    OldOrderHonoured,
    /// Volumes are never told whose data they hold.
    LabelSkipped,
    /// What could do harm is done on the word of a cache.
    CacheTrusted,
}

impl Bug {
    pub const ALL: [Self; 5] = [
        Self::QuorumSkipped,
        Self::VolumeReused,
        Self::OldOrderHonoured,
        Self::LabelSkipped,
        Self::CacheTrusted,
    ];

    /// What the operator fails to see.
    pub fn blind(self, seen: &mut Observed) {
        match self {
            Self::VolumeReused => {
                let members = seen.etcd.members.known().cloned();
                for claim in seen.claims.values_mut() {
                    let listed = claim.member.is_some_and(|member| {
                        members.as_ref().is_none_or(|members| members.list.contains_key(&member))
                    });
                    claim.member = claim.member.filter(|_| listed);
                }
            }
            Self::LabelSkipped => {
                let members = seen.etcd.members.known().cloned();
                for (ordinal, claim) in &mut seen.claims {
                    claim.member =
                        members.as_ref().and_then(|members| members.at(*ordinal)).map(|(id, _)| id);
                }
            }
            Self::QuorumSkipped | Self::OldOrderHonoured | Self::CacheTrusted => {}
        }
    }

    /// What the operator does instead.
    pub fn twist(self, mut plan: Plan, seen: &Observed) -> Plan {
        match self {
            Self::QuorumSkipped => {
                let cluster = seen.etcd.members.known().map(|members| members.cluster);
                for refusal in &plan.refusals {
                    if let (Refusal::QuorumWouldBeLost { member, .. }, Some(cluster)) = (refusal, cluster) {
                        plan.actions.push(Action::RemoveMember { member: *member, cluster });
                    }
                }
            }
            Self::OldOrderHonoured => {
                plan.actions.retain(|action| !matches!(action, Action::DeleteOrder { .. }));
            }
            Self::VolumeReused | Self::LabelSkipped | Self::CacheTrusted => {}
        }
        plan
    }
}
