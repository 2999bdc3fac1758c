//! The continuous archive: follows a watch over all keys, and stores segments which continue the newest full copy without a gap.
//!
//! Nothing outlives the process except what is in the store. Where the chain ends is read from there, each time that a member is
//! followed anew, and a segment is stored only if none has its name: so an archiver can be killed at any time, and two at once
//! store one chain.

mod endpoint;
mod filling;
mod progress;
mod session;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use age::x25519::Recipient;
use etcd_operator_core::backup::chain::{Compacted, Start, after_compaction, needs_new_copy, start};
use etcd_operator_core::backup::inputs::Inputs;
use etcd_operator_core::backup::report::Done;
use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::segments::Segments;
use crate::store::Store;
use crate::{copies, encode, probe};
use endpoint::Endpoint;
use filling::End;
use progress::{Progress, Shared};
use session::{Ended, Session};

const RETRY_AFTER: Duration = Duration::from_secs(1);

pub struct Options {
    pub flush_interval: Duration,
    /// For how long etcd or the store can be unavailable before the run ends.
    pub patience: Duration,
    /// Gets the progress, for others to read.
    pub status: Option<PathBuf>,
}

pub struct Archive {
    inputs: Inputs,
    store: Arc<Store>,
    segments: Segments,
    recipients: Vec<Recipient>,
    flush_interval: Duration,
    patience: Duration,
    progress: Progress,
    end: End,
    /// The lowest revision that the newest good copy can have.
    copy: i64,
    /// How many segments this run stored.
    count: usize,
    last_success: Instant,
}

pub async fn archive(
    inputs: &Inputs,
    options: Options,
    interrupted: impl Future<Output = ()>,
) -> Result<Done, Error> {
    tokio::pin!(interrupted);
    let (shared, mut serving) = (Shared::default(), JoinSet::new());
    if let Some(endpoint) = Endpoint::from_environment()? {
        endpoint.serve(&shared, &mut serving);
    }
    let missing = || Error::Configuration("etcd is missing: give the endpoints of the cluster".into());
    inputs.etcd.as_ref().ok_or_else(missing)?;
    let recipients = encode::recipients(&inputs.recipients)?;
    let store = Store::open(inputs)?;
    let layout = store.layout(inputs)?;
    if let Done::Probe { conditional_puts: false } = probe::probe(&store, inputs).await? {
        return Err(Error::Configuration(format!(
            "{} does not honour conditional puts, by which two archivers store one chain: use another store",
            store.location
        )));
    }
    let mut archive = Archive {
        inputs: inputs.clone(),
        segments: Segments::new(&store, layout),
        store: Arc::new(store),
        recipients,
        flush_interval: options.flush_interval,
        patience: options.patience,
        progress: Progress::new(options.status, shared),
        end: End::copy(0),
        copy: 0,
        count: 0,
        last_success: Instant::now(),
    };
    let result = archive.run(&mut interrupted).await;
    archive.progress.report(&archive.end, archive.copy, true);
    result?;
    let copy_due = archive.is_copy_due();
    Ok(Done::Archive { archived: archive.end.last, segments: archive.count, copy_due })
}

impl Archive {
    async fn run(&mut self, interrupted: &mut (impl Future<Output = ()> + Unpin)) -> Result<(), Error> {
        let mut compacted = None;
        loop {
            let ended = tokio::select! {
                session = self.begin(compacted.take()) => match session {
                    Ok(()) => None,
                    Err(error) => Some(Ended::of(error)),
                },
                () = &mut *interrupted => return Ok(()),
            };
            let ended = match ended {
                Some(ended) => ended,
                None => self.follow(interrupted).await,
            };
            match ended {
                Ended::Final(result) => return result,
                Ended::Compacted(revision) => compacted = Some(revision),
                Ended::Taken => self.progress.say("another archiver continues the chain"),
                Ended::Lost(error) if self.last_success.elapsed() > self.patience => return Err(error),
                Ended::Lost(error) => self.progress.failed(&error),
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_AFTER) => {}
                () = &mut *interrupted => return Ok(()),
            }
        }
    }

    /// Reads from the store where the chain ends.
    async fn begin(&mut self, compacted: Option<i64>) -> Result<(), Error> {
        let copy = self.look().await?;
        let newest = self.segments.newest(copy).await?;
        let start = start(copy, newest.as_ref().map(|it| &it.segment)).map_err(Error::CopyNeeded)?;
        self.copy = copy.expect("nothing starts without one");
        self.end = match (start, newest) {
            (Start::Continue { newer_copy, .. }, Some(newest)) => {
                if !newest.is_intact() && newer_copy.is_none() {
                    let path = self.segments.path(newest.segment.first);
                    return Err(self.broken(&format!("segment {path} is damaged")));
                }
                End::of(&newest.segment, &newest.sha256)
            }
            (Start::Begin { after } | Start::Continue { after, .. }, _) => End::copy(after),
        };
        if let Some(compacted) = compacted {
            match after_compaction(self.end.last, compacted, copy) {
                Compacted::Continue => self.end.tip = None,
                Compacted::Begin { after } => self.end = End::copy(after),
                Compacted::Gap { first, last } => {
                    let text =
                        format!("etcd has compacted revisions {first} to {last} before they were archived");
                    return Err(self.broken(&text));
                }
            }
        }
        Ok(())
    }

    async fn follow(&mut self, interrupted: &mut (impl Future<Output = ()> + Unpin)) -> Ended {
        let session = tokio::select! {
            session = Session::begin(self) => session,
            () = &mut *interrupted => return Ended::Final(Ok(())),
        };
        match session {
            Ok(session) => session.follow(interrupted).await,
            Err(error) => Ended::of(error),
        }
    }

    fn stored(&mut self, end: End, confirmed: Option<Timestamp>) {
        self.end = end;
        self.count += 1;
        self.last_success = Instant::now();
        match confirmed {
            Some(confirmed) => self.progress.confirmed(confirmed),
            None => self.progress.stored(),
        }
        self.progress.report(&self.end, self.copy, true);
    }

    fn is_copy_due(&self) -> bool {
        needs_new_copy(self.copy, self.end.last)
    }

    /// The lowest revision that the newest good copy can have.
    fn look(&self) -> impl Future<Output = Result<Option<i64>, Error>> + use<> {
        let (store, layout) = (Arc::clone(&self.store), self.segments.layout.clone());
        let damaged = self.inputs.retention.damaged.clone();
        async move { copies::newest_good(&store, &layout, &damaged).await }
    }

    fn found(&mut self, copy: Result<Option<i64>, Error>) {
        match copy {
            Ok(copy) => self.copy = copy.unwrap_or(self.copy),
            Err(error) => self.progress.say_once(&error.to_string()),
        }
    }

    fn broken(&self, what: &str) -> Error {
        Error::Broken(format!("{what}: take a full copy, after which the archiver begins a new chain"))
    }

    fn diverged(&self, what: &str) -> Error {
        Error::Broken(format!(
            "{what}: the data of the cluster was replaced by older data; give its backups another `path` and take a full copy there"
        ))
    }
}
