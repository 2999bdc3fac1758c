//! What a benchmark found out, as it is written down.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::footprint::Figure;
use super::operation::{AtMost, By, STATUS_LAG_AT_MOST_MS, Subject, WRITE_GAP_AT_MOST_MS};
use super::samples::{Sample, Samples, Spread};
use crate::workspace;

/// What was measured, on what.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub machine: Machine,
    pub rows: Vec<Row>,
    pub figures: Vec<Figure>,
    /// What could not be measured, and why.
    pub failures: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cores: usize,
    pub kernel: String,
    pub kubernetes: String,
    pub nodes: usize,
    pub dns: String,
    pub etcd: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    /// The median of the runs.
    pub seconds: f64,
    /// The median of the same thing done by the plain StatefulSet, in the same benchmark.
    pub plain_seconds: Option<f64>,
    /// The median of the same thing done by the operator without TLS, in the same benchmark.
    pub without_tls_seconds: Option<f64>,
    /// The longest time a writing client was without success, in all runs; `None` when nobody wrote.
    pub write_gap_ms: Option<f64>,
    /// The most operations that failed or whose outcome is unknown, in one run; `None` when nobody wrote.
    pub failed_operations: Option<usize>,
    /// Whether the operation was asked for, as opposed to a fault that was repaired.
    pub planned: bool,
    pub runs: usize,
    /// The quickest and the slowest run.
    pub spread_seconds: [f64; 2],
    pub by: By,
    pub etcd: &'static str,
    pub tls: bool,
    /// How long after etcd itself the status was there, in the worst of all runs.
    pub status_lag_ms: Option<f64>,
    pub at_most_seconds: Option<f64>,
    pub at_most_write_gap_ms: Option<f64>,
    pub at_most_status_lag_ms: Option<f64>,
    /// Whether anything was more than it should be.
    pub missed: bool,
}

impl Row {
    fn of(subject: Subject, samples: &[Sample], all: &Samples) -> Option<Self> {
        let spread = Spread::of(samples)?;
        let operators = subject.by == By::Operator;
        let (plain_seconds, without_tls_seconds) =
            (all.plain_seconds(subject), all.without_tls_seconds(subject));
        let mut row = Self {
            name: subject.to_string(),
            seconds: spread.median,
            plain_seconds,
            without_tls_seconds,
            write_gap_ms: longest(samples.iter().map(|sample| sample.write_gap)),
            failed_operations: samples.iter().filter_map(|sample| sample.failed).max(),
            planned: true,
            runs: samples.len(),
            spread_seconds: [spread.least, spread.most],
            by: subject.by,
            etcd: subject.etcd,
            tls: subject.tls,
            status_lag_ms: longest(samples.iter().map(|sample| sample.status_lag)),
            at_most_seconds: at_most_seconds(subject, plain_seconds, without_tls_seconds),
            at_most_write_gap_ms: subject.keeps_serving().then_some(WRITE_GAP_AT_MOST_MS),
            at_most_status_lag_ms: operators.then_some(STATUS_LAG_AT_MOST_MS),
            missed: false,
        };
        row.missed = row.missed_time() || row.missed_write_gap() || row.missed_status_lag();
        Some(row)
    }

    pub fn missed_time(&self) -> bool {
        exceeds(Some(self.seconds), self.at_most_seconds)
    }

    pub fn missed_write_gap(&self) -> bool {
        exceeds(self.write_gap_ms, self.at_most_write_gap_ms)
    }

    pub fn missed_status_lag(&self) -> bool {
        exceeds(self.status_lag_ms, self.at_most_status_lag_ms)
    }
}

/// A row for every operation that was measured.
pub fn rows(samples: &Samples) -> Vec<Row> {
    samples.all().filter_map(|(subject, runs)| Row::of(subject, runs, samples)).collect()
}

