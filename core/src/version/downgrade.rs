//! What has to happen in etcd before a member is started with an older minor version.
//!
//! etcd keeps one downgrade for the whole cluster: from the moment that it is enabled, the cluster behaves as the
//! target, and every member rewrites its data to that format. A member that was not finished with it does not start with
//! the older version. `docs/adr/0037-versions.md` has what etcd reports in each state.

use serde::{Deserialize, Serialize};

use super::Version;
use crate::observed::Answer;

/// What a member reports about a downgrade of its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Downgrade {
    /// Nothing: members before 3.6 know, but do not tell.
    #[default]
    Unreported,
    Disabled,
    /// To this minor version.
    Enabled(Version),
}

/// What comes before the next member is restarted with the wanted version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: restart it.
    Restart,
    /// Enable a downgrade to this minor version.
    Enable(Version),
    /// Cancel the downgrade that is enabled.
    Cancel,
    /// Wait until all members have this storage version.
    Migrate(Version),
    /// A member did not report its version.
    Unknown,
}

/// The minor version to which the cluster is on its way back.
pub fn enabled<'a>(mut answers: impl Iterator<Item = &'a Answer>) -> Option<Version> {
    answers.find_map(|answer| match answer.downgrade {
        Downgrade::Enabled(target) => Some(target.minor()),
        Downgrade::Disabled | Downgrade::Unreported => None,
    })
}

/// The answers of all members. Whether the wanted version can be reached at all is for `path::judge` to say.
pub fn next<'a>(answers: impl IntoIterator<Item = &'a Answer>, wanted: Version) -> Next {
    let answers: Vec<_> = answers.into_iter().collect();
    let minors: Option<Vec<_>> = answers.iter().map(|answer| Some(answer.version?.minor())).collect();
    let Some(minors) = minors.filter(|minors| !minors.is_empty()) else { return Next::Unknown };
    let target = wanted.minor();
    let enabled = enabled(answers.iter().copied());
    let newer = || answers.iter().zip(&minors).filter(|(_, minor)| **minor > target);
    let has_format = |format: Version| newer().all(|(answer, _)| answer.storage_version == Some(format));
    match enabled {
        Some(other) if other != target => Next::Cancel,
        _ if newer().next().is_none() => Next::Restart,
        Some(_) if has_format(target) => Next::Restart,
        Some(_) => Next::Migrate(target),
        // With a member that runs the target or an older version, the version of the cluster cannot be newer, and it
        // stays where it is as long as that member is listed: an upgrade that is reverted.
        None if minors.iter().any(|minor| *minor <= target) => {
            match newer().all(|(answer, _)| answer.storage_version.is_some_and(|storage| storage <= target)) {
                true => Next::Restart,
                false => Next::Migrate(target),
            }
        }
        // Until the cluster has its members' version, etcd rejects the target: it is not one below the cluster's.
        None => match newer().find(|(answer, minor)| answer.storage_version != Some(**minor)) {
            Some((_, minor)) => Next::Migrate(*minor),
            None => Next::Enable(target),
        },
    }
}

#[cfg(test)]
mod tests;
