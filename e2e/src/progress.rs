//! What is going on: one line per stage of a long run, one line per step of a stage.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use testbed::say;
use testbed::say::clock;

/// How long a wait may be silent.
const HEARTBEAT: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
pub struct Progress {
    began: Instant,
}

impl Progress {
    pub fn start() -> Self {
        Self { began: Instant::now() }
    }

    pub fn step(&self, text: impl AsRef<str>) {
        tell(line(self.began.elapsed(), text.as_ref()));
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// The stages of a long run, numbered, each with the time since the beginning of the first.
#[derive(Debug)]
pub struct Stages {
    began: Instant,
    before: Duration,
    total: u8,
    current: u8,
}

impl Stages {
    /// Goes on after some stages that somebody else has printed, which took this long.
    pub fn after(done: u8, took: Duration, total: u8) -> Self {
        Self { began: Instant::now(), before: took, total, current: done }
    }

    /// Prints which stage begins, and returns the progress of its steps.
    pub fn begin(&mut self, text: impl AsRef<str>) -> Progress {
        self.current += 1;
        say!("{}", self.line(self.before + self.began.elapsed(), text.as_ref()));
        Progress::start()
    }

    fn line(&self, elapsed: Duration, text: &str) -> String {
        format!("[{}/{}] {}  {text}", self.current, self.total, clock(elapsed))
    }
}

/// Runs a future to its end and says every now and then that it still goes on.
pub async fn told<T>(what: &str, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(HEARTBEAT, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => tell(format!("           waiting for {} s: {what}", began.elapsed().as_secs())),
        }
    }
}

thread_local! {
    /// Where the lines of this thread are kept instead of being printed.
    static KEPT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// From now on, keeps what this thread has to say, for the time when it can be printed in one piece.
pub fn keep() {
    KEPT.set(Some(Vec::new()));
}

/// What was kept; from now on everything is printed again.
pub fn kept() -> Vec<String> {
    KEPT.take().unwrap_or_default()
}

fn tell(line: String) {
    let printed = KEPT.with_borrow_mut(|kept| match kept {
        Some(lines) => {
            lines.push(line);
            None
        }
        None => Some(line),
    });
    if let Some(line) = printed {
        say!("{line}");
    }
}

fn line(elapsed: Duration, text: &str) -> String {
    format!("{:7.1} s  {text}", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_line_up() {
        assert_eq!(line(Duration::from_millis(1_240), "one"), "    1.2 s  one");
        assert_eq!(line(Duration::from_secs(612), "two"), "  612.0 s  two");
    }

    #[test]
    fn lines_are_kept_for_the_thread_that_wants_it() {
        keep();
        let progress = Progress::start();
        progress.step("one");
        std::thread::spawn(move || progress.step("printed")).join().expect("no panic");
        let lines = kept();
        assert!(matches!(lines.as_slice(), [line] if line.ends_with("one")), "{lines:?}");
        assert!(kept().is_empty());
    }

    #[test]
    fn stages_are_counted_on() {
        let mut stages = Stages::after(1, Duration::from_secs(72), 5);
        stages.begin("building");
        assert_eq!(stages.line(Duration::from_secs(72), "building"), "[2/5] 1:12  building");
    }
}
