//! How far the archive is: for those who read the log, in a file, and for those who ask.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use etcd_operator_core::backup::chain::needs_new_copy;
use etcd_operator_core::backup::progress::Progress as Reported;
use etcd_operator_core::backup::report::Failure;
use jiff::Timestamp;

use super::filling::End;
use crate::error::Error;

/// What nothing else asks for is printed this often.
const EVERY: Duration = Duration::from_secs(60);

pub type Shared = Arc<Mutex<Reported>>;

pub struct Progress {
    file: Option<PathBuf>,
    shared: Shared,
    printed: Option<Instant>,
    said: Option<String>,
}

impl Progress {
    pub fn new(file: Option<PathBuf>, shared: Shared) -> Self {
        Self { file, shared, printed: None, said: None }
    }

    pub fn shared(&self) -> Shared {
        Arc::clone(&self.shared)
    }

    pub fn say(&self, text: &str) {
        eprintln!("{text}");
    }

    /// Unless it was what was said last.
    pub fn say_once(&mut self, text: &str) {
        if self.said.as_deref() != Some(text) {
            self.say(text);
            self.said = Some(text.to_owned());
        }
    }

    /// It is tried again, and reported until something is stored or confirmed.
    pub fn failed(&mut self, error: &Error) {
        self.say_once(&format!("{error}; retrying"));
        lock(&self.shared).trouble = Some(Failure::from(error));
    }

    /// At this time everything that the cluster had was stored.
    pub fn confirmed(&mut self, time: Timestamp) {
        let mut shared = lock(&self.shared);
        shared.confirmed = Some(time);
        shared.trouble = None;
    }

    pub fn stored(&mut self) {
        lock(&self.shared).trouble = None;
    }

    /// One line of JSON, and the same in the file.
    pub fn report(&mut self, end: &End, copy: i64, is_new: bool) {
        let line = {
            let mut shared = lock(&self.shared);
            shared.archived_revision = Some(end.last).filter(|last| *last > 0);
            shared.chain_first = end.chain_first();
            shared.copy_revision = Some(copy).filter(|copy| *copy > 0);
            shared.copy_due = needs_new_copy(copy, end.last);
            serde_json::to_string(&*shared).expect("text and numbers are always JSON")
        };
        if is_new || self.printed.is_none_or(|it| it.elapsed() >= EVERY) {
            eprintln!("{line}");
            self.printed = Some(Instant::now());
        }
        if let Some(file) = &self.file {
            let mut temporary = file.clone().into_os_string();
            temporary.push(".partial");
            let written = std::fs::write(&temporary, line);
            if let Err(error) = written.and_then(|()| std::fs::rename(&temporary, file)) {
                eprintln!("cannot write {}: {error}", file.display());
            }
        }
    }
}

pub fn lock(shared: &Mutex<Reported>) -> std::sync::MutexGuard<'_, Reported> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
