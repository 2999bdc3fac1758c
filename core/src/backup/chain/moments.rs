//! Which revision the cluster had at a time.

use std::fmt;

use jiff::Timestamp;

use crate::backup::segment::Segment;

/// At this time the cluster was at this revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub time: Timestamp,
    pub revision: i64,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (revision {})", self.time, self.revision)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Revision(i64),
    /// The times in the segment that begins with this revision decide.
    Within(i64),
}

/// The archive does not know which revision it was. The nearest times for which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotExact {
    pub time: Timestamp,
    pub before: Option<Moment>,
    pub after: Option<Moment>,
}

impl fmt::Display for NotExact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, before, after } = self;
        write!(f, "the archive does not know the revision of the cluster at {time}: ")?;
        match (before, after) {
            (Some(before), Some(after)) => {
                write!(f, "it caught up then; the nearest times that it knows are {before} and {after}")
            }
            (Some(before), None) => write!(f, "the last time that it knows is {before}"),
            (None, Some(after)) => write!(f, "the first time that it knows is {after}"),
            (None, None) => write!(f, "it has no segment with exact times"),
        }
    }
}

impl std::error::Error for NotExact {}

/// In a path of consecutive segments. `end` is what was known later than all of them.
pub fn locate(time: Timestamp, path: &[&Segment], end: Option<Moment>) -> Result<Place, NotExact> {
    let mut known: Option<Moment> = None;
    for segment in path {
        let times = &segment.times;
        let at_end = |time| Moment { time, revision: segment.last };
        let (begin, end) = match (times.exact_since, times.confirmed) {
            (Some(since), confirmed) => {
                let begin = Moment { time: since, revision: segment.first - 1 };
                (begin, at_end(confirmed.map_or(times.last, |confirmed| confirmed.max(times.last))))
            }
            (None, Some(confirmed)) => (at_end(confirmed), at_end(confirmed)),
            (None, None) => continue,
        };
        if time < begin.time {
            return between(time, known, begin);
        }
        if time <= end.time {
            return Ok(if time < times.last && times.exact_since.is_some() {
                Place::Within(segment.first)
            } else {
                Place::Revision(segment.last)
            });
        }
        known = Some(end);
    }
    match end {
        Some(end) if time <= end.time => between(time, known, end),
        Some(_) | None => Err(NotExact { time, before: end.or(known), after: None }),
    }
}

/// Nothing was written between two times with the same revision.
fn between(time: Timestamp, before: Option<Moment>, after: Moment) -> Result<Place, NotExact> {
    match before {
        Some(before) if before.revision == after.revision => Ok(Place::Revision(after.revision)),
        _ if time == after.time => Ok(Place::Revision(after.revision)),
        before => Err(NotExact { time, before, after: Some(after) }),
    }
}
