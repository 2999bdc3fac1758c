//! The archive while one member is followed.

use std::time::{Duration, Instant};

use etcd_operator_core::backup::chain::{Intake, Progress, Step};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use super::Archive;
use super::filling::Filling;
use super::upload::{Outcome, Upload};
use crate::error::Error;
use crate::etcd::Member;
use crate::record::{Change, Revision};
use crate::watch::{Event, Received, Response, Watch};

/// The events of one revision are in memory before they are part of a segment: a delete of about 100,000 keys.
const MAX_REVISION_BYTES: usize = 8 << 20;
/// Nothing is received for this long: what is received then was written before.
const PAUSE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// For what is in memory when the archiver ends.
const LAST_PUT: Duration = Duration::from_secs(20);

/// Why a member is not followed any more.
pub enum Ended {
    /// Another member, or the same one, might serve.
    Lost(Error),
    /// The chain goes on somewhere else than this archiver knows.
    Taken,
    /// etcd has this revision and later ones.
    Compacted(i64),
    /// A signal, or what cannot pass.
    Final(Result<(), Error>),
}

pub struct Session<'a> {
    archive: &'a mut Archive,
    member: Member,
    version: String,
    watch: Watch,
    intake: Intake,
    /// The last revision that is stored is received once more, and has to be the same one.
    overlap: Option<(i64, String)>,
    pending: Option<Revision>,
    filling: Filling,
    /// Since when receipt is as good as writing.
    exact_since: Option<Timestamp>,
    /// At most one, which is the next of the chain.
    uploads: JoinSet<Result<Outcome, Error>>,
    /// Nothing is received while there is no room.
    paused: Option<Instant>,
    is_due: bool,
    /// A read that every write which was acknowledged before its time precedes.
    read: Option<BoxFuture<'static, Result<(i64, Timestamp), Error>>>,
    /// What it returned. Progress beyond this revision proves that everything before that time has arrived.
    proven: Option<(i64, Timestamp)>,
    last_received: Timestamp,
    /// For a newer copy, while one is due.
    looks: JoinSet<Result<Option<i64>, Error>>,
    looked: Instant,
    /// Times never go back.
    latest: Timestamp,
}

impl<'a> Session<'a> {
    /// From the end of the chain on.
    pub async fn begin(archive: &'a mut Archive) -> Result<Self, Error> {
        let end = archive.end.clone();
        let etcd = archive.inputs.etcd.as_ref().expect("it was checked");
        let member = Member::choose(etcd, archive.inputs.cluster()).await?;
        if member.revision < end.last {
            return Err(archive.diverged(&format!(
                "{} is at revision {}, and the archive has revision {}",
                member.endpoint, member.revision, end.last
            )));
        }
        let (_, version) = member.status().await?;
        let overlap = end.tip.map(|tip| (end.last, tip));
        let complete = end.last - i64::from(overlap.is_some());
        let watch = member.watch(complete + 1).await?;
        archive.progress.say(&format!("following {} after revision {}", member.endpoint, end.last));
        Ok(Self {
            archive,
            member,
            version,
            watch,
            intake: Intake::after(complete),
            overlap,
            pending: None,
            filling: Filling::default(),
            exact_since: None,
            uploads: JoinSet::new(),
            paused: None,
            is_due: false,
            read: None,
            proven: None,
            last_received: end.time,
            looks: JoinSet::new(),
            looked: Instant::now(),
            latest: end.time,
        })
    }

    /// Until it ends. What is complete is stored before.
    pub async fn follow(mut self, interrupted: &mut (impl Future<Output = ()> + Unpin)) -> Ended {
        let mut ended = self.run(interrupted).await;
        let mut flushed = None;
        if !matches!(ended, Ended::Final(_)) {
            tokio::select! {
                it = self.flush() => flushed = Some(it),
                () = &mut *interrupted => ended = Ended::Final(Ok(())),
            }
        }
        let flushed = match flushed {
            Some(flushed) => flushed,
            None => tokio::time::timeout(LAST_PUT, self.flush()).await.unwrap_or(Ok(true)),
        };
        match (flushed, ended) {
            (Ok(false), Ended::Lost(_) | Ended::Compacted(_)) => Ended::Taken,
            (Err(error), Ended::Final(Ok(())) | Ended::Lost(_) | Ended::Compacted(_)) => Ended::of(error),
            (_, ended) => ended,
        }
    }

