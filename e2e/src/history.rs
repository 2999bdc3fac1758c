//! Clients that write and read all the time, and what is to be said about the cluster from what they saw.
//!
//! `docs/histories.md` tells what is checked and how to read a verdict.

mod checker;
mod client;
mod endpoints;
mod operation;
mod outcome;
mod recorder;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinSet;

use crate::{progress, workspace};
pub use checker::{Checker, Judgement, Verdict};
use client::{Client, Seat};
pub use endpoints::Endpoints;
use operation::Ending;
use recorder::Recorder;

/// How much the clients do, all together one of many applications of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// More than members, so that those of a member that falls silent do not make all of them wait.
    pub clients: usize,
    /// Few enough that clients meet at them.
    pub keys: usize,
    /// Of each client after each operation.
    pub pause: Duration,
    /// After which the first client no longer waits for an answer; the others wait less, down to half of it.
    pub deadline: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self { clients: 4, keys: 8, pause: Duration::from_millis(15), deadline: Duration::from_secs(1) }
    }
}

impl Load {
    /// Clients that lose their leader together must not all try again at the same moments: the end of an election
    /// would be seen at the next of these only.
    fn deadline_of(&self, number: usize) -> Duration {
        self.deadline.mul_f64(1.0 - number as f64 / (2 * self.clients.max(1)) as f64)
    }
}

/// Clients at work. Dropped without [`stop`](Self::stop), it leaves its file behind and judges nothing.
pub struct History {
    file: PathBuf,
    checker: Checker,
    load: Load,
    /// No other history has the same, so that every key is absent at the beginning.
    prefix: String,
    endpoints: Endpoints,
    recorder: Arc<Recorder>,
    /// Each operation holds it shared: who has it alone knows that none is under way.
    working: Arc<RwLock<()>>,
    resting: Option<Rest>,
    clients: JoinSet<()>,
}

/// Nobody works while this exists.
struct Rest {
    since_ns: u64,
    _alone: OwnedRwLockWriteGuard<()>,
}

impl History {
    /// Sends the clients to work. They wait while there is no endpoint.
    pub async fn start(endpoints: Endpoints, load: Load, file: PathBuf) -> Result<Self> {
        let checker = Checker::build().await?;
        let recorder = Arc::new(Recorder::create(&file)?);
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let mut history = Self {
            file,
            checker,
            load,
            prefix: format!("history/{:x}", since_epoch.as_nanos()),
            endpoints,
            recorder,
            working: Arc::default(),
            resting: None,
            clients: JoinSet::new(),
        };
        for number in 0..load.clients {
            let client =
                Client::new(number, history.seat(number), history.recorder.clone(), load, history.keys());
            history.clients.spawn(client.work(history.working.clone()));
        }
        Ok(history)
    }

    /// One operation a line, in the order in which they ended.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Waits until a write has been acknowledged that began after this call.
    pub async fn goes_on(&self, limit: Duration) -> Result<()> {
        // At most one write of each client is under way now.
        let enough = self.recorder.acked_writes() + self.load.clients as u64 + 1;
        let waiting = self.recorder.wait_for_acked_writes(enough);
        let what = "the clients of the cluster can write";
        let waited = progress::told(what, tokio::time::timeout(limit, waiting)).await;
        waited.map_err(|_| anyhow!("timed out after {limit:?}: {what}"))
    }

    /// Returns when no operation is under way. The time until [`resume`](Self::resume) is no gap.
    pub async fn pause(&mut self) {
        if self.resting.is_none() {
            let since_ns = self.recorder.now_ns();
            self.resting = Some(Rest { since_ns, _alone: self.working.clone().write_owned().await });
        }
    }

    pub fn resume(&mut self) {
        if let Some(Rest { since_ns, _alone }) = self.resting.take() {
            self.recorder.rested(since_ns);
        }
    }

    /// Ends the work, reads every key once more and has all of it judged.
    ///
    /// The limit is for those reads: the cluster has to answer them.
    pub async fn stop(mut self, limit: Duration) -> Result<Verdict> {
        self.pause().await;
        if let Some(Err(panic)) = self.clients.try_join_next() {
            return Err(panic).context("a client of the history panicked");
        }
        let read = self.read_all(limit).await;
        self.resume_for_nobody().await;
        self.recorder.flush().with_context(|| format!("cannot write {}", self.file.display()))?;
        let judgement = self.checker.judge(&self.file).await?;
        let shown = workspace::shown(&self.file);
        match judgement {
            Judgement::Violated(text) => bail!("the history violates consistency ({shown}):\n{text}"),
            Judgement::Undecided(text) => {
                read.with_context(|| format!("the final reads of {shown}"))?;
                bail!("cannot check {shown}:\n{text}")
            }
            Judgement::Good(verdict) => read.map(|()| verdict),
        }
    }

    /// The end of the work counts as rest, so that a cluster which did not recover shows in the longest gap.
    async fn resume_for_nobody(&mut self) {
        self.clients.shutdown().await;
        self.resume();
    }

    async fn read_all(&self, limit: Duration) -> Result<()> {
        let mut reader = Client::new(0, self.seat(0), self.recorder.clone(), self.load, self.keys());
        let mut last = None;
        let reading = async {
            for key in self.keys() {
                loop {
                    match reader.read_finally(&key).await {
                        Ending::Ok(_) => break,
                        Ending::Failed { error } | Ending::Unknown { error } => last = Some(error),
                    }
                    tokio::time::sleep(self.load.pause).await;
                }
            }
        };
        let what = "every key can be read once more";
        let read = progress::told(what, tokio::time::timeout(limit, reading)).await;
        read.map_err(|_| anyhow!("timed out after {limit:?}: {what}; last error: {last:?}"))
    }

    fn keys(&self) -> Vec<String> {
        (0..self.load.keys).map(|number| format!("{}/{number}", self.prefix)).collect()
    }

    fn seat(&self, number: usize) -> Seat {
        Seat::new(number, self.endpoints.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_try_again_at_different_moments() {
        let deadlines: Vec<_> =
            (0..4).map(|number| Load::default().deadline_of(number).as_millis()).collect();
        assert_eq!(deadlines, [1000, 875, 750, 625]);
    }
}
