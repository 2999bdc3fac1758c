//! What members return when the operator compares their data.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{MemberId, Members};
use crate::quorum::quorum;

/// etcd's hash of all keys from the last compaction to a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHash {
    pub hash: u32,
    /// The revision of the last compaction.
    pub compacted: i64,
}

/// The hashes that all voters returned for one revision. etcd rejects the request at learners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// When it began.
    pub at: Timestamp,
    pub revision: i64,
    pub hashes: BTreeMap<MemberId, u32>,
}

/// What this operator remembers of comparisons: after a restart it begins anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// While the alarm `CORRUPT` is active, only comparisons since then count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Comparison>,
    /// The one before, at another revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Comparison>,
    /// When the next one is due, while one is wanted to confirm the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// When the operator disarmed the alarm `CORRUPT` last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disarmed: Option<Timestamp>,
}

/// What a comparison means for the members that etcd lists now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All voters have the same data.
    Equal,
    /// A majority of all voters has the same data, and these members have other data.
    Minority(BTreeSet<MemberId>),
    /// These differ, and no majority of all voters agrees.
    NoMajority(BTreeSet<MemberId>),
    /// A voter was not compared, and those that were agree.
    Incomplete,
}

impl Comparison {
    /// None if a member returned no hash, or if members have compacted up to different revisions: then their hashes differ
    /// although their data is the same.
    pub fn of(at: Timestamp, revision: i64, returned: &BTreeMap<MemberId, Option<DataHash>>) -> Option<Self> {
        let returned = returned.iter().map(|(&id, hash)| Some((id, (*hash)?)));
        let returned: BTreeMap<MemberId, DataHash> = returned.collect::<Option<_>>()?;
        let compacted: BTreeSet<i64> = returned.values().map(|it| it.compacted).collect();
        let hashes = returned.into_iter().map(|(id, it)| (id, it.hash)).collect();
        (compacted.len() == 1).then_some(Self { at, revision, hashes })
    }

    pub fn verdict(&self, members: &Members) -> Verdict {
        let voters = members.voters().count();
        let hashes: BTreeMap<MemberId, u32> =
            members.voters().filter_map(|(id, _)| Some((id, *self.hashes.get(&id)?))).collect();
        let agreeing = |hash: u32| hashes.values().filter(|it| **it == hash).count();
        let different: BTreeSet<u32> = hashes.values().copied().collect();
        if different.len() < 2 {
            return if hashes.len() == voters { Verdict::Equal } else { Verdict::Incomplete };
        }
        match different.into_iter().find(|hash| agreeing(*hash) >= quorum(voters)) {
            Some(right) => Verdict::Minority(
                hashes.into_iter().filter(|(_, hash)| *hash != right).map(|(id, _)| id).collect(),
            ),
            None => Verdict::NoMajority(hashes.into_keys().collect()),
        }
    }
}

impl Compared {
    pub(super) fn is_nothing(&self) -> bool {
        self == &Self::default()
    }

    pub fn verdict(&self, members: &Members) -> Verdict {
        self.last.as_ref().map_or(Verdict::Incomplete, |it| it.verdict(members))
    }

    /// The members that differed from a majority in two comparisons in a row, at different revisions.
    pub fn differed_twice(&self, members: &Members) -> BTreeSet<MemberId> {
        let minority = |it: &Comparison| match it.verdict(members) {
            Verdict::Minority(ids) => ids,
            Verdict::Equal | Verdict::NoMajority(_) | Verdict::Incomplete => BTreeSet::new(),
        };
        let both = self.last.as_ref().zip(self.before.as_ref());
        both.filter(|(last, before)| last.revision != before.revision)
            .map(|(last, before)| &minority(last) & &minority(before))
            .unwrap_or_default()
    }
}