/// The stricter one of what the operation may take and of what TLS may add.
fn at_most_seconds(subject: Subject, plain: Option<f64>, without_tls: Option<f64>) -> Option<f64> {
    let operation = Some(subject.operation).filter(|_| subject.by == By::Operator)?;
    let of_operation = operation.at_most(subject.etcd).and_then(|at_most| match at_most {
        AtMost::TimesPlain(times) => plain.map(|plain| plain * times),
        AtMost::Seconds(seconds) => Some(seconds),
    });
    let more = operation.tls_at_most().filter(|_| subject.tls);
    let with_tls = without_tls.zip(more).map(|(without, more)| without + more);
    of_operation.into_iter().chain(with_tls).reduce(f64::min)
}

fn exceeds(value: Option<f64>, at_most: Option<f64>) -> bool {
    value.zip(at_most).is_some_and(|(value, at_most)| value > at_most)
}

/// In whole milliseconds.
fn longest(times: impl Iterator<Item = Option<Duration>>) -> Option<f64> {
    times.flatten().max().map(|time| (time.as_secs_f64() * 1000.0).round())
}

impl Report {
    /// For programs.
    pub fn write(&self) -> Result<PathBuf> {
        let path = workspace::results().join("bench.json");
        std::fs::create_dir_all(workspace::results()).context("cannot create target/")?;
        std::fs::write(&path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::operation::Operation;
    use super::*;

    fn took(seconds: f64) -> Sample {
        Sample { time: Duration::from_secs_f64(seconds), ..Sample::default() }
    }

    #[test]
    fn a_plain_row_is_its_own_yardstick_and_nobody_wrote() {
        let subject = Subject::operated(Operation::Create { size: 1 }, "v3.5.21").plain();
        let mut samples = Samples::default();
        [1.0, 2.0, 3.0].into_iter().for_each(|seconds| samples.add(subject, took(seconds)));
        assert_eq!(
            serde_json::to_value(rows(&samples)).expect("json"),
            json!([{
                "name": "create 1, plain", "seconds": 2.0, "plain_seconds": 2.0, "without_tls_seconds": null,
                "write_gap_ms": null, "failed_operations": null, "planned": true, "runs": 3,
                "spread_seconds": [1.0, 3.0], "by": "plain", "etcd": "v3.5.21", "tls": false,
                "status_lag_ms": null, "at_most_seconds": null, "at_most_write_gap_ms": null,
                "at_most_status_lag_ms": null, "missed": false,
            }])
        );
    }

    #[test]
    fn what_is_slow_beside_the_plain_one_is_missed() {
        let ours = Subject::operated(Operation::Create { size: 3 }, "v3.5.21");
        let missed = |seconds: f64| {
            let mut samples = Samples::default();
            samples.add(ours.plain(), took(2.0));
            samples.add(ours, took(seconds));
            rows(&samples).last().map(|row| (row.at_most_seconds, row.missed))
        };
        assert_eq!(missed(2.9), Some((Some(3.0), false)));
        assert_eq!(missed(3.1), Some((Some(3.0), true)));
    }

    #[test]
    fn what_tls_adds_is_limited_too() {
        let ours = Subject::operated(Operation::Create { size: 3 }, "v3.5.21");
        let mut samples = Samples::default();
        for (subject, seconds) in [(ours.plain(), 2.0), (ours, 2.5), (ours.without_tls(), 2.0)] {
            samples.add(subject, took(seconds));
        }
        let rows = rows(&samples);
        let limits: Vec<_> = rows.iter().map(|row| (row.at_most_seconds, row.missed)).collect();
        assert_eq!(limits, [(None, false), (Some(2.3), true), (Some(3.0), false)]);
        assert_eq!((rows[1].without_tls_seconds, rows[1].tls), (Some(2.0), true));
    }

    #[test]
    fn the_worst_gap_of_all_runs_counts() {
        let subject = Subject::operated(Operation::Scale { from: 3, to: 1 }, "v3.5.21");
        let mut samples = Samples::default();
        for gap in [20, 310] {
            samples.add(subject, Sample { write_gap: Some(Duration::from_millis(gap)), ..Sample::default() });
        }
        let row = rows(&samples).remove(0);
        assert_eq!((row.write_gap_ms, row.missed_write_gap(), row.missed_time()), (Some(310.0), true, false));
    }
}
