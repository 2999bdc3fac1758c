//! The sources that a test depends on, as one fingerprint: while it stays the same, so does the test's outcome.

use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::test::{About, Test};

/// Versions of everything that is compiled, and the programs of the machine.
const PINNED: [&str; 4] = ["Cargo.lock", "Cargo.toml", "rust-toolchain.toml", "hack/programs"];
const TESTBED: &[&str] = &["testbed"];
const OPERATOR: &[&str] = &["testbed", "core", "agent", "backup", "operator", "config"];
const DOCUMENTS: &[&str] = &[
    "testbed",
    "core",
    "agent",
    "backup",
    "operator",
    "config",
    "tidy",
    "docs",
    "examples",
    "test",
    "README.md",
];
/// No test runs these.
const OTHER_PROGRAMS: [&str; 5] = [
    "e2e/src/bench",
    "e2e/src/bench.rs",
    "e2e/src/bin/bench.rs",
    "e2e/src/bin/demo.rs",
    "e2e/src/bin/deploy.rs",
];
/// What tests of the testbed have no use for.
const FOR_THE_OPERATOR: [&str; 6] = [
    "e2e/src/host_operator.rs",
    "e2e/src/install.rs",
    "e2e/src/operated",
    "e2e/src/operated.rs",
    "e2e/src/readme.rs",
    "e2e/src/serving.rs",
];
const SUITE: &str = "e2e/src/suite";

/// What decides which sources a test depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependent {
    about: About,
    /// The folder in [`SUITE`] that only these tests use.
    group: &'static str,
}

impl Dependent {
    pub fn of(test: &Test) -> Self {
        let group = match test.about {
            About::Testbed => "testbed",
            About::Operator | About::Documents => test.name.split("::").next().unwrap_or_default(),
        };
        Self { about: test.about, group }
    }

    /// Whether a file or folder of the tree is part of it.
    fn counts(&self, path: &str) -> bool {
        let of_testbed = self.about == About::Testbed;
        if OTHER_PROGRAMS.contains(&path) || (of_testbed && FOR_THE_OPERATOR.contains(&path)) {
            return false;
        }
        let Some(file) = path.strip_prefix(SUITE).and_then(|rest| rest.strip_prefix('/')) else {
            return true;
        };
        match file.split('/').next() {
            Some(folder) if !folder.ends_with(".rs") => folder == self.group,
            _ => of_testbed == (file == "testbed.rs"),
        }
    }
}

