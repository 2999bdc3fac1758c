//! What a run tells: one line when a test begins and one when it ends, and at the end what failed and what took long.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use testbed::say;
use testbed::say::clock;

/// Names a file to which each test adds a line, `SECONDS NAME`: see `hack/timed`.
const TIMES: &str = "TEST_TIMES";
const SLOWEST: usize = 10;

#[derive(Clone, Debug)]
pub struct Finished {
    pub name: &'static str,
    pub took: Duration,
    /// Every test that ran at some time during this one.
    pub beside: Vec<&'static str>,
    pub failure: Option<String>,
}

#[derive(Default)]
pub struct Report {
    pub total: usize,
    pub finished: Vec<Finished>,
}

impl Report {
    pub fn begins(&self, number: usize, name: &str, beside: &[&str]) {
        let beside = match beside.len() {
            0 => String::new(),
            others => format!(" beside {others} other(s)"),
        };
        say!("{}", self.line(number, "begins", &format!("{name}{beside}")));
    }

    pub fn still_running<'a>(&self, running: impl Iterator<Item = (&'a str, Duration)>) {
        let running: Vec<_> = running.map(|(name, took)| format!("{name} ({} s)", took.as_secs())).collect();
        say!("        still running: {}", running.join(", "));
    }

    pub fn ended(&mut self, number: usize, finished: Finished, lines: &[String]) {
        for line in lines {
            say!("{line}");
        }
        let verdict = if finished.failure.is_some() { "FAILED" } else { "ok" };
        let text = format!("{} ({:.1} s)", finished.name, finished.took.as_secs_f64());
        say!("{}", self.line(number, verdict, &text));
        if let Some(failure) = &finished.failure {
            say!("{}", explained(&finished, failure));
        }
        add_time(finished.name, finished.took);
        self.finished.push(finished);
    }

    fn line(&self, number: usize, what: &str, text: &str) -> String {
        let width = self.total.to_string().len();
        format!("[{number:width$}/{}] {what:6} {text}", self.total)
    }

    /// What a reader wants to see last.
    pub fn sum_up(&self, took: Duration, known: usize) {
        let failed: Vec<_> = self.finished.iter().filter(|it| it.failure.is_some()).collect();
        let mut slowest: Vec<_> = self.finished.iter().collect();
        slowest.sort_by_key(|finished| std::cmp::Reverse(finished.took));
        say!("\nslowest:");
        for finished in slowest.iter().take(SLOWEST) {
            say!("  {:6.1} s  {}", finished.took.as_secs_f64(), finished.name);
        }
        for finished in &failed {
            say!("\nFAILED {}", finished.name);
            say!("{}", explained(finished, finished.failure.as_deref().unwrap_or_default()));
        }
        let passed = self.finished.len() - failed.len();
        say!(
            "\n{passed} passed, {} failed, {known} known to pass and not run, in {}",
            failed.len(),
            clock(took)
        );
    }

    pub fn ok(&self) -> bool {
        self.finished.iter().all(|finished| finished.failure.is_none())
    }
}

fn explained(finished: &Finished, failure: &str) -> String {
    let beside = match finished.beside.as_slice() {
        [] => "no other test ran beside it".to_owned(),
        names => format!("beside it ran: {}", names.join(", ")),
    };
    let indented: Vec<_> =
        failure.lines().chain([beside.as_str()]).map(|line| format!("    {line}")).collect();
    indented.join("\n")
}

/// A time that is lost is no reason to fail.
fn add_time(name: &str, took: Duration) {
    let Some(path) = std::env::var_os(TIMES) else { return };
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = writeln!(file, "{} test {name}", took.as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_what_ran_beside_it() {
        let finished = |beside: &[&'static str]| Finished {
            name: "a",
            took: Duration::ZERO,
            beside: beside.into(),
            failure: None,
        };
        assert_eq!(
            explained(&finished(&["b", "c"]), "no\nluck"),
            "    no\n    luck\n    beside it ran: b, c"
        );
        assert!(explained(&finished(&[]), "no").ends_with("no other test ran beside it"));
    }

    #[test]
    fn lines_line_up() {
        let report = Report { total: 118, ..Report::default() };
        assert_eq!(report.line(3, "ok", "a"), "[  3/118] ok     a");
    }
}
