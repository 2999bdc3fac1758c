//! The table of `docs/faults.md`: a row for each fault, with a verdict and the tests that prove it.

use crate::named::Sources;
use crate::{read, root};

pub const DOCUMENT: &str = "docs/faults.md";

/// As the legend explains them. Those with `true` say behind a colon what is missing, or why.
pub const VERDICTS: [(&str, bool); 5] = [
    ("handled", false),
    ("handled in part", true),
    ("reported, not repaired", false),
    ("not handled yet", true),
    ("does not apply", true),
];

/// Where the tests of each layer are.
const LAYERS: [(&str, &str); 13] = [
    ("e2e", "e2e/src/suite"),
    ("harness", "operator/tests/harness"),
    ("sweep", "operator/tests/harness/sweep.rs"),
    ("agent", "agent/tests"),
    ("etcd", "operator/tests/etcd"),
    ("apiserver", "operator/tests/apiserver"),
    ("backup", "backup/tests"),
    ("operator", "operator"),
    ("sim", "sim/tests"),
    ("conformance", "sim/tests/conformance"),
    ("property", "core/tests"),
    ("unit", "core/src"),
    ("tidy", "tidy/tests"),
];

#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub fault: u8,
    pub verdict: String,
    /// What is missing, or why it does not apply.
    pub remark: String,
    pub tests: Vec<String>,
}

pub fn rows(document: &str) -> Result<Vec<Row>, String> {
    let rows = document.lines().filter(|line| line.starts_with("| F"));
    rows.map(|line| row(line).map_err(|error| format!("{error}: {line}"))).collect()
}

fn row(line: &str) -> Result<Row, String> {
    let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").map(str::trim).collect();
    let [fault, _symptom, _deed, verdict, tests, _measured] = cells[..] else {
        return Err(format!("{} cells instead of 6", cells.len()));
    };
    let fault = fault.strip_prefix('F').and_then(|it| it.parse().ok()).ok_or("no number")?;
    let (verdict, remark) = verdict.split_once(": ").unwrap_or((verdict, ""));
    let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Ok(Row { fault, verdict: verdict.into(), remark: remark.into(), tests })
}

impl Row {
    pub fn has(&self, layer: &str) -> bool {
        self.tests.iter().any(|test| test.split_once(' ').is_some_and(|(it, _)| it == layer))
    }
}

/// Whether there is such a test: the layer, and its name there.
pub fn exists(test: &str, sources: &Sources) -> Result<bool, String> {
    let (layer, name) = test.split_once(' ').ok_or("a layer and a name")?;
    match layer {
        "scenario" => is_titled("core/tests/scenarios", name),
        "status" => is_titled("core/tests/statuses", name),
        "start" => Ok(has_title("core/src/start/scenarios.txt", name)),
        // One that no seed has to find proves nothing.
        "bug" => Ok(sources.contain("sim/tests", &format!("Bug::{name}"))),
        _ => {
            let known = LAYERS.iter().find(|(it, _)| *it == layer);
            let (_, folder) = known.ok_or_else(|| format!("no layer {layer}"))?;
            Ok(sources.declare(folder, name))
        }
    }
}

/// `FILE: TITLE`
fn is_titled(folder: &str, name: &str) -> Result<bool, String> {
    let (file, title) = name.split_once(": ").ok_or("a file and a title")?;
    Ok(has_title(&format!("{folder}/{file}.txt"), title))
}

fn has_title(file: &str, title: &str) -> bool {
    let path = root().join(file);
    path.is_file() && read(&path).lines().any(|line| line.strip_prefix("== ") == Some(title))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "| F7 | it breaks | it is mended | handled in part: not at night | `e2e a::b`, `bug X` | - |";

    #[test]
    fn a_row_is_read() {
        let rows = rows(&format!("| fault |\n|---|\n{LINE}\n")).expect("it is a row");
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(
            (row.fault, row.verdict.as_str(), row.remark.as_str()),
            (7, "handled in part", "not at night")
        );
        assert_eq!(row.tests, ["e2e a::b", "bug X"]);
        assert!(row.has("bug") && !row.has("agent"));
    }

    #[test]
    fn what_is_no_row_is_an_error() {
        for line in ["| F7 | it breaks |", &LINE.replace("F7", "Fx")] {
            assert!(rows(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_test_that_was_renamed_does_not_exist() {
        let sources = Sources::all();
        for (test, expected) in [
            ("tidy every_fault_has_one_row", Ok(true)),
            ("tidy every_fault_has_two_rows", Ok(false)),
            ("scenario scale: settled: nothing to do", Ok(true)),
            ("scenario scale: settled: something to do", Ok(false)),
            ("scenario nowhere: settled: nothing to do", Ok(false)),
            ("bug LeaderFirst", Ok(true)),
            ("bug LeaderLast", Ok(false)),
            ("wish somebody_tests_it", Err("no layer wish".to_owned())),
        ] {
            assert_eq!(exists(test, &sources), expected, "{test}");
        }
    }
}
