//! Which segments lead from a copy to a revision.

use std::collections::BTreeMap;
use std::fmt;

use crate::backup::segment::Segment;

/// Why segments are not consecutive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Break {
    /// No segment has this revision, although later ones might exist.
    Missing(i64),
    /// The segment that begins with this revision continues another object than the one before it.
    OtherPrevious(i64),
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(revision) => write!(f, "no segment has revision {revision}"),
            Self::OtherPrevious(revision) => write!(
                f,
                "the segment that begins with revision {revision} does not continue the one before it"
            ),
        }
    }
}

impl std::error::Error for Break {}

/// Follows a chain while its objects are read, in order.
#[derive(Clone, Debug)]
pub struct Follower {
    complete: i64,
    /// The hash of the object that was accepted last.
    previous: Option<String>,
}

impl Follower {
    /// From a copy that has everything up to this revision.
    pub fn from_copy(lowest: i64) -> Self {
        Self { complete: lowest, previous: None }
    }

    /// The first segment can begin before the copy, every other one continues its predecessor.
    pub fn accept(&mut self, segment: &Segment, sha256: &str) -> Result<(), Break> {
        let next = self.complete + 1;
        match &self.previous {
            None if segment.first > next || segment.last < next => return Err(Break::Missing(next)),
            Some(_) if segment.first != next => return Err(Break::Missing(next)),
            Some(previous) if segment.previous.as_ref() != Some(previous) => {
                return Err(Break::OtherPrevious(segment.first));
            }
            None | Some(_) => {}
        }
        self.complete = segment.last;
        self.previous = Some(sha256.to_owned());
        Ok(())
    }

    pub fn complete(&self) -> i64 {
        self.complete
    }
}

/// The segments that cover every revision after `lowest`, up to `target` if there is one, else as far as they reach. When a
/// chain began while another archiver still continued the previous one, several can begin a path; the one that reaches farthest is taken.
pub fn path(lowest: i64, target: Option<i64>, segments: &[Segment]) -> Result<Vec<&Segment>, Break> {
    let by_first: BTreeMap<i64, &Segment> = segments.iter().map(|it| (it.first, it)).collect();
    let target_or_any = target.unwrap_or(i64::MAX);
    let beginnings = by_first.range(..=lowest + 1).rev().map(|(_, it)| *it);
    let best = beginnings
        .filter(|it| it.last > lowest)
        .map(|beginning| {
            let mut path = vec![beginning];
            let mut last = beginning.last;
            while last < target_or_any
                && let Some(next) = last.checked_add(1).and_then(|first| by_first.get(&first))
            {
                path.push(next);
                last = next.last;
            }
            path
        })
        .max_by_key(|path| path.last().map(|it| it.last));
    let reached = best.as_ref().and_then(|path| path.last()).map_or(lowest, |it| it.last);
    if target.is_some_and(|target| reached < target) {
        return Err(Break::Missing(reached + 1));
    }
    Ok(best.unwrap_or_default())
}
