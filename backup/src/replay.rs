//! Point in time: a full copy and the segments after it, replayed into an etcd on loopback up to a revision, as a snapshot.
//!
//! One transaction for each original revision, strictly in order. Each one states what it has found in the source: the versions of
//! its keys. It aborts unless etcd finds the same, and gives it the same revision.

mod keep_alive;
mod plan;
mod scratch;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use etcd_operator_core::backup::Word;
use etcd_operator_core::backup::chain::Follower;
use etcd_operator_core::backup::inputs::Inputs;
use etcd_operator_core::backup::layout::Layout;
use etcd_operator_core::backup::manifest::{Encryption, Manifest};
use etcd_operator_core::backup::report::{Done, Summary};
use etcd_operator_core::backup::restorable;
use etcd_operator_core::backup::segment::Segment;
use jiff::Timestamp;

use crate::decode::{Identities, identities};
use crate::error::Error;
use crate::etcd::words;
use crate::read::{self, Partial};
use crate::record::{Change, Record, records, unpack};
use crate::segments::{Segments, Stored};
use crate::snapshot::TrailingHash;
use crate::store::Store;
use crate::{ForRestore, restore};
use plan::Plan;
use scratch::Scratch;

const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// A scratch etcd keeps so much history, which is compacted that often.
const KEPT_REVISIONS: i64 = 10_000;
const COMPACT_EVERY: i64 = 50_000;

#[derive(Clone, Copy, Debug)]
pub enum Target {
    Revision(i64),
    Time(Timestamp),
}

pub struct Options {
    pub target: Target,
    pub output: PathBuf,
    pub identity: Option<PathBuf>,
    /// For the data of etcd: as large as the database, and its log.
    pub scratch: PathBuf,
    pub etcd: PathBuf,
    pub etcdutl: PathBuf,
    pub restore: ForRestore,
}

pub async fn replay(
    store: &Store,
    layout: &Layout,
    inputs: &Inputs,
    options: &Options,
) -> Result<Done, Error> {
    let keys = || options.identity.as_deref().map(identities).transpose();
    let (of_copy, of_segments) = (keys()?, keys()?);
    let segments = Segments::new(store, layout.clone());
    let Plan { manifest, revision, path } =
        plan::plan(store, &segments, options.target, &inputs.retention.damaged, of_segments.as_ref()).await?;
    let copy = Summary::from(&manifest);
    if options.restore.unless_exists.as_ref().is_some_and(|file| file.exists()) {
        return Ok(Done::Replay { replayed: revision - copy.revision.lowest, copy, revision });
    }
    prepare(options, &manifest, &path)?;
    if let Some(file) = &options.restore.highest {
        restore::write_highest(store, layout, file).await?;
    }
    if restorable::has_exactly(&manifest, revision) {
        read::fetch(store, layout, manifest, of_copy, &options.output).await?;
        return Ok(Done::Replay { copy, revision, replayed: 0 });
    }
    let output = Partial::create(&options.output)?;
    eprintln!("replaying copy {} and {} segments up to revision {revision}", manifest.name, path.len());
    let directory = scratch::Directory::create(&options.scratch)?;
    let file = directory.file("copy.db");
    read::fetch(store, layout, manifest.clone(), of_copy, &file).await?;
    let mut scratch = Scratch::start(options, directory, &file).await?;
    let begin = scratch.begin;
    if begin > revision || begin < manifest.revision.lowest {
        return Err(Error::Damaged(format!(
            "copy {} is at revision {begin}, which its manifest does not say: use another copy",
            manifest.name
        )));
    }
    let mut replay = Replay { scratch: &mut scratch, last: begin, target: revision, printed: Instant::now() };
    let mut follower = Follower::from_copy(manifest.revision.lowest);
    for segment in path.iter().take_while(|it| it.first <= revision) {
        let stored = read_segment(&segments, segment.first).await?;
        let accepted = follower.accept(&stored.segment, &stored.sha256);
        accepted.map_err(|error| Error::Damaged(format!("the archive is damaged: {error}")))?;
        let records = content(&segments, &stored, of_segments.as_ref())?;
        // Their lifetimes are at the end of a segment.
        for lease in records.iter().flat_map(|it| &it.leases) {
            replay.scratch.leases.learn(lease.id, lease.ttl);
        }
        for record in records {
            replay.record(record).await?;
        }
    }
    if replay.last != revision {
        return Err(Error::Damaged(format!(
            "the archive ends at revision {}, before {revision}",
            replay.last
        )));
    }
    save(&mut scratch, &output).await?;
    output.complete()?;
    Ok(Done::Replay { copy, revision, replayed: revision - begin })
}

/// For a restore: what can be checked before anything is written, and what an earlier attempt has left.
fn prepare(options: &Options, manifest: &Manifest, path: &[Segment]) -> Result<(), Error> {
    let Some(version) = &options.restore.for_etcd else { return Ok(()) };
    let content = path.iter().map(|it| it.body.content_bytes).sum();
    let room = restorable::room_to_replay(manifest, content);
    restore::prepare(manifest, version, &options.output, room)?;
    scratch::Directory::remove(&options.scratch)
}

