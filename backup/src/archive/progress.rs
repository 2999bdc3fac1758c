//! How far the archive is, for those who read the log, and for others in a file.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use etcd_operator_core::backup::chain::needs_new_copy;
use jiff::Timestamp;
use serde_json::json;

use super::filling::End;

/// What nothing else asks for is printed this often.
const EVERY: Duration = Duration::from_secs(60);

pub struct Progress {
    file: Option<PathBuf>,
    confirmed: Option<Timestamp>,
    printed: Option<Instant>,
    said: Option<String>,
}

impl Progress {
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { file, confirmed: None, printed: None, said: None }
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

    /// At this time everything that the cluster had was stored.
    pub fn confirmed(&mut self, time: Timestamp) {
        self.confirmed = Some(time);
    }

    /// One line of JSON, and the same in the file.
    pub fn report(&mut self, end: &End, copy: i64, is_new: bool) {
        let line = json!({
            "archivedRevision": end.last,
            "chainFirst": end.chain_first(),
            "copyRevision": copy,
            "copyDue": needs_new_copy(copy, end.last),
            "confirmed": self.confirmed,
        });
        if is_new || self.printed.is_none_or(|it| it.elapsed() >= EVERY) {
            eprintln!("{line}");
            self.printed = Some(Instant::now());
        }
        if let Some(file) = &self.file {
            let mut temporary = file.clone().into_os_string();
            temporary.push(".partial");
            let written = std::fs::write(&temporary, line.to_string());
            if let Err(error) = written.and_then(|()| std::fs::rename(&temporary, file)) {
                eprintln!("cannot write {}: {error}", file.display());
            }
        }
    }
}
