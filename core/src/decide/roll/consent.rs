//! Who has to agree to a restart.

use super::reason::Origin;
use super::{Roll, TOLERATES_A_RESTART};
use crate::observed::{Members, Ordinal, Pod};
use crate::plan::WaitingOn;
use crate::schedule::Opening;

impl Roll<'_> {
    /// What the restarts that are left wait for, if none of them may begin.
    pub fn consent(&self) -> Option<WaitingOn> {
        let members = self.facts.listed()?;
        let outdated: Vec<(Ordinal, &Pod)> = self.outdated().collect();
        if outdated.iter().any(|(_, pod)| self.may_begin(members, pod)) {
            return None;
        }
        let reason = outdated.first().and_then(|(_, pod)| self.reasons(pod).next())?;
        let opens = match self.window() {
            Opening::At(time) => Some(time),
            Opening::Now | Opening::Never => None,
        };
        Some(WaitingOn::Consent { ordinals: outdated.iter().map(|it| it.0).collect(), reason, opens })
    }

    /// A restart that stops writes needs the consent of a user, or a window that is open. What has begun is completed.
    pub(super) fn may_begin(&self, members: &Members, pod: &Pod) -> bool {
        members.voters().count() >= TOLERATES_A_RESTART
            || self.reasons(pod).any(|reason| reason.origin() != Origin::Operator)
            || self.window() == Opening::Now
    }

    fn window(&self) -> Opening {
        Opening::of(&self.goal.windows, self.facts.seen.now)
    }
}
