//! What a benchmark finds out, and how it is told: `docs/bench.md` describes the file.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::workspace;

/// What was measured, on what.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub machine: Machine,
    pub rows: Vec<Row>,
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
    pub plain_seconds: f64,
    /// The longest time a writing client was without success; `None` when nobody wrote.
    pub write_gap_ms: Option<f64>,
    /// Whether the operation was asked for, as opposed to a fault that was repaired.
    pub planned: bool,
    pub runs: usize,
    /// The quickest and the slowest run.
    pub spread_seconds: [f64; 2],
}

impl Row {
    /// A row of the plain StatefulSet itself.
    pub fn plain(name: &str, runs: &[Duration]) -> Result<Self> {
        let spread = Spread::of(runs).context("a benchmark without runs")?;
        Ok(Self {
            name: name.into(),
            seconds: spread.median,
            plain_seconds: spread.median,
            write_gap_ms: None,
            planned: true,
            runs: runs.len(),
            spread_seconds: [spread.least, spread.most],
        })
    }
}

/// Seconds, rounded to what the clock and the polling are worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(runs: &[Duration]) -> Option<Self> {
        let mut sorted = runs.to_vec();
        sorted.sort();
        let middle = sorted.len() / 2;
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2 };
        Some(Self { least: rounded(least), median: rounded(median), most: rounded(most) })
    }
}

fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let Machine { cores, kernel, kubernetes, nodes, dns, etcd } = &self.machine;
        let mut text = format!(
            "{cores} cores, Linux {kernel}, Kubernetes {kubernetes}, {nodes} node(s), DNS profile {dns}, etcd {etcd}\n\n"
        );
        let mut lines = vec![
            ["operation", "median", "spread", "plain", "write gap", "runs"].map(str::to_owned),
            ["---------", "------", "------", "-----", "---------", "----"].map(str::to_owned),
        ];
        lines.extend(self.rows.iter().map(|row| {
            [
                row.name.clone(),
                format!("{:.2} s", row.seconds),
                format!("{:.2} .. {:.2}", row.spread_seconds[0], row.spread_seconds[1]),
                format!("{:.2} s", row.plain_seconds),
                row.write_gap_ms.map_or_else(|| "-".into(), |gap| format!("{gap:.0} ms")),
                row.runs.to_string(),
            ]
        }));
        for cells in aligned(&lines) {
            text.push_str(&cells);
            text.push('\n');
        }
        text
    }

    /// For programs.
    pub fn write(&self) -> Result<std::path::PathBuf> {
        let path = workspace::results().join("bench.json");
        std::fs::create_dir_all(workspace::results()).context("cannot create target/")?;
        std::fs::write(&path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// The first column to the left, the others to the right.
fn aligned<const N: usize>(lines: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..N).map(width).collect();
    let cell = |column: usize, text: &String| {
        let width = widths[column];
        if column == 0 { format!("{text:<width$}") } else { format!("{text:>width$}") }
    };
    let line = |line: &[String; N]| {
        line.iter().enumerate().map(|(column, text)| cell(column, text)).collect::<Vec<_>>().join("  ")
    };
    lines.iter().map(|cells| line(cells).trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn milliseconds(values: &[u64]) -> Vec<Duration> {
        values.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn the_median_is_the_middle_run_and_the_spread_its_ends() {
        let spread = Spread::of(&milliseconds(&[2600, 2430, 9000, 2500, 2510])).expect("runs");
        assert_eq!(spread, Spread { least: 2.43, median: 2.51, most: 9.0 });
        assert_eq!(Spread::of(&milliseconds(&[1000, 2000])).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_plain_row_is_its_own_yardstick_and_nobody_wrote() {
        let row = Row::plain("create 1", &milliseconds(&[1000, 2000, 3000])).expect("runs");
        assert_eq!(
            serde_json::to_value(&row).expect("json"),
            json!({"name": "create 1", "seconds": 2.0, "plain_seconds": 2.0, "write_gap_ms": null,
                   "planned": true, "runs": 3, "spread_seconds": [1.0, 3.0]})
        );
    }

    #[test]
    fn the_table_has_a_line_per_row_and_says_on_what() {
        let machine = Machine {
            cores: 2,
            kernel: "6.1".into(),
            kubernetes: "v1.34.0".into(),
            nodes: 1,
            dns: "fast".into(),
            etcd: "v3.5.21".into(),
        };
        let rows = vec![Row::plain("create 3", &milliseconds(&[2600])).expect("runs")];
        let table = Report { machine, rows }.table();
        assert!(table.starts_with("2 cores, Linux 6.1, Kubernetes v1.34.0, 1 node(s), DNS profile fast"));
        assert!(table.ends_with("create 3   2.60 s  2.60 .. 2.60  2.60 s          -     1\n"), "{table}");
    }
}
