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
use etcd_operator_core::snapshot::Snapshot;

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

#[test]
fn an_observation_from_the_log_is_a_scenario() {
    for described in [
        "running 3\ngoal 5 adopt\nmember a2 learner\nalarm NOSPACE a1",
        "order 3\nset 3\npods 0-2 failing\nreject 2 a  quota",
    ] {
        let (goal, observed) = snapshot::read(described).expect("it is a description");
        let logged = Snapshot { goal, observed };
        let line = format!("observation {}", serde_json::to_string(&logged).expect("plain data"));
        assert_eq!(snapshot::read(&line), Ok((logged.goal, logged.observed)));
    }
    assert!(snapshot::read("observation {}").is_err());
}

#[test]
fn a_snapshot_states_its_facts_and_its_plan() {
    let described = "running 3\ngoal 5 paused\nset 5\nmember a1 leaderless\npod 2 data-lost\nmember a2 silent\n\
                     pod 3 started\nclaim 3 member=a3\nmember a3 learner index=10\npod 4 waiting\nclaim 4";
    let (goal, observed) = snapshot::read(described).expect("it is a description");
    let expected = "goal: size 5, on stop Retain, on delete Retain, paused\n\
                    quorum: held, 1 of 3 voters serve\n\
                    member a0 (pod 0): voter, serving\n\
                    member a1 (pod 1): voter, no leader\n\
                    member a2 (pod 2): voter, data lost\n\
                    member a3 (pod 3): learner, 4990 entries behind\n\
                    pod 0: etcd running\n\
                    pod 1: etcd running\n\
                    pod 2: data lost\n\
                    pod 3: etcd running\n\
                    pod 4: ready to join\n\
                    wait for: spec.paused to be set to false\n";
    assert_eq!(Snapshot { goal, observed }.to_string(), expected);
    for (described, line) in [
        ("running 1\ngoal 1", "nothing to do\n"),
        ("running 3\netcd is c2", "quorum: held by cluster c2 instead of c1\n"),
        ("running 1\npod 0 waiting\netcd unknown", "data: no volume holds data\n"),
        ("running 1\netcd unknown", "quorum: unproven, no member serves linearizable reads\n"),
    ] {
        let (goal, observed) = snapshot::read(described).expect("it is a description");
        let text = Snapshot { goal, observed }.to_string();
        assert!(text.contains(line), "{text}");
    }
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
