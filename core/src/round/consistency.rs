//! When the data of members is compared next, and what earlier comparisons returned.

use jiff::Timestamp;

use crate::assess::assess;
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
    /// Since when the alarm has been active.
    corrupt_since: Option<Timestamp>,
    disarming: bool,
}

impl Consistency {
    /// Whether members differ, or etcd reports that they do.
    pub fn is_in_doubt(&self) -> bool {
        let differs = matches!(self.verdict, Some(Verdict::Minority(_) | Verdict::NoMajority(_)));
        differs || self.corrupt_since.is_some()
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
            // A user ends it, and no comparison.
            Some((_, true)) if matches!(self.verdict, Some(Verdict::NoMajority(_))) => {
                AGAIN_SECONDS.min(interval_seconds)
            }
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
        if is_corrupt {
            let since = self.corrupt_since.map_or(seen.now, |since| since.min(seen.now));
            // What was compared before proves nothing now, also if it has completed since.
            let is_older = self.compared.last.as_ref().is_some_and(|last| last.at < since);
            if self.corrupt_since.is_none() || is_older {
                (self.compared.last, self.compared.before, self.attempted) = (None, None, None);
            }
            self.corrupt_since = Some(since);
        } else if facts.serving().next().is_some() {
            if std::mem::take(&mut self.disarming) {
                self.compared.disarmed = Some(seen.now);
            }
            self.corrupt_since = None;
        }
        if let Some(members) = facts.listed() {
            self.begun.get_or_insert(seen.now);
            self.verdict = self.compared.last.as_ref().map(|it| it.verdict(members));
        }
        // While a member is down, or still reads its data, what is due waits.
        let soonest = Timestamp::from_second(seen.now.as_second() + SHORTEST_SECONDS).ok();
        let due = self.due(AGAIN_SECONDS, &seen.cluster.uid).filter(|_| self.is_in_doubt());
        self.compared.next = due.max(soonest.filter(|_| due.is_some()));
        self.compared.clone()
    }
}

/// The voters, the leader last; none unless all of them serve and none is about to stop.
pub fn compared_members(seen: &Observed) -> Option<Vec<(Ordinal, MemberId)>> {
    let facts = assess(seen);
    let members = facts.listed().filter(|it| it.voters().count() > 1 && seen.order.is_none())?;
    if !members.voters().all(|(id, _)| facts.serves(id) && !facts.is_ending(id)) {
        return None;
    }
    let mut compared: Vec<_> =
        members.voters().map(|(id, voter)| Some((voter.ordinal?, id))).collect::<Option<_>>()?;
    compared.sort_by_key(|(ordinal, id)| (members.leader == Some(*id), *ordinal));
    Some(compared)
}

/// Clusters have different ones.
fn phase(cluster_uid: &str) -> i64 {
    cluster_uid.bytes().fold(0, |sum: i64, byte| (sum * 31 + i64::from(byte)) % 86_400)
}
