//! Which copies are deleted.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::layout::CopyName;

/// How many copies to keep, and for how long; what has no limit stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_copies: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_seconds: Option<u64>,
    /// Copies that a continuous chain begins with.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needed: BTreeSet<CopyName>,
    /// Copies that were found to be damaged.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub damaged: BTreeSet<CopyName>,
}

/// A copy whose manifest this version can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub name: CopyName,
    /// The lowest that its data can have. Copies of one cluster are in its order, whatever the clocks of their runs were.
    pub revision: i64,
    pub completed_at: Timestamp,
    /// Its data is there, as long as the manifest says.
    pub is_complete: bool,
}

/// The copies to delete, oldest first. The newest good copy and those that a chain needs stay, whatever the limits are. Copies
/// that are not good do not count for `maxCopies`, so they never push a good one out.
pub fn outdated(copies: &[Stored], retention: &Retention, now: Timestamp) -> Vec<CopyName> {
    let is_good = |copy: &&Stored| copy.is_complete && !retention.damaged.contains(&copy.name);
    let order = |copy: &Stored| (copy.revision, copy.completed_at, copy.name.clone());
    let good: BTreeSet<_> = copies.iter().filter(is_good).map(order).collect();
    let Some(last_good) = good.last().cloned() else {
        return Vec::new();
    };
    let is_outdated = |copy: &&Stored| {
        let newer = good.iter().rev().take_while(|it| **it > order(copy)).count();
        let is_beyond = retention.max_copies.is_some_and(|max| newer >= max as usize);
        let age = now.duration_since(copy.completed_at);
        let is_old = retention
            .max_age_seconds
            .is_some_and(|max| age > SignedDuration::from_secs(i64::try_from(max).unwrap_or(i64::MAX)));
        (is_beyond || is_old) && order(copy) != last_good && !retention.needed.contains(&copy.name)
    };
    let mut outdated: Vec<_> = copies.iter().filter(is_outdated).map(order).collect();
    outdated.sort();
    outdated.into_iter().map(|(_, _, name)| name).collect()
}

#[cfg(test)]
mod tests;
