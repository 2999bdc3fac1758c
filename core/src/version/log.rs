//! What has to happen before a member is started with etcd 3.7.
//!
//! Members of 3.5 write some entries of the log in a format that 3.7 cannot read: it panics when it starts. They stay in the log
//! until the member saves a snapshot, which 3.6 does after 10,000 entries: in a quiet cluster, never. It also does so
//! at once when the version of the cluster goes back, so a downgrade that is enabled and cancelled again makes every member
//! save one. `docs/adr/0037-versions.md` has what was measured.

use super::Version;
use super::downgrade::{self, Next};
use crate::observed::Answer;

const READS_NO_OLD_ENTRIES: Version = Version::new(3, 7, 0);
const WRITES_THEM: Version = Version::new(3, 5, 0);
const BETWEEN: Version = Version::new(3, 6, 0);

/// What comes before the next member is restarted with the wanted version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// Nothing: restart it.
    Done,
    /// Enable a downgrade to this version, for its snapshots.
    Enable(Version),
    /// So many members have saved theirs.
    Snapshots(usize),
    /// All have: record it, and cancel the downgrade.
    Record,
    /// Wait until all members have this storage version.
    Migrate(Version),
    /// A member did not report its version.
    Unknown,
    /// One runs the wanted version already, so no downgrade can be enabled.
    TooLate,
}

/// Whether the log of a member matters for a restart with this version.
pub fn matters(wanted: Version) -> bool {
    wanted.minor() == READS_NO_OLD_ENTRIES
}

/// Whether this version writes such entries again.
pub fn is_written_by(version: Version) -> bool {
    version.minor() <= WRITES_THEM
}

/// The downgrade that is enabled for its snapshots.
pub fn is_for_snapshots(to: Version, wanted: Version) -> bool {
    matters(wanted) && to == WRITES_THEM
}

/// The answers of all members, and whether all logs that matter are recorded as cleared. Whether the wanted version can be
/// reached at all is for `path::judge` to say.
pub fn next(answers: &[&Answer], cleared: bool) -> Clearing {
    let older = || answers.iter().filter(|answer| answer.version.is_some_and(|it| it < READS_NO_OLD_ENTRIES));
    let at = |storage| older().filter(|answer| answer.storage_version == Some(storage)).count();
    // A member that is back there has applied what came after its snapshot, so that is complete.
    if cleared {
        return if at(BETWEEN) == older().count() { Clearing::Done } else { Clearing::Migrate(BETWEEN) };
    }
    if older().count() < answers.len() {
        return Clearing::TooLate;
    }
    match downgrade::next(answers.iter().copied(), WRITES_THEM) {
        Next::Enable(to) => Clearing::Enable(to),
        Next::Migrate(to) if to == WRITES_THEM => Clearing::Snapshots(at(to)),
        Next::Migrate(version) => Clearing::Migrate(version),
        Next::Restart => Clearing::Record,
        Next::Cancel | Next::Unknown => Clearing::Unknown,
    }
}
