//! Another version of etcd: one minor at a time, with every member well, and back only through etcd's own downgrade.

use super::{Next, Roll};
use crate::assess::Quorum;
use crate::observed::{Answer, MemberId, Members};
use crate::plan::{Action, Refusal, WaitingOn};
use crate::version::downgrade;
use crate::version::log::{self, Clearing};
use crate::version::path::{self, Verdict};

impl<'a> Roll<'a> {
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
    pub(super) fn before_version(&self, members: &Members) -> Option<Next<'a>> {
        let verdict = self.verdict();
        match verdict {
            Verdict::Nothing | Verdict::Refused(_) => return None,
            Verdict::Unknown => return Some(Next::Wait(WaitingOn::Versions)),
            Verdict::Patch | Verdict::Upgrade | Verdict::Downgrade => {}
        }
        if let Some(alarm) = self.facts.alarms().first() {
            return Some(Next::Wait(WaitingOn::AlarmsCleared { kind: alarm.kind.clone() }));
        }
        if let Some(next) = self.before_first() {
            return Some(next);
        }
        if log::matters(self.wanted.version) {
            return self.before_log_is_read(members);
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

    /// Snapshots on all members, before the first one is restarted.
    fn before_log_is_read(&self, members: &Members) -> Option<Next<'a>> {
        let (cluster, answers) = (members.cluster, self.answers(members).collect::<Vec<_>>());
        let uncleared = self.uncleared(members);
        match log::next(&answers, uncleared.is_empty()) {
            Clearing::Done => None,
            Clearing::Enable(to) => Some(Next::Act(Action::ForceSnapshots { to, cluster })),
            Clearing::Snapshots(saved) => {
                Some(Next::Wait(WaitingOn::Snapshots { saved, members: answers.len() }))
            }
            Clearing::Record => {
                Some(Next::Act(Action::RecordCleared { members: members.list.keys().copied().collect() }))
            }
            Clearing::Migrate(version) => Some(Next::Wait(WaitingOn::StorageVersion { version })),
            Clearing::Unknown => Some(Next::Wait(WaitingOn::Versions)),
            Clearing::TooLate => Some(Next::Refuse(Refusal::OldEntries { members: uncleared })),
        }
    }

    /// Members that run an older version, and whose logs might have entries of 3.5.
    fn uncleared(&self, members: &Members) -> Vec<MemberId> {
        let cleared =
            |id: MemberId| self.facts.seen.record.as_ref().is_some_and(|it| it.cleared.contains(&id));
        let listed = members.by_ordinal().into_iter().map(|(id, _)| id);
        listed.filter(|&id| !cleared(id) && !self.runs_wanted(id)).collect()
    }

    /// Members whose logs the wanted version might not be able to read, as far as is known without their answers. While there
    /// is one, the template cannot have that version: any pod might be created from it.
    pub(super) fn unreadable_logs(&self) -> Vec<MemberId> {
        let seen = self.facts.seen;
        let held = seen.claims.values().filter(|claim| !claim.terminating).filter_map(|claim| claim.member);
        let listed = self.facts.listed();
        let is_listed = |id: &MemberId| listed.is_none_or(|members| members.list.contains_key(id));
        let is_cleared = |id: &MemberId| {
            let record = seen.record.as_ref();
            record.is_none_or(|it| it.version >= self.wanted.version.minor() || it.cleared.contains(id))
        };
        let matters = log::matters(self.wanted.version);
        held.filter(|id| matters && is_listed(id) && !is_cleared(id) && !self.runs_wanted(*id)).collect()
    }

    fn runs_wanted(&self, id: MemberId) -> bool {
        let version = self.facts.answer_of(id).and_then(|answer| answer.version);
        version.is_some_and(|version| version >= self.wanted.version.minor())
    }

    /// What is recorded of logs, if it will not hold any more.
    pub(super) fn outdated_clearing(&self) -> bool {
        let cleared = self.facts.seen.record.as_ref().is_some_and(|record| !record.cleared.is_empty());
        cleared && log::is_written_by(self.wanted.version)
    }

    /// A downgrade to another version than the wanted one is not wanted any more, unless every member is about to save
    /// its snapshot because of it.
    pub(super) fn leftover_downgrade(&self) -> Option<Next<'a>> {
        let members = self.facts.listed()?;
        let to = downgrade::enabled(self.answers(members))?;
        let wanted = self.wanted.version;
        let saves = log::is_for_snapshots(to, wanted)
            && self.verdict() == Verdict::Upgrade
            && self.facts.alarms().is_empty()
            && self.refusal().is_none()
            && !self.uncleared(members).is_empty();
        (to != wanted.minor() && !saves)
            .then_some(Next::Act(Action::CancelDowngrade { cluster: members.cluster }))
    }

    fn answers<'b>(&'b self, members: &'b Members) -> impl Iterator<Item = &'b Answer> {
        members.list.keys().filter_map(|id| self.facts.answer_of(*id))
    }
}
