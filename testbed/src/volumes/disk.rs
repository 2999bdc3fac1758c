//! Disks as files: made, mounted, removed. All of it may be repeated, also after a crash in the midst of it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::decision::Found;
use super::mounts;
use crate::layout::Node;
use crate::shell::run;

/// The image of a volume's disk, and the directory where it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub image: PathBuf,
    pub mount: PathBuf,
}

impl Disk {
    pub(super) fn new(volumes: &Path, node: Node, volume: &str) -> Self {
        let dir = volumes.join(node.name());
        Self { image: dir.join(format!("{volume}.img")), mount: dir.join(volume) }
    }

    /// Makes the disk, unless it is there, and mounts it.
    pub(super) async fn make(&self, size_bytes: u64) -> Result<()> {
        if !self.image.exists() {
            self.format(size_bytes)
                .await
                .with_context(|| format!("cannot create {}", self.image.display()))?;
        }
        self.mount().await
    }

    /// The image gets its name when its file system is complete, so an image that is there can be mounted.
    async fn format(&self, size_bytes: u64) -> Result<()> {
        let unfinished = self.unfinished();
        std::fs::create_dir_all(unfinished.parent().context("an image has a parent directory")?)?;
        // Not the old file made empty: a program that outlived its provisioner may still write to that.
        unless_missing(std::fs::remove_file(&unfinished))?;
        std::fs::File::create_new(&unfinished)?.set_len(size_bytes)?;
        // A new sparse file reads as zeros: nothing to discard, and no table or journal to overwrite. No
        // blocks are kept back for root, so the size is real.
        let options = "nodiscard,assume_storage_prezeroed=1";
        let image = unfinished.display().to_string();
        run(&["mkfs.ext4", "-q", "-F", "-m", "0", "-E", options, &image]).await?;
        // Open to all users from the start; later the permissions are the kubelet's and the pod's.
        run(&["debugfs", "-w", "-R", "set_inode_field / mode 040777", &image]).await?;
        std::fs::rename(&unfinished, &self.image)?;
        Ok(())
    }

    /// Mounts the disk unless it is mounted.
    pub(super) async fn mount(&self) -> Result<()> {
        if self.is_mounted()? {
            return Ok(());
        }
        let what = || format!("cannot mount {}", self.image.display());
        std::fs::create_dir_all(&self.mount).with_context(what)?;
        let device = self.attach().await.with_context(what)?;
        let mounted = run(&["mount", "-t", "ext4", &device, &self.mount.display().to_string()]).await;
        // A mounted device is only marked to be freed with its last mount; one that is not mounted goes now.
        let detached = mounts::detach(&device).await;
        mounted.and(detached).with_context(what)
    }

    /// A disk that is attached already (pods may still have it mounted) keeps its device: a second one would
    /// be a second file system on the same blocks.
    async fn attach(&self) -> Result<String> {
        let image = self.image.canonicalize()?;
        if let Some(device) = mounts::loop_of(&image) {
            return Ok(device);
        }
        let image = image.display().to_string();
        // Direct, or else data is cached twice and a flush takes twice as long. Not every file system can.
        let device = match run(&["losetup", "--find", "--show", "--direct-io=on", &image]).await {
            Ok(device) => device,
            Err(_) => run(&["losetup", "--find", "--show", &image]).await?,
        };
        Ok(device.trim().to_owned())
    }

    /// Removes the disk with all its data. What still uses it keeps the blocks until it lets go.
    pub(super) async fn remove(&self) -> Result<()> {
        let what = || format!("cannot remove {}", self.image.display());
        while self.is_mounted().with_context(what)? {
            let point = self.mount.display().to_string();
            if run(&["umount", &point]).await.is_err() {
                run(&["umount", "--lazy", &point]).await.with_context(what)?;
            }
        }
        if let Some(device) = self.image.canonicalize().ok().and_then(|image| mounts::loop_of(&image)) {
            mounts::detach(&device).await.with_context(what)?;
        }
        // With all that was written into it while nothing was mounted there.
        unless_missing(std::fs::remove_dir_all(&self.mount)).with_context(what)?;
        unless_missing(std::fs::remove_file(self.unfinished())).with_context(what)?;
        unless_missing(std::fs::remove_file(&self.image)).with_context(what)
    }

    fn is_mounted(&self) -> Result<bool> {
        let dir = self.mount.parent().context("a mount point has a parent directory")?;
        let name = self.mount.file_name().context("a mount point has a name")?;
        // The kernel lists real paths. Only the directory is asked for its own: a broken disk may not answer.
        let Ok(dir) = dir.canonicalize() else { return Ok(false) };
        Ok(mounts::points_below(&dir)?.contains(&dir.join(name)))
    }

    fn unfinished(&self) -> PathBuf {
        self.image.with_added_extension("new")
    }
}

fn unless_missing(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// On which nodes there is anything of a volume's disk.
pub fn find(volumes: &Path, volume: &str) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for node in Node::first(Node::MOST) {
        let disk = Disk::new(volumes, node, volume);
        let (has_image, is_mounted) = (disk.image.exists(), disk.is_mounted()?);
        if has_image || is_mounted || disk.unfinished().exists() || disk.mount.exists() {
            found.push(Found { node, has_image, is_mounted });
        }
    }
    Ok(found)
}