    /// Stores all that is complete; false if another archiver was faster.
    async fn flush(&mut self) -> Result<bool, Error> {
        loop {
            self.cut(None);
            match self.uploads.join_next().await {
                None => return Ok(true),
                Some(joined) => {
                    if !self.stored(joined)? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    async fn run(&mut self, interrupted: &mut (impl Future<Output = ()> + Unpin)) -> Ended {
        let mut ticks = tokio::time::interval(self.archive.flush_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_full = self.is_full();
            self.note_pause(is_full);
            let reading = &mut self.read;
            let step = tokio::select! {
                () = &mut *interrupted => return Ended::Final(Ok(())),
                Some(joined) = self.uploads.join_next() => match self.stored(joined) {
                    Ok(true) => Ok(()),
                    Ok(false) => return Ended::Taken,
                    Err(error) => Err(error),
                },
                received = self.watch.next(), if !is_full => match received {
                    Ok(Received::Events(response)) => self.receive(response),
                    Ok(Received::Progress(revision)) => self.progress(revision),
                    Ok(Received::Compacted(revision)) => return Ended::Compacted(revision),
                    Err(error) => Err(error),
                },
                result = async { reading.as_mut().expect("it is there").await }, if reading.is_some() => {
                    self.read = None;
                    result.map(|(revision, began)| self.has_read(revision, began))
                }
                Some(found) = self.looks.join_next() => {
                    self.archive.found(found.expect("it does not panic"));
                    Ok(())
                }
                _ = ticks.tick() => {
                    self.tick();
                    Ok(())
                }
            };
            if let Err(error) = step {
                return Ended::of(error);
            }
            if self.filling.is_full() {
                self.cut(None);
            }
        }
    }

    fn tick(&mut self) {
        // What was due at the previous tick was not confirmed.
        if std::mem::replace(&mut self.is_due, !self.filling.is_empty()) {
            self.cut(None);
        }
        if self.read.is_none() {
            let (member, began) = (self.member.clone(), self.now());
            self.read = Some(async move { Ok((member.linearizable_revision().await?, began)) }.boxed());
        }
        if self.archive.is_copy_due() && self.looks.is_empty() && self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.looks.spawn(self.archive.look());
        }
        self.archive.progress.report(&self.archive.end, self.archive.copy, false);
    }

    fn is_full(&self) -> bool {
        self.filling.is_full() && !self.uploads.is_empty()
    }

    fn note_pause(&mut self, is_full: bool) {
        match self.paused {
            None if is_full => self.paused = Some(Instant::now()),
            Some(since) if !is_full => {
                self.paused = None;
                if since.elapsed() > PAUSE {
                    self.exact_since = None;
                    // What etcd has confirmed meanwhile waits in the connection, and is old.
                    (self.read, self.proven) = (None, None);
                }
            }
            None | Some(_) => {}
        }
    }

    fn receive(&mut self, response: Response) -> Result<(), Error> {
        let is_fragment = response.fragment;
        for event in response.events {
            self.event(event)?;
        }
        if !is_fragment {
            self.complete()?;
            self.intake.close();
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), Error> {
        let unknown =
            || self.member.failed("follow the watch", "it sent an event that is neither a put nor a delete");
        let (revision, change) = Change::of(event).ok_or_else(unknown)?;
        let step = self.intake.event(revision);
        let step = step.map_err(|violation| self.archive.broken(&violation.to_string()))?;
        if step == Step::Next {
            self.complete()?;
            self.last_received = self.now();
            self.pending = Some(Revision::new(revision, self.last_received.as_millisecond()));
        }
        let pending = self.pending.as_mut().expect("its first event has begun it");
        pending.add(&change);
        if pending.bytes() > MAX_REVISION_BYTES {
            let (revision, limit) = (pending.revision, MAX_REVISION_BYTES >> 20);
            return Err(self
                .archive
                .broken(&format!("revision {revision} has more than {limit} MiB of events")));
        }
        Ok(())
    }

    /// All events of the pending revision have arrived.
    fn complete(&mut self) -> Result<(), Error> {
        let Some(revision) = self.pending.take() else { return Ok(()) };
        match self.overlap.take() {
            Some((last, tip)) if last == revision.revision && tip != revision.tip() => Err(self
                .archive
                .diverged(&format!("revision {last} of etcd is not the one that the archive has"))),
            Some((last, _)) if last == revision.revision => Ok(()),
            _ => {
                self.filling.add(&revision);
                Ok(())
            }
        }
    }

    /// etcd sends no progress to a watch that begins after its newest revision. A read that began after the last event and finds
    /// nothing newer proves the same.
    fn has_read(&mut self, revision: i64, began: Timestamp) {
        if began >= self.last_received && self.intake.progress(revision) == Progress::Confirmed {
            return self.confirmed(began);
        }
        self.proven = Some((revision, began));
        self.watch.ask_for_progress();
    }

    fn progress(&mut self, revision: i64) -> Result<(), Error> {
        match self.intake.progress(revision) {
            Progress::Ahead => {
                let complete = self.intake.complete();
                let words = format!("it reports revision {revision}, and sent none after {complete}");
                Err(self.member.failed("follow the watch", &words))
            }
            Progress::Confirmed => {
                if let Some((_, time)) = self.proven.take_if(|(proven, _)| revision >= *proven) {
                    self.confirmed(time.max(self.last_received));
                }
                Ok(())
            }
            Progress::Stale => Ok(()),
        }
    }

    /// At this time the cluster was at the revision that was received last.
    fn confirmed(&mut self, time: Timestamp) {
        if !self.filling.is_empty() {
            return self.cut(Some(time));
        }
        self.exact_since.get_or_insert(time);
        if self.uploads.is_empty() {
            self.archive.last_success = Instant::now();
            self.archive.progress.confirmed(time);
        }
    }

    /// Begins to store what is complete, unless something is being stored.
    fn cut(&mut self, confirmed: Option<Timestamp>) {
        if !self.uploads.is_empty() {
            return;
        }
        let Some(full) = self.filling.take(self.exact_since, confirmed) else { return };
        self.is_due = false;
        self.exact_since = confirmed.or(self.exact_since.map(|_| full.last_received()));
        let archive = &self.archive;
        let upload = Upload {
            segments: archive.segments.clone(),
            inputs: archive.inputs.clone(),
            recipients: archive.recipients.clone(),
            after: archive.end.clone(),
            member: self.member.clone(),
            etcd_version: self.version.clone(),
            patience: archive.patience,
            progress: archive.progress.shared(),
        };
        self.uploads.spawn(upload.store(full));
    }

    /// False if another archiver was faster.
    fn stored(&mut self, joined: Result<Result<Outcome, Error>, JoinError>) -> Result<bool, Error> {
        let outcome = joined.expect("an upload does not panic");
        if let Ok(Outcome::Stored(end, confirmed)) = outcome {
            self.archive.stored(end, confirmed);
            return Ok(true);
        }
        // Nothing follows a segment that is not stored.
        self.filling = Filling::default();
        outcome.map(|_| false)
    }

    fn now(&mut self) -> Timestamp {
        let now = Timestamp::now().as_millisecond();
        let now = Timestamp::from_millisecond(now).expect("it was a time");
        self.latest = self.latest.max(now);
        self.latest
    }
}

impl Ended {
    pub fn of(error: Error) -> Self {
        if error.is_passing() { Self::Lost(error) } else { Self::Final(Err(error)) }
    }
}
