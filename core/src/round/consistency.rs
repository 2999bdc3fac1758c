//! When the data of members is compared next, and what earlier comparisons returned.

use jiff::Timestamp;

use crate::assess::{MemberState, assess};
use crate::observed::{Alarm, AlarmKind, Compared, Comparison, MemberId, Observed, Ordinal, Verdict};
use crate::plan::Action;

/// After a restart of the operator, the first comparisons of all clusters are spread over this time.
const SPREAD_SECONDS: i64 = 600;
/// The last attempt returned nothing that can be compared, or members have joined since.
const AGAIN_SECONDS: i64 = 300;
/// Members differ, or etcd reports that they do.
const CONFIRM_SECONDS: i64 = 30;
/// From one observation to the next while a comparison is due.
const SHORTEST_SECONDS: i64 = 10;

#[derive(Clone, Debug, Default)]
pub struct Consistency {
    compared: Compared,
    /// The first observation.
    begun: Option<Timestamp>,
    /// When data was compared last, and whether that returned hashes of all members at one revision.
    attempted: Option<(Timestamp, bool)>,
    /// Of the members that were listed last.
    verdict: Option<Verdict>,
    is_corrupt: bool,
    disarming: bool,
}

impl Consistency {
    /// Whether members differ, or etcd reports that they do.
    pub fn is_in_doubt(&self) -> bool {
        self.is_corrupt || matches!(self.verdict, Some(Verdict::Minority(_) | Verdict::NoMajority(_)))
    }

    pub fn is_due(&self, interval_seconds: i64, cluster_uid: &str, now: Timestamp) -> bool {
        let due = self.due(interval_seconds, cluster_uid);
        // A clock that was set back must not delay it.
        due.is_some_and(|due| now >= due || now < self.latest())
    }

    fn latest(&self) -> Timestamp {
        self.attempted.map(|(at, _)| at).or(self.begun).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// None before the first observation.
    fn due(&self, interval_seconds: i64, cluster_uid: &str) -> Option<Timestamp> {
        let seconds = match self.attempted {
            None if self.is_in_doubt() => 0,
            None => phase(cluster_uid) % SPREAD_SECONDS.min(interval_seconds).max(1),
            Some(_) if self.is_in_doubt() => CONFIRM_SECONDS.min(interval_seconds),
            Some((_, true)) if self.verdict != Some(Verdict::Incomplete) => interval_seconds,
            Some(_) => AGAIN_SECONDS.min(interval_seconds),
        };
        self.begun?;
        Timestamp::from_second(self.latest().as_second() + seconds).ok()
    }

    /// What an attempt returned; nothing if not all members responded.
    pub fn compared(&mut self, at: Timestamp, comparison: Option<Comparison>) {
        self.attempted = Some((at, comparison.is_some()));
        let Some(comparison) = comparison else { return };
        let last = self.compared.last.take();
        // At the same revision, the same difference says nothing new.
        if let Some(last) = last.filter(|last| last.revision != comparison.revision) {
            self.compared.before = Some(last);
        }
        self.compared.last = Some(comparison);
    }

    pub fn sent(&mut self, action: &Action) {
        self.disarming |= matches!(action, Action::Disarm { kind: AlarmKind::Corrupt, .. });
    }

    pub fn note(&mut self, seen: &Observed) -> Compared {
        let facts = assess(seen);
        let is_corrupt = facts.alarms().iter().any(|alarm| alarm.kind == Alarm::CORRUPT);
        if is_corrupt && !self.is_corrupt {
            // What was equal before proves nothing now.
            (self.compared.last, self.compared.before, self.attempted) = (None, None, None);
        }
        if facts.serving().next().is_some() {
            if !is_corrupt && std::mem::take(&mut self.disarming) {
                self.compared.disarmed = Some(seen.now);
            }
            self.is_corrupt = is_corrupt;
        }
        if let Some(members) = facts.listed() {
            self.begun.get_or_insert(seen.now);
            self.verdict = self.compared.last.as_ref().map(|it| it.verdict(members));
        }
        // While a member is down, or still reads its data, what is due waits.
        let soonest = Timestamp::from_second(seen.now.as_second() + SHORTEST_SECONDS).ok();
        let due = self.due(CONFIRM_SECONDS, &seen.cluster.uid).filter(|_| self.is_in_doubt());
        self.compared.next = due.max(soonest.filter(|_| due.is_some()));
        self.compared.clone()
    }
}

/// The members to compare, the leader last; none unless all voters serve and none is about to stop. A learner that is behind would
/// hold up the others.
pub fn compared_members(seen: &Observed) -> Option<Vec<(Ordinal, MemberId)>> {
    let facts = assess(seen);
    let members = facts.listed().filter(|it| it.voters().count() > 1 && seen.order.is_none())?;
    if !members.voters().all(|(id, _)| facts.serves(id) && !facts.is_ending(id)) {
        return None;
    }
    let has_data = |id| matches!(facts.member(id), MemberState::Serving | MemberState::CaughtUp);
    let compared = members.by_ordinal().into_iter().filter(|(id, _)| has_data(*id));
    let mut compared: Vec<_> = compared.filter_map(|(id, member)| Some((member.ordinal?, id))).collect();
    compared.sort_by_key(|(ordinal, id)| (members.leader == Some(*id), *ordinal));
    Some(compared)
}

/// Clusters have different ones.
fn phase(cluster_uid: &str) -> i64 {
    cluster_uid.bytes().fold(0, |sum: i64, byte| (sum * 31 + i64::from(byte)) % 86_400)
}
