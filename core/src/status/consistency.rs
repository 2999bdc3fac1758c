//! Whether members have the same data.

use super::conditions::{Value, find};
use super::facts::Finding;
use super::view::View;
use crate::names::{condition, reason};
use crate::observed::{Alarm, MemberId, Members, Verdict};

impl View<'_> {
    /// What the last comparison showed. A comparison that this operator has not made yet changes nothing, so a restart of the operator
    /// writes no status. None with fewer than two voters, before the first comparison, and if data is never compared.
    pub fn consistency(&self) -> Option<Finding> {
        self.basis.goal.consistency_interval_seconds.filter(|_| self.size() > 0)?;
        let verdict = self.facts.listed().map(|it| (it, self.seen().etcd.compared.verdict(it)));
        match verdict {
            Some((members, _)) if members.voters().count() < 2 => None,
            Some((members, Verdict::Equal)) => Some((Value::True, reason::DATA_EQUAL, equal(members))),
            Some((_, Verdict::Minority(ids))) => {
                let message = format!("other data than the majority of members: {}", self.all(ids));
                Some((Value::False, reason::DATA_MISMATCH, message))
            }
            Some((_, Verdict::NoMajority(ids))) => {
                let message =
                    format!("members hold different data and no majority agrees: {}", self.all(ids));
                Some((Value::False, reason::DATA_MISMATCH, message))
            }
            Some((_, Verdict::Incomplete)) if self.is_reported_corrupt() => {
                let message =
                    "etcd raised the alarm CORRUPT, and the data of members has not been compared since";
                Some((Value::Unknown, reason::COMPARING_DATA, message.into()))
            }
            Some((_, Verdict::Incomplete)) | None => self.consistency_before(),
        }
    }

    fn consistency_before(&self) -> Option<Finding> {
        let before = find(&self.before.conditions, condition::DATA_CONSISTENT)?;
        let (value, reason) = match before.status.as_str() {
            "True" => (Value::True, reason::DATA_EQUAL),
            "Unknown" => (Value::Unknown, reason::COMPARING_DATA),
            _ => (Value::False, reason::DATA_MISMATCH),
        };
        Some((value, reason, before.message.clone()))
    }

    fn is_reported_corrupt(&self) -> bool {
        self.facts.alarms().iter().any(|alarm| alarm.kind == Alarm::CORRUPT)
    }

    fn all(&self, ids: impl IntoIterator<Item = MemberId>) -> String {
        ids.into_iter().map(|id| self.terms().member(id)).collect::<Vec<_>>().join(", ")
    }
}

fn equal(members: &Members) -> String {
    format!("all {} voting members returned the same hash of their data", members.voters().count())
}
