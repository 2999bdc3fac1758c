//! Every decision as readable text: a goal and a snapshot in, the expected plan out.
//!
//! A file holds scenarios. Each begins with `== what it shows`, then come lines that describe the snapshot, `--`, and
//! the plan. `scenarios/README.md` has the words. `UPDATE_SCENARIOS=1` writes the plans as they are now.

#[path = "scenarios/snapshot.rs"]
mod snapshot;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use etcd_operator_core::decide::decide;

#[test]
fn every_scenario_gives_the_plan_that_is_written_down() {
    let mut differing = Vec::new();
    for file in files() {
        let written = fs::read_to_string(&file).expect("scenario files can be read");
        let now = replay(&written, &file);
        if now == written {
            continue;
        }
        if update() {
            fs::write(&file, now).expect("scenario files can be written");
        } else {
            differing.push(difference(&file, &written, &now));
        }
    }
    assert!(differing.is_empty(), "{}\nUPDATE_SCENARIOS=1 accepts this", differing.join("\n"));
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entries can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(!files.is_empty(), "no scenarios found");
    files
}

#[expect(clippy::disallowed_methods, reason = "the switch of a test, not an input of a decision")]
fn update() -> bool {
    env::var_os("UPDATE_SCENARIOS").is_some()
}

/// The same file with the plans of now.
fn replay(written: &str, file: &Path) -> String {
    let mut now = String::new();
    let mut described = String::new();
    let mut in_plan = false;
    for line in written.lines() {
        if line.starts_with("== ") {
            described.clear();
            in_plan = false;
        } else if line == "--" {
            in_plan = true;
            let (goal, seen) =
                snapshot::read(&described).unwrap_or_else(|problem| panic!("{}: {problem}", file.display()));
            writeln!(now, "--\n{}", decide(&goal, &seen)).expect("strings take everything");
            continue;
        } else if in_plan && !line.starts_with('#') {
            continue;
        } else {
            writeln!(described, "{line}").expect("strings take everything");
        }
        writeln!(now, "{line}").expect("strings take everything");
    }
    format!("{}\n", now.trim_end())
}

fn difference(file: &Path, written: &str, now: &str) -> String {
    let mut text = format!("{}:\n", file.display());
    let mut title = "";
    let mut rest = now.lines();
    for line in written.lines() {
        let fresh = rest.next().unwrap_or("");
        if line.starts_with("== ") {
            title = line;
        }
        if line != fresh {
            writeln!(text, "{title}\n  written: {line}\n  now:     {fresh}")
                .expect("strings take everything");
            return text;
        }
    }
    writeln!(text, "  more now: {}", rest.collect::<Vec<_>>().join("\n")).expect("strings take everything");
    text
}