/// Of the tree at `root`, on a machine like this one.
pub fn fingerprint(root: &Path, of: &Dependent) -> Result<String> {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        // The length keeps two neighbouring texts apart.
        hash.update(bytes.len().to_le_bytes());
        hash.update(bytes);
    };
    add(std::fs::read("/proc/sys/kernel/osrelease").unwrap_or_default().as_slice());
    let about = match of.about {
        About::Testbed => TESTBED,
        About::Operator => OPERATOR,
        About::Documents => DOCUMENTS,
    };
    let mut files = Vec::new();
    for path in PINNED.iter().chain(about).chain(&["e2e"]) {
        collect(root, path, &|path| of.counts(path), &mut files)?;
    }
    files.sort();
    for file in files {
        add(file.as_bytes());
        add(&std::fs::read(root.join(&file)).with_context(|| format!("cannot read {file}"))?);
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Every file below a path that counts; editors' files, which begin with a dot, never do.
fn collect(root: &Path, path: &str, counts: &dyn Fn(&str) -> bool, files: &mut Vec<String>) -> Result<()> {
    if !counts(path) {
        return Ok(());
    }
    let full = root.join(path);
    if !full.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(&full).with_context(|| format!("cannot read {path}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            collect(root, &format!("{path}/{name}"), counts, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::*;
    use crate::{suite, workspace};

    /// The files that count for a test, in this tree.
    fn files(of: &Dependent) -> BTreeSet<String> {
        let mut files = Vec::new();
        for path in ["core", "testbed", "docs", "e2e"] {
            collect(&workspace::root(), path, &|path| of.counts(path), &mut files).expect("it is there");
        }
        files.into_iter().collect()
    }

    #[test]
    fn a_test_depends_on_its_own_group_and_on_what_all_share() {
        let lifecycle = files(&Dependent { about: About::Operator, group: "lifecycle" });
        for file in ["lifecycle.rs", "lifecycle/scaling.rs", "disturbed.rs", "membership_faults.rs"] {
            assert!(lifecycle.contains(&format!("{SUITE}/{file}")), "{file}");
        }
        for file in ["membership_faults/no_room.rs", "testbed.rs", "testbed/volumes.rs"] {
            assert!(!lifecycle.contains(&format!("{SUITE}/{file}")), "{file}");
        }
        assert!(!lifecycle.contains("e2e/src/bin/demo.rs") && lifecycle.contains("e2e/src/wait.rs"));
    }

    #[test]
    fn a_test_of_the_testbed_does_not_depend_on_the_operator() {
        let of_testbed = files(&Dependent { about: About::Testbed, group: "testbed" });
        for file in ["e2e/src/suite.rs", "e2e/src/suite/testbed.rs", "e2e/src/suite/testbed/volumes.rs"] {
            assert!(of_testbed.contains(file), "{file}");
        }
        for file in ["e2e/src/suite/lifecycle.rs", "e2e/src/suite/lifecycle/truth.rs", "e2e/src/operated.rs"]
        {
            assert!(!of_testbed.contains(file), "{file}");
        }
        for path in of_testbed.iter().filter(|path| path.contains("suite/testbed")) {
            let text = std::fs::read_to_string(workspace::root().join(path)).expect("readable");
            for word in [".operator()", ".operated(", "Operated", "HostOperator"] {
                assert!(
                    !text.contains(word),
                    "{path} has {word}, but its pass outlives a change of the operator"
                );
            }
        }
    }

    #[test]
    fn what_is_excluded_exists() {
        for path in OTHER_PROGRAMS.iter().chain(&FOR_THE_OPERATOR) {
            assert!(workspace::root().join(path).exists(), "{path}");
        }
        for test in suite::all() {
            let group = Dependent::of(&test).group;
            assert!(workspace::root().join(SUITE).join(format!("{group}.rs")).exists(), "{group}");
        }
    }

    #[test]
    fn a_change_is_a_change_for_those_tests_that_depend_on_it() {
        let root = std::env::temp_dir().join(format!("e2e-sources-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
            std::fs::write(path, text).expect("written");
        };
        for path in PINNED.iter().chain(&["README.md"]) {
            write(path, "");
        }
        for folder in DOCUMENTS.iter().filter(|path| !path.contains('.')).chain(&["e2e/src"]) {
            write(&format!("{folder}/file"), "one");
        }
        let now = || {
            [(About::Testbed, "testbed"), (About::Operator, "group"), (About::Documents, "group")]
                .map(|(about, group)| fingerprint(&root, &Dependent { about, group }).expect("a fingerprint"))
        };
        // Whether each of the three notices the change.
        let changed = |path: &str, text: &str| {
            let before = now();
            write(path, text);
            let after = now();
            [before[0] != after[0], before[1] != after[1], before[2] != after[2]]
        };
        assert_eq!(changed("testbed/file", "two"), [true; 3]);
        assert_eq!(changed("testbed/file", "two"), [false; 3]);
        assert_eq!(changed("core/file", "two"), [false, true, true]);
        assert_eq!(changed("docs/new", ""), [false, false, true]);
        assert_eq!(changed("Cargo.lock", "two"), [true; 3]);
        assert_eq!(changed("core/.swap", ""), [false; 3]);
        assert_eq!(changed("e2e/src/suite/group/file.rs", ""), [false, true, true]);
        assert_eq!(changed("e2e/src/suite/other/file.rs", ""), [false; 3]);
        std::fs::remove_dir_all(&root).expect("removed");
    }

    /// So that a crate that gains a dependency inside the workspace is not forgotten here.
    #[test]
    fn folders_come_with_what_their_crates_depend_on() {
        let cargo = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"])
            .current_dir(workspace::root())
            .output()
            .expect("cargo runs");
        let metadata: serde_json::Value = serde_json::from_slice(&cargo.stdout).expect("it is JSON");
        let root = workspace::root().display().to_string();
        let folder =
            |path: &str| path.strip_prefix(&root).map(|path| path.trim_start_matches('/').to_owned());
        for package in metadata["packages"].as_array().expect("packages") {
            let manifest = package["manifest_path"].as_str().and_then(folder).expect("a crate of ours");
            let name = manifest.trim_end_matches("/Cargo.toml");
            for dependency in package["dependencies"].as_array().expect("dependencies") {
                let Some(needed) = dependency["path"].as_str().and_then(folder) else { continue };
                // Programs are not what their own tests need.
                if dependency["kind"] == "dev" {
                    continue;
                }
                for folders in [TESTBED, OPERATOR, DOCUMENTS] {
                    let complete = !folders.contains(&name) || folders.contains(&needed.as_str());
                    assert!(complete, "{name} needs {needed}: {folders:?}");
                }
            }
        }
    }
}
