//! Decisions about the chain of segments: where it continues, whether it is complete, and which of it can be deleted.
//!
//! Every revision of etcd has at least one event, so a chain is complete if and only if the revisions in it are consecutive.

mod intake;
mod moments;
mod path;

use std::fmt;

pub use intake::{Intake, Progress, Step, Violation};
pub use moments::{Moment, NotExact, Place, locate};
pub use path::{Break, Follower, path};

use super::segment::Segment;

/// What a replay restores, at least.
pub const REPLAYED_PER_SECOND: i64 = 2_000;
/// A chain that takes longer needs a new full copy.
pub const REPLAY_SECONDS: i64 = 600;

/// Where an archiver continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// After the newest segment. If etcd does not have these revisions any more, the copy is the beginning of a new chain.
    Continue { after: i64, newer_copy: Option<i64> },
    /// With the first revision after a copy.
    Begin { after: i64 },
}

/// Why there is nothing to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyNeeded {
    NoCopy,
    /// The newest copy ends before the first revision of the newest chain.
    Unconnected {
        copy: i64,
        chain_first: i64,
    },
}

impl fmt::Display for CopyNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCopy => write!(f, "the store has no good copy of this cluster to begin with"),
            Self::Unconnected { copy, chain_first } => write!(
                f,
                "the newest good copy ends at revision {copy}, and the newest chain begins with revision {chain_first}"
            ),
        }
    }
}

impl std::error::Error for CopyNeeded {}

/// From the lowest revision that the newest good copy can have, and the newest segment.
pub fn start(copy: Option<i64>, newest: Option<&Segment>) -> Result<Start, CopyNeeded> {
    let copy = copy.ok_or(CopyNeeded::NoCopy)?;
    let Some(newest) = newest else {
        return Ok(Start::Begin { after: copy });
    };
    if newest.chain_first > copy + 1 {
        return Err(CopyNeeded::Unconnected { copy, chain_first: newest.chain_first });
    }
    Ok(Start::Continue { after: newest.last, newer_copy: Some(copy).filter(|it| *it > newest.last) })
}

/// What to do when etcd has compacted revisions that the archive wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compacted {
    /// The next revision is still available.
    Continue,
    /// A newer copy has what is missing: a new chain begins after it.
    Begin { after: i64 },
    /// Revisions are lost for the archive.
    Gap { first: i64, last: i64 },
}

/// etcd has the events of `compacted` and later. `complete` is the last revision of the chain, `copy` the lowest that the newest
/// good copy can have.
pub fn after_compaction(complete: i64, compacted: i64, copy: Option<i64>) -> Compacted {
    if compacted <= complete + 1 {
        return Compacted::Continue;
    }
    match copy.filter(|copy| *copy > complete && copy + 1 >= compacted) {
        Some(after) => Compacted::Begin { after },
        None => Compacted::Gap { first: complete + 1, last: compacted - 1 },
    }
}

/// Whether a replay from the newest copy would take too long.
pub fn needs_new_copy(copy: i64, last: i64) -> bool {
    last - copy > REPLAYED_PER_SECOND * REPLAY_SECONDS
}

/// Whether retention can delete a segment: every copy that stays includes all of it, and it is not the newest segment, which
/// archivers continue. `lowest` are the lowest revisions of all copies that stay; None if one of them is not known.
pub fn is_outdated(segment: &Segment, newest_first: i64, lowest: Option<&[i64]>) -> bool {
    let needed_after = lowest.and_then(|all| all.iter().min());
    segment.first < newest_first && needed_after.is_some_and(|after| segment.last <= *after)
}

#[cfg(test)]
mod tests;
