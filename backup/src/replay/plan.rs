//! Which copy and which segments a replay needs.

use std::collections::BTreeSet;

use etcd_operator_core::backup::chain::{NotExact, Place, locate, path};
use etcd_operator_core::backup::layout::CopyName;
use etcd_operator_core::backup::manifest::Manifest;
use etcd_operator_core::backup::segment::Segment;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;

use super::{Target, content, read_segment};
use crate::copies;
use crate::decode::Identities;
use crate::error::Error;
use crate::segments::Segments;
use crate::store::Store;

const HEADS_AT_ONCE: usize = 16;
/// A chain that began while another archiver continued the previous one overlaps with this many of its segments at most.
const OVERLAP: usize = 8;

pub struct Plan {
    pub manifest: Manifest,
    pub revision: i64,
    pub path: Vec<Segment>,
}

/// The newest good copy that is not beyond the target.
pub async fn plan(
    store: &Store,
    segments: &Segments,
    target: Target,
    damaged: &BTreeSet<CopyName>,
    identities: Option<&Identities>,
) -> Result<Plan, Error> {
    let mut copies = copies::good(store, &segments.layout, damaged).await?;
    let firsts = segments.firsts().await?;
    let mut refused = None;
    while let Some(manifest) = copies.pop() {
        let lowest = manifest.revision.lowest;
        let heads = match target {
            Target::Revision(revision) if manifest.revision.highest > revision => continue,
            Target::Revision(revision) => heads(segments, &firsts, lowest, revision).await?,
            Target::Time(_) => heads(segments, &firsts, lowest, i64::MAX).await?,
        };
        let revision = match target {
            Target::Revision(revision) => Ok(revision),
            Target::Time(time) => at(segments, time, lowest, &heads, identities).await?,
        };
        match revision {
            Ok(revision) if manifest.revision.highest > revision => {}
            Ok(revision) => {
                let found = path(lowest, Some(revision), &heads);
                let found =
                    found.map_err(|error| Error::Broken(format!("{error}: choose an earlier revision")))?;
                return Ok(Plan { revision, path: found.into_iter().cloned().collect(), manifest });
            }
            // An older copy might have it.
            Err(error) => {
                let is_final = error.before.is_some();
                refused.get_or_insert(error);
                if is_final {
                    break;
                }
            }
        }
    }
    Err(match (refused, target) {
        (Some(error), _) => Error::NotFound(error.to_string()),
        (None, Target::Revision(revision)) => {
            Error::NotFound(format!("no good copy has revision {revision} or an earlier one"))
        }
        (None, Target::Time(time)) => Error::NotFound(format!("no good copy is from {time} or earlier")),
    })
}

/// Of the segments that can be on a path from a copy.
async fn heads(segments: &Segments, firsts: &[i64], lowest: i64, last: i64) -> Result<Vec<Segment>, Error> {
    let begin = firsts.partition_point(|first| *first <= lowest + 1).saturating_sub(OVERLAP);
    let wanted = firsts[begin..].iter().take_while(|first| **first <= last).copied().collect::<Vec<_>>();
    let read = futures::stream::iter(wanted).map(|first| async move {
        match segments.head(first).await? {
            Some(Ok(segment)) => Ok(Some(segment)),
            Some(Err(error)) => {
                eprintln!("skipping segment {}: {error}", segments.path(first));
                Ok(None)
            }
            None => Ok(None),
        }
    });
    let read: Result<Vec<_>, Error> = read.buffered(HEADS_AT_ONCE).try_collect().await;
    Ok(read?.into_iter().flatten().collect())
}

/// The revision of the cluster at a time, by the path of a copy.
async fn at(
    segments: &Segments,
    time: Timestamp,
    lowest: i64,
    heads: &[Segment],
    identities: Option<&Identities>,
) -> Result<Result<i64, NotExact>, Error> {
    let path = path(lowest, None, heads).expect("without a target there is always one");
    let first = match locate(time, &path, None) {
        Ok(Place::Revision(revision)) => return Ok(Ok(revision)),
        Ok(Place::Within(first)) => first,
        Err(error) => return Ok(Err(error)),
    };
    let stored = read_segment(segments, first).await?;
    let records = content(segments, &stored, identities)?;
    let received = records.iter().filter(|it| it.revision != 0 && it.received <= time.as_millisecond());
    Ok(Ok(received.map(|it| it.revision).max().unwrap_or(first - 1)))
}