async fn save(scratch: &mut Scratch, output: &Partial) -> Result<(), Error> {
    let failed = |words: String| Error::Scratch(format!("it sends no snapshot: {words}"));
    let mut stream = scratch.client.snapshot().await.map_err(|error| failed(words(&error)))?;
    let (mut file, mut hash) = (output.file()?, TrailingHash::default());
    while let Some(message) = stream.message().await.map_err(|error| failed(words(&error)))? {
        hash.update(message.blob());
        let failed = |source| Error::Output { doing: "write the snapshot".into(), source };
        file.write_all(message.blob()).map_err(failed)?;
    }
    hash.finish().map(drop).ok_or_else(|| failed("it does not end with its hash".into()))
}

async fn read_segment(segments: &Segments, first: i64) -> Result<Stored, Error> {
    let path = segments.path(first);
    let stored = segments.read(first).await?;
    let stored = stored.ok_or_else(|| Error::NotFound(format!("segment {path} does not exist any more")))?;
    let stored = stored.map_err(|error| segments.unreadable(first, &error))?;
    if stored.is_intact() {
        return Ok(stored);
    }
    Err(Error::Damaged(format!(
        "segment {path} is damaged: its SHA-256 is another one: choose a revision up to {}",
        first - 1
    )))
}

fn content(
    segments: &Segments,
    stored: &Stored,
    identities: Option<&Identities>,
) -> Result<Vec<Record>, Error> {
    let Stored { segment, body, .. } = stored;
    let path = segments.path(segment.first);
    let unusable = |why: String| Error::Unusable(format!("segment {path} cannot be used: {why}"));
    let unknown = |word: &str| unusable(format!("it has {word}, which this version cannot read"));
    let compression = match &segment.body.compression {
        Word::Known(compression) => *compression,
        Word::Unknown(word) => return Err(unknown(word)),
    };
    let identities = match (&segment.body.encryption, identities) {
        (Word::Unknown(word), _) => return Err(unknown(word)),
        (Word::Known(Encryption::None), Some(_)) => {
            return Err(unusable(
                "it is not encrypted, but an identity was given, so an encrypted one is expected".into(),
            ));
        }
        (Word::Known(Encryption::Age), None) => {
            let recipients = segment.body.recipients.join(", ");
            return Err(unusable(format!(
                "it is encrypted: give the file with the identity of one of {recipients} (--identity)"
            )));
        }
        (Word::Known(_), identities) => identities,
    };
    let read = unpack(body, compression, identities).and_then(records);
    read.map_err(|error| unusable(error.to_string()))
}

struct Replay<'a> {
    scratch: &'a mut Scratch,
    last: i64,
    target: i64,
    printed: Instant,
}

impl Replay<'_> {
    async fn record(&mut self, record: Record) -> Result<(), Error> {
        if record.revision <= self.last || record.revision > self.target {
            return Ok(());
        }
        for id in record.changes.iter().map(|it| it.lease).filter(|id| *id != 0) {
            self.scratch.ensure_lease(id).await?;
        }
        let revision = record.revision;
        let diverged = |how: String| {
            Error::Damaged(format!(
                "the replay of revision {revision} does not lead to what the cluster had: {how}"
            ))
        };
        let response = self.scratch.keys.txn(transaction(revision, record.changes)).await;
        let response =
            response.map_err(|error| Error::Scratch(format!("revision {revision}: {}", words(&error))))?;
        if !response.succeeded() {
            return Err(diverged("a key that it changes has another version".into()));
        }
        let found = response.header().map_or(0, etcd_client::ResponseHeader::revision);
        if found != revision {
            return Err(diverged(format!("etcd gives it revision {found}, {}", self.scratch.leases.why())));
        }
        self.last = revision;
        if revision % COMPACT_EVERY == 0 {
            self.scratch.compact(revision - KEPT_REVISIONS).await?;
        }
        if self.printed.elapsed() >= PROGRESS_EVERY {
            eprintln!("replayed up to revision {revision} of {}", self.target);
            self.printed = Instant::now();
        }
        Ok(())
    }
}

/// The changes of one revision, on the condition that each key is as it was in the source.
fn transaction(revision: i64, changes: Vec<Change>) -> Txn {
    let (mut compares, mut operations) = (Vec::new(), Vec::new());
    for change in changes {
        let Change { key, value, is_delete, lease, version, create_revision } = change;
        if is_delete {
            compares.push(Compare::version(key.clone(), CompareOp::Greater, 0));
            operations.push(TxnOp::delete(key, None));
            continue;
        }
        compares.push(Compare::version(key.clone(), CompareOp::Equal, version - 1));
        if create_revision != revision {
            compares.push(Compare::create_revision(key.clone(), CompareOp::Equal, create_revision));
        }
        let with = Some(PutOptions::new().with_lease(lease)).filter(|_| lease != 0);
        operations.push(TxnOp::put(key, value, with));
    }
    Txn::new().when(compares).and_then(operations)
}
