//! Which tests passed on this machine, and for which sources. Kept beside the testbed's cache: checkouts come and go.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::sources::{Dependent, fingerprint};
use crate::test::Test;
use crate::workspace;

/// A machine changes in ways that no fingerprint sees, so a pass is not believed for ever.
const BELIEVED: Duration = Duration::from_secs(7 * 24 * 3600);

/// One file for each test and fingerprint, which holds how many seconds it took.
pub struct Passed {
    directory: PathBuf,
    fingerprints: BTreeMap<Dependent, String>,
}

impl Passed {
    /// For the sources as they are now: edits during a run count for the next one.
    pub fn on_this_machine(tests: &[Test]) -> Result<Self> {
        Self::in_directory(testbed::cache::dir().join("passed"), tests)
    }

    fn in_directory(directory: PathBuf, tests: &[Test]) -> Result<Self> {
        let mut fingerprints = BTreeMap::new();
        for of in tests.iter().map(Dependent::of) {
            if let Entry::Vacant(entry) = fingerprints.entry(of) {
                let fingerprint = fingerprint(&workspace::root(), entry.key())?;
                entry.insert(fingerprint);
            }
        }
        Ok(Self { directory, fingerprints })
    }

    pub fn contains(&self, test: &Test) -> bool {
        let modified = fs::metadata(self.file(test)).and_then(|it| it.modified());
        modified.is_ok_and(|at| !outdated(at))
    }

    /// How long it took when it passed, for whatever sources.
    pub fn took(&self, test: &Test) -> Option<Duration> {
        let entries = fs::read_dir(self.folder(test)).ok()?.flatten();
        let latest = entries.max_by_key(|entry| entry.metadata().and_then(|it| it.modified()).ok())?;
        fs::read_to_string(latest.path()).ok()?.trim().parse().ok().map(Duration::from_secs)
    }

    pub fn forget(&self, test: &Test) {
        let _ = fs::remove_file(self.file(test));
    }

    /// Recorded at once: a run can be interrupted at any time.
    pub fn record(&self, test: &Test, took: Duration) -> Result<()> {
        let file = self.file(test);
        let folder = file.parent().context("a file in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        forget_outdated(folder);
        fs::write(&file, took.as_secs().to_string())
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn file(&self, test: &Test) -> PathBuf {
        let fingerprint = self.fingerprints.get(&Dependent::of(test)).map_or("unknown", String::as_str);
        self.folder(test).join(fingerprint)
    }

    fn folder(&self, test: &Test) -> PathBuf {
        self.directory.join(test.name.replace("::", "-"))
    }
}

fn outdated(at: SystemTime) -> bool {
    at.elapsed().unwrap_or_default() > BELIEVED
}

fn forget_outdated(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.metadata().and_then(|it| it.modified()).is_ok_and(outdated) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    #[test]
    fn a_pass_is_kept_until_the_test_fails_or_the_pass_is_old() {
        let directory = std::env::temp_dir().join(format!("e2e-passed-{}", std::process::id()));
        let tests = suite::all();
        let passed = Passed::in_directory(directory.clone(), &tests).expect("fingerprints");
        let [one, other, ..] = tests.as_slice() else { panic!("there are tests") };
        let known = |test| passed.contains(test);
        assert!(!known(one));
        let took = Duration::from_secs(7);
        passed.record(one, took).expect("recorded");
        assert!(known(one) && !known(other));
        assert_eq!((passed.took(one), passed.took(other)), (Some(took), None));
        passed.forget(one);
        assert!(!known(one));

        passed.record(one, took).expect("recorded");
        let long_ago = SystemTime::now() - 2 * BELIEVED;
        let file = fs::File::options().write(true).open(passed.file(one)).expect("there");
        file.set_modified(long_ago).expect("its time can be set");
        assert!(!known(one));
        fs::remove_dir_all(directory).expect("removed");
    }
}
