//! Every turn of the status as readable text: a spec and a snapshot in, the status and its events out.
//!
//! A file holds scenarios of one or more looks. Each look describes what has changed since the one before, then come
//! `--` and what is told. `statuses/README.md` has the words. `UPDATE_SCENARIOS=1` writes the statuses as they are now.

#[path = "scenarios/snapshot.rs"]
mod snapshot;
#[path = "statuses/story.rs"]
mod story;

use std::path::{Path, PathBuf};
use std::{env, fs};

#[test]
fn every_story_gives_the_statuses_that_are_written_down() {
    let mut differing = Vec::new();
    for file in files() {
        let written = fs::read_to_string(&file).expect("the files can be read");
        let now = story::replay(&written).unwrap_or_else(|problem| panic!("{}: {problem}", file.display()));
        if now == written {
            continue;
        }
        if update() {
            fs::write(&file, now).expect("the files can be written");
        } else {
            differing.push(difference(&file, &written, &now));
        }
    }
    assert!(differing.is_empty(), "{}\nUPDATE_SCENARIOS=1 accepts this", differing.join("\n"));
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/statuses");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entries can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(!files.is_empty(), "no stories found");
    files
}

#[expect(clippy::disallowed_methods, reason = "the switch of a test, not an input of a decision")]
fn update() -> bool {
    env::var_os("UPDATE_SCENARIOS").is_some()
}

fn difference(file: &Path, written: &str, now: &str) -> String {
    let (mut title, mut rest) = ("", now.lines());
    for line in written.lines() {
        let fresh = rest.next().unwrap_or("");
        title = if line.starts_with("== ") { line } else { title };
        if line != fresh {
            return format!("{}:\n{title}\n  written: {line}\n  now:     {fresh}", file.display());
        }
    }
    format!("{}:\n  more now: {}", file.display(), rest.collect::<Vec<_>>().join("\n"))
}