/// The volumes of which there is anything on the file system.
pub fn names(volumes: &Path) -> Vec<String> {
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let files = Node::first(Node::MOST).flat_map(|node| entries(&volumes.join(node.name())));
    let names = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let name = name.strip_suffix(".new").unwrap_or(&name);
        let name = name.strip_suffix(".img").unwrap_or(name);
        name.starts_with("pvc-").then(|| name.to_owned())
    });
    names.collect()
}

/// What could still be written on the machine's file system.
pub fn free_bytes(volumes: &Path) -> Result<u64> {
    let state = rustix::fs::statvfs(volumes)
        .with_context(|| format!("cannot read the free space of {}", volumes.display()))?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    /// A directory for disks that leaves nothing mounted behind, not even when the test fails.
    struct Scratch(PathBuf);

    impl Scratch {
        /// None if the tests run as a user who may not mount.
        fn new(name: &str) -> Option<Self> {
            if !rustix::process::geteuid().is_root() {
                println!("skipped: only root can mount disks");
                return None;
            }
            let dir = std::env::temp_dir().join(format!("testbed-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("a directory");
            Some(Self(dir.canonicalize().expect("it exists")))
        }

        fn disk(&self, volume: &str) -> Disk {
            Disk::new(&self.0, Node::MACHINE, volume)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            for point in mounts::points_below(&self.0).unwrap_or_default() {
                let _ = std::process::Command::new("umount").arg("--lazy").arg(point).status();
            }
            for device in mounts::loops_below(&self.0) {
                let _ = std::process::Command::new("losetup").arg("--detach").arg(device).status();
            }
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn a_disk_holds_what_was_asked_for_and_no_more_and_leaves_nothing_behind() {
        let Some(scratch) = Scratch::new("full") else { return };
        let disk = scratch.disk("pvc-1");
        disk.make(32 << 20).await.expect("made");
        assert_eq!(disk.image.metadata().expect("an image").len(), 32 << 20);
        assert_eq!(disk.mount.metadata().expect("a mount").permissions().mode() & 0o7777, 0o777);

        let mut file = std::fs::File::create(disk.mount.join("file")).expect("a file");
        let (mut written, block) = (0, vec![7; 64 << 10]);
        let error = loop {
            match file.write(&block) {
                Ok(bytes) => written += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!((20 << 20..32 << 20).contains(&written), "{written} bytes fitted");
        drop(file);

        disk.remove().await.expect("removed");
        assert_eq!(find(&scratch.0, "pvc-1").expect("an answer"), []);
        assert_eq!(mounts::loops_below(&scratch.0), Vec::<String>::new());
        assert_eq!(names(&scratch.0), Vec::<String>::new());
    }

    #[tokio::test]
    async fn every_step_may_be_repeated_and_keeps_the_data() {
        let Some(scratch) = Scratch::new("again") else { return };
        let disk = scratch.disk("pvc-1");
        // As a crash while formatting would leave it.
        std::fs::create_dir_all(&disk.mount).expect("a directory");
        std::fs::write(disk.unfinished(), "half").expect("a file");
        assert_eq!(names(&scratch.0), ["pvc-1", "pvc-1"]);

        disk.make(16 << 20).await.expect("made");
        std::fs::write(disk.mount.join("kept"), "data").expect("written");
        std::fs::set_permissions(&disk.mount, PermissionsExt::from_mode(0o2750)).expect("changed");
        disk.make(16 << 20).await.expect("made again");
        disk.mount().await.expect("mounted again");
        run(&["umount", &disk.mount.display().to_string()]).await.expect("unmounted");
        let lost_mount = Found { node: Node::MACHINE, has_image: true, is_mounted: false };
        assert_eq!(find(&scratch.0, "pvc-1").expect("an answer"), [lost_mount]);
        disk.mount().await.expect("mounted after a restart");
        assert_eq!(std::fs::read_to_string(disk.mount.join("kept")).expect("read"), "data");
        assert_eq!(disk.mount.metadata().expect("a mount").permissions().mode() & 0o7777, 0o2750);

        disk.remove().await.expect("removed");
        disk.remove().await.expect("removed again");
    }

    #[tokio::test]
    async fn a_disk_in_use_keeps_its_device_and_can_still_be_removed() {
        let Some(scratch) = Scratch::new("busy") else { return };
        let disk = scratch.disk("pvc-1");
        disk.make(16 << 20).await.expect("made");
        // As the kubelet does it for a pod.
        let pod = scratch.0.join("pod");
        let (from, to) = (disk.mount.display().to_string(), pod.display().to_string());
        std::fs::create_dir(&pod).expect("a directory");
        run(&["mount", "--bind", &from, &to]).await.expect("bound");
        run(&["umount", &from]).await.expect("unmounted");
        disk.mount().await.expect("mounted again");
        assert_eq!(mounts::loops_below(&scratch.0).len(), 1, "one device, so one file system");
        assert_eq!(
            disk.mount.metadata().expect("a mount").dev(),
            pod.metadata().expect("a mount").dev(),
            "the same file system"
        );

        let open = std::fs::File::create(disk.mount.join("open")).expect("a file");
        disk.remove().await.expect("removed although in use");
        assert_eq!(find(&scratch.0, "pvc-1").expect("an answer"), []);
        std::fs::write(pod.join("still"), "there").expect("the pod goes on");
        drop(open);
        super::super::unmount_below(&scratch.0).await.expect("torn down");
        assert_eq!(mounts::points_below(&scratch.0).expect("an answer"), Vec::<PathBuf>::new());
        assert_eq!(mounts::loops_below(&scratch.0), Vec::<String>::new());
    }
}
