//! Another version of etcd: one minor at a time, with every member well, and back only through etcd's own downgrade.

use super::{Next, Roll};
use crate::assess::Quorum;
use crate::observed::{Answer, Members};
use crate::plan::{Action, Refusal, WaitingOn};
use crate::version::downgrade;
use crate::version::path::{self, Verdict};

impl Roll<'_> {
    /// Judged by what members run; while none responds, by what all of them ran last.
    pub(super) fn verdict(&self) -> Verdict {
        let wanted = self.wanted.version;
        match (self.facts.listed(), &self.facts.seen.record) {
            (Some(members), record) => {
                let versions = members.list.keys().map(|id| self.facts.answer_of(*id)?.version);
                // A member that does not respond runs what all ran together last.
                let versions = versions.map(|it| it.or(record.as_ref().map(|record| record.version)));
                let verdict = path::judge(versions, wanted);
                let all_respond = members.list.keys().all(|id| self.facts.answer_of(*id).is_some());
                let certain = all_respond || matches!(verdict, Verdict::Nothing | Verdict::Refused(_));
                if certain { verdict } else { Verdict::Unknown }
            }
            (None, Some(record)) => path::judge([Some(record.version)], wanted),
            // Nobody has written any data.
            (None, None) => Verdict::Nothing,
        }
    }

    pub(super) fn against_version(&self) -> Option<Refusal> {
        let Verdict::Refused(refusal) = self.verdict() else { return None };
        (self.facts.quorum != Quorum::NotBootstrapped).then_some(Refusal::VersionPath(refusal))
    }

    /// What comes before a member that is well is restarted with another version.
    pub(super) fn before_version(&self, members: &Members) -> Option<Next> {
        let verdict = self.verdict();
        match verdict {
            Verdict::Nothing | Verdict::Refused(_) => return None,
            Verdict::Unknown => return Some(Next::Wait(WaitingOn::Versions)),
            Verdict::Patch | Verdict::Upgrade | Verdict::Downgrade => {}
        }
        if let Some(alarm) = self.facts.alarms().first() {
            return Some(Next::Wait(WaitingOn::AlarmsCleared { kind: alarm.kind.clone() }));
        }
        let (cluster, to) = (members.cluster, self.wanted.version.minor());
        match downgrade::next(self.answers(members), self.wanted.version) {
            downgrade::Next::Restart => None,
            downgrade::Next::Enable(_) => Some(Next::Act(Action::EnableDowngrade { to, cluster })),
            downgrade::Next::Cancel => Some(Next::Act(Action::CancelDowngrade { cluster })),
            downgrade::Next::Migrate(version) => Some(Next::Wait(WaitingOn::StorageVersion { version })),
            downgrade::Next::Unknown => Some(Next::Wait(WaitingOn::Versions)),
        }
    }

    /// A downgrade to another version than the wanted one is not wanted any more.
    pub(super) fn leftover_downgrade(&self) -> Option<Next> {
        let members = self.facts.listed()?;
        let to = downgrade::enabled(self.answers(members))?;
        (to != self.wanted.version.minor())
            .then_some(Next::Act(Action::CancelDowngrade { cluster: members.cluster }))
    }

    fn answers<'b>(&'b self, members: &'b Members) -> impl Iterator<Item = &'b Answer> {
        members.list.keys().filter_map(|id| self.facts.answer_of(*id))
    }
}
