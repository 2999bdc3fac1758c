//! How far a build is: a spinner on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::say::clock;

/// How often there is a line where there is no terminal.
pub const LINE_EVERY: Duration = Duration::from_secs(60);

pub struct Progress {
    title: String,
    began: Instant,
    spinner: Option<ProgressBar>,
}

impl Progress {
    pub fn begin(title: String) -> Self {
        let spinner = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        match &spinner {
            Some(spinner) => {
                if let Ok(style) = ProgressStyle::with_template("       {spinner} {msg} ({elapsed})") {
                    spinner.set_style(style);
                }
                spinner.enable_steady_tick(Duration::from_millis(120));
            }
            None => eprintln!("       building {title}"),
        }
        let progress = Self { title, began: Instant::now(), spinner };
        progress.at("");
        progress
    }

    /// Something changed.
    pub fn at(&self, state: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(self.line(state));
        }
    }

    /// [`LINE_EVERY`] has passed.
    pub fn still_at(&self, state: &str) {
        if self.spinner.is_none() {
            eprintln!("       {} ({})", self.line(state), clock(self.began.elapsed()));
        }
    }

    pub fn done(self, bytes: u64) {
        self.clear();
        let time = clock(self.began.elapsed());
        eprintln!("       built {} in {time} ({} MB)", self.title, bytes.div_ceil(1_000_000));
    }

    fn line(&self, state: &str) -> String {
        let separator = if state.is_empty() { "" } else { ": " };
        format!("building {}{separator}{state}", self.title)
    }

    fn clear(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
