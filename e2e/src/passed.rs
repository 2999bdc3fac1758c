//! Which tests passed for the source as it is now, so that a long run can be taken up again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::workspace;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// Of the source that the tests passed for.
    fingerprint: String,
    tests: BTreeSet<String>,
}

impl Passed {
    /// What is known of the source as it is now: nothing, if it changed since.
    pub fn load() -> Result<Self> {
        let fingerprint = fingerprint(&workspace::root())?;
        let known = std::fs::read(file())
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok())
            .unwrap_or_default();
        Ok(known.for_source(fingerprint))
    }

    fn for_source(self, fingerprint: String) -> Self {
        if self.fingerprint == fingerprint { self } else { Self { fingerprint, tests: BTreeSet::new() } }
    }

    pub fn contains(&self, test: &str) -> bool {
        self.tests.contains(test)
    }

    /// Recorded at once: a run may be interrupted at any time.
    pub fn record(&mut self, test: &str, ok: bool) -> Result<()> {
        let changed = if ok { self.tests.insert(test.to_owned()) } else { self.tests.remove(test) };
        if changed { self.save() } else { Ok(()) }
    }

    fn save(&self) -> Result<()> {
        let path = file();
        let dir = path.parent().context("a file in a directory")?;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let new = path.with_extension("json.new");
        std::fs::write(&new, serde_json::to_string_pretty(self)? + "\n")?;
        std::fs::rename(&new, &path).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn file() -> PathBuf {
    workspace::results().join("e2e/passed.json")
}

/// The hash of the tree that a commit of everything, as it is now, would have.
///
/// Taken with an index of our own: the user's index stays as it is, and committing does not change the answer.
fn fingerprint(root: &Path) -> Result<String> {
    let directory = git(root, None, &["rev-parse", "--absolute-git-dir"])?;
    let ours = Path::new(&directory).join(format!("e2e-index.{}", std::process::id()));
    // The user's index spares git from reading files that did not change.
    let theirs = Path::new(&directory).join("index");
    if theirs.exists() {
        std::fs::copy(&theirs, &ours).context("cannot copy git's index")?;
    }
    let tree =
        git(root, Some(&ours), &["add", "--all", "."]).and_then(|_| git(root, Some(&ours), &["write-tree"]));
    let _ = std::fs::remove_file(&ours);
    tree
}

fn git(root: &Path, index: Option<&Path>, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(arguments);
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let output = command.output().context("cannot run git")?;
    ensure!(
        output.status.success(),
        "`git {}` failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_source_forgets_what_passed() {
        let passed = Passed { fingerprint: "a".into(), tests: BTreeSet::from(["one".to_owned()]) };
        let passed = passed.for_source("a".into());
        assert!(passed.contains("one"));
        assert!(!passed.for_source("b".into()).contains("one"));
    }

    #[test]
    fn the_fingerprint_follows_the_content_and_not_the_commits() {
        let root = std::env::temp_dir().join(format!("e2e-fingerprint-{}", std::process::id()));
        std::fs::create_dir_all(&root).expect("a directory");
        let run = |arguments: &[&str]| git(&root, None, arguments).expect("git works");
        run(&["init", "--quiet"]);
        std::fs::write(root.join("file"), "one").expect("written");
        let before = fingerprint(&root).expect("fingerprint");
        run(&["add", "."]);
        run(&["-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "--message", "one"]);
        assert_eq!(fingerprint(&root).expect("fingerprint"), before, "committing changes nothing");
        std::fs::write(root.join("new"), "two").expect("written");
        assert_ne!(fingerprint(&root).expect("fingerprint"), before, "a file git does not know yet counts");
        assert_eq!(run(&["status", "--porcelain"]), "?? new", "the user's index is as it was");
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
