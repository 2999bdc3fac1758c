//! The directory of built programs: complete ones only, each under a name that says what it was made of.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::compile::{compile, copy_data};
use super::part::Part;
use super::progress::Progress;

const STAGING: &str = ".building-";
/// For how long a build stays after a change of its part: another checkout may still use it.
const OUTDATED_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

pub struct Store {
    dir: PathBuf,
    go: String,
}

impl Store {
    pub fn new(dir: PathBuf, go: String) -> Self {
        Self { dir, go }
    }

    /// Where the part's programs are, or will be.
    pub fn place(&self, part: &Part) -> PathBuf {
        self.dir.join(format!("{}-{}", part.stem(), part.key(&self.go)))
    }

    pub fn holds(&self, part: &Part) -> bool {
        self.place(part).is_dir()
    }

    /// Builds the part unless that was done before, and returns the directory of its programs.
    pub async fn ensure(&self, part: &Part) -> Result<PathBuf> {
        if !self.holds(part) {
            self.build(part).await.with_context(|| format!("cannot build {}", part.title()))?;
        }
        Ok(self.place(part))
    }

    async fn build(&self, part: &Part) -> Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| format!("cannot create {}", self.dir.display()))?;
        let _only_builder = self.lock().await?;
        if self.holds(part) {
            return Ok(());
        }
        self.remove_abandoned();
        let staging = Staging::create(&self.dir)?;
        part.unpack(&staging.sources())?;
        let progress = Progress::begin(part.title());
        compile(part, &staging.sources(), &staging.programs(), &staging.scratch(), &progress).await?;
        part.name_programs(&staging.programs())?;
        if let Some(data) = part.data {
            copy_data(data, &staging.sources(), &staging.programs()).await?;
        }
        let bytes = size(&staging.programs())?;
        fs::rename(staging.programs(), self.place(part)).context("cannot move it into place")?;
        progress.done(bytes);
        self.remove_outdated(part);
        Ok(())
    }

    /// Asked for again and again instead of waited for: a blocked thread would outlive a cancelled build.
    async fn lock(&self) -> Result<File> {
        let path = self.dir.join(".lock");
        let lock = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut told = false;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
            }
            if !told {
                eprintln!("waiting for another build to finish");
                told = true;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Only the holder of the lock builds, so what others began they left behind.
    fn remove_abandoned(&self) {
        for (path, name) in self.entries() {
            if name.starts_with(STAGING) {
                let _ = fs::remove_dir_all(path);
            }
        }
    }

    fn remove_outdated(&self, part: &Part) {
        let (stem, current) = (format!("{}-", part.stem()), self.place(part));
        let is_key = |text: &str| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        for (path, name) in self.entries() {
            let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
            if path != current && name.strip_prefix(&stem).is_some_and(is_key) && age > OUTDATED_AFTER {
                let _ = fs::remove_dir_all(path);
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = (PathBuf, String)> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()))
    }
}

/// Everything that is not complete lies in here and goes when this does.
struct Staging(PathBuf);

impl Staging {
    /// Each process has its own: a Go left running by a killed builder must not write into the next build.
    fn create(dir: &Path) -> Result<Self> {
        let staging = Self(dir.join(format!("{STAGING}{}", std::process::id())));
        for dir in [staging.sources(), staging.programs(), staging.scratch()] {
            fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        Ok(staging)
    }

    fn sources(&self) -> PathBuf {
        self.0.join("sources")
    }

    fn programs(&self) -> PathBuf {
        self.0.join("programs")
    }

    fn scratch(&self) -> PathBuf {
        self.0.join("scratch")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn size(dir: &Path) -> Result<u64> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    // A link counts for itself, not for what it points at.
    Ok(entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::go;
    use super::*;

    /// A directory for one test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("testbed-store-{}-{name}", std::process::id()));
            fs::create_dir_all(&dir).expect("a temporary directory can be made");
            Self(dir)
        }

        async fn store(&self) -> Store {
            Store::new(self.0.clone(), go::identity().await.expect("Go is installed"))
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("it is there").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string()).collect();
            names.sort();
            names.into_iter().map(|name| name.expect("our names are text")).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn broken() -> Part {
        let mut part = Part::pause();
        part.sources.push(("broken.go", "package main\n\nfunc broken() int { return \"text\" }\n".into()));
        part
    }

    fn with_links() -> Part {
        Part { links: &["hold"], ..Part::pause() }
    }

    #[tokio::test]
    async fn a_part_is_built_once() {
        let scratch = Scratch::new("once");
        let store = scratch.store().await;
        let dir = store.ensure(&with_links()).await.expect("it builds");
        let names = scratch.names();
        assert_eq!(names.len(), 2, "the programs and the lock: {names:?}");
        let built = fs::metadata(dir.join("pause")).expect("it is there");
        assert_eq!(built.mode() & 0o111, 0o111);
        assert_eq!(fs::read_link(dir.join("hold")).expect("it is a link"), Path::new("pause"));

        assert_eq!(store.ensure(&with_links()).await.expect("it is there"), dir);
        assert_eq!(fs::metadata(dir.join("pause")).expect("it is there").ino(), built.ino());
        assert_eq!(scratch.names(), names);
    }

    #[tokio::test]
    async fn a_failed_build_tells_why_and_leaves_nothing() {
        let scratch = Scratch::new("failed");
        let error = scratch.store().await.ensure(&broken()).await.expect_err("it does not compile");
        let text = format!("{error:#}");
        assert!(text.contains("cannot build pause") && text.contains("./broken.go:3:"), "{text}");
        assert_eq!(scratch.names(), [".lock"]);
    }

    #[tokio::test]
    async fn a_cancelled_build_leaves_nothing() {
        let scratch = Scratch::new("cancelled");
        let (store, part) = (scratch.store().await, Part::pause());
        let limit = Duration::from_millis(20);
        tokio::time::timeout(limit, store.ensure(&part)).await.expect_err("a build takes longer");
        assert_eq!(scratch.names(), [".lock"]);
    }

    #[tokio::test]
    async fn two_builders_make_one_build() {
        let scratch = Scratch::new("two");
        let (first, second) = (scratch.store().await, scratch.store().await);
        let part = Part::pause();
        let (one, other) = tokio::join!(first.ensure(&part), second.ensure(&part));
        assert_eq!(one.expect("it builds"), other.expect("it waits"));
        assert_eq!(scratch.names().len(), 2);
    }

    #[tokio::test]
    async fn a_build_removes_what_is_abandoned_and_what_is_outdated() {
        let scratch = Scratch::new("sweep");
        let long_ago = std::time::SystemTime::now() - 2 * OUTDATED_AFTER;
        let old = ["pause-0123456789ab", "pause-other", "etcd-v3.5.21-0123456789ab"];
        for name in old.iter().chain(&["pause-ba9876543210", ".building-1"]) {
            fs::create_dir(scratch.0.join(name)).expect("it can be made");
        }
        for name in old {
            let dir = File::open(scratch.0.join(name)).expect("it is there");
            dir.set_modified(long_ago).expect("its time can be set");
        }
        let dir = scratch.store().await.ensure(&Part::pause()).await.expect("it builds");
        let built = dir.file_name().and_then(|name| name.to_str()).expect("our names are text");
        let mut expected = [".lock", "etcd-v3.5.21-0123456789ab", "pause-ba9876543210", "pause-other", built];
        expected.sort();
        assert_eq!(scratch.names(), expected);
    }
}
