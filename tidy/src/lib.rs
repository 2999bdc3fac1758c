//! The source tree as text, for the rules in `tests/`.

pub mod commands;
pub mod faults;
pub mod licenses;
pub mod mutants;
pub mod named;
pub mod prose;

use std::path::{Path, PathBuf};
use std::process::Command;

pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Files of the tree whose name ends so, without build output and hidden directories.
pub fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root()];
    while let Some(folder) = todo.pop() {
        let entries = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                if name != "target" && !name.starts_with('.') {
                    todo.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// What a program prints when it is run in the root of the tree.
pub fn output(program: &str, arguments: &[&str]) -> String {
    let ran = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    assert!(
        ran.status.success(),
        "`{program} {}` failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&ran.stderr)
    );
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// A path as one would type it in the tree.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
