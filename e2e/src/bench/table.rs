//! The report for people.

use super::operation::{STATUS_LAG_AT_MOST_MS, WRITE_GAP_AT_MOST_MS};
use super::report::{Machine, Report, Row};

/// Stands behind what is more than it should be.
const MISSED: &str = "!";

impl Report {
    pub fn table(&self) -> String {
        let Machine { cores, kernel, kubernetes, nodes, dns, etcd } = &self.machine;
        let mut text = format!(
            "{cores} cores, Linux {kernel}, Kubernetes {kubernetes}, {nodes} node(s), DNS profile {dns}, etcd {etcd}\n\n"
        );
        if !self.rows.is_empty() {
            let heads = [
                "operation",
                "median",
                "spread",
                "x plain",
                "at most",
                "write gap",
                "failed",
                "status lag",
                "runs",
            ];
            push_table(&mut text, heads, self.rows.iter().map(cells));
            text.push('\n');
        }
        if !self.figures.is_empty() {
            let figures = self.figures.iter().map(|figure| {
                let at_most = figure.at_most.map_or_else(nothing, |at_most| figure.unit.show(at_most));
                [figure.name.clone(), figure.unit.show(figure.value) + mark(figure.missed), at_most]
            });
            push_table(&mut text, ["the operator", "measured", "at most"], figures);
            text.push('\n');
        }
        if self.rows.iter().any(|row| row.missed) || self.figures.iter().any(|figure| figure.missed) {
            text.push_str(&format!(
                "!: above the target. Targets: write gap {WRITE_GAP_AT_MOST_MS} ms, status lag {STATUS_LAG_AT_MOST_MS} ms.\n"
            ));
        }
        text
    }
}

fn cells(row: &Row) -> [String; 9] {
    let milliseconds = |value: Option<f64>| value.map_or_else(nothing, |value| format!("{value:.0} ms"));
    let ratio = row.plain_seconds.filter(|plain| *plain > 0.0).map(|plain| row.seconds / plain);
    [
        row.name.clone(),
        format!("{:.2} s", row.seconds) + mark(row.missed_time()),
        format!("{:.2} .. {:.2}", row.spread_seconds[0], row.spread_seconds[1]),
        ratio.map_or_else(nothing, |ratio| format!("{ratio:.2}")),
        row.at_most_seconds.map_or_else(nothing, |seconds| format!("{seconds:.2} s")),
        milliseconds(row.write_gap_ms) + mark(row.missed_write_gap()),
        row.failed_operations.map_or_else(nothing, |failed| failed.to_string()),
        milliseconds(row.status_lag_ms) + mark(row.missed_status_lag()),
        row.runs.to_string(),
    ]
}

fn mark(missed: bool) -> &'static str {
    if missed { MISSED } else { "" }
}

fn nothing() -> String {
    "-".into()
}

fn push_table<const N: usize>(text: &mut String, heads: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let lines = [heads.map(str::to_owned), heads.map(|head| "-".repeat(head.chars().count()))];
    for line in aligned(&lines.into_iter().chain(rows).collect::<Vec<_>>()) {
        text.push_str(&line);
        text.push('\n');
    }
}

/// The first column to the left, the others to the right; marks stand outside of their column.
fn aligned<const N: usize>(lines: &[[String; N]]) -> Vec<String> {
    let bare = |text: &str| text.strip_suffix(MISSED).unwrap_or(text).chars().count();
    let width = |column: usize| lines.iter().map(|line| bare(&line[column])).max().unwrap_or(0);
    let widths: Vec<_> = (0..N).map(width).collect();
    let cell = |column: usize, text: &String| {
        let padding = " ".repeat(widths[column].saturating_sub(bare(text)));
        let after = " ".repeat(MISSED.len() - (text.chars().count() - bare(text)));
        if column == 0 { format!("{text}{padding}{after}") } else { format!("{padding}{text}{after}") }
    };
    let line = |line: &[String; N]| {
        line.iter().enumerate().map(|(column, text)| cell(column, text)).collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(|cells| line(cells).trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::operation::{Operation, Subject};
    use super::super::report::rows;
    use super::super::samples::{Sample, Samples};
    use super::*;

    #[test]
    fn the_table_has_a_line_per_row_says_on_what_and_marks_what_was_missed() {
        let machine = Machine {
            cores: 2,
            kernel: "6.1".into(),
            kubernetes: "v1.34.0".into(),
            nodes: 1,
            dns: "fast".into(),
            etcd: "v3.5.21".into(),
        };
        let subject = Subject::operated(Operation::Create { size: 3 }, "v3.5.21");
        let mut samples = Samples::default();
        for (subject, milliseconds) in [(subject.plain(), 2000), (subject, 3100)] {
            samples.add(subject, Sample { time: Duration::from_millis(milliseconds), ..Sample::default() });
        }
        let report = Report { machine, rows: rows(&samples), figures: Vec::new(), failures: Vec::new() };
        let table = report.table();
        assert!(table.starts_with("2 cores, Linux 6.1, Kubernetes v1.34.0, 1 node(s), DNS profile fast"));
        let lines: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            lines[..4],
            [
                "operation        median        spread  x plain  at most  write gap  failed  status lag  runs",
                "---------        ------        ------  -------  -------  ---------  ------  ----------  ----",
                "create 3, plain  2.00 s  2.00 .. 2.00     1.00        -          -       -           -     1",
                "create 3         3.10 s! 3.10 .. 3.10     1.55   3.00 s          -       -           -     1",
            ],
            "{table}"
        );
    }
}
