//! Disks as files: made, mounted, removed. All of it may be repeated, also after a crash in the midst of it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::decision::Found;
use super::{mounts, room};
use crate::layout::Node;
use crate::shell::run;

/// How far a disk can grow, in multiples of its first size. The image is sparse, so unused room costs nothing.
const MOST_GROWTH: u64 = 4;
const BYTES_PER_INODE: u64 = 16 << 10;
const MEBIBYTE: u64 = 1 << 20;

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
        self.mount(size_bytes).await
    }

    /// The image gets its name when its file system is complete, so an image that is there can be mounted.
    async fn format(&self, size_bytes: u64) -> Result<()> {
        let unfinished = self.unfinished();
        std::fs::create_dir_all(unfinished.parent().context("an image has a parent directory")?)?;
        // Not the old file made empty: a program that outlived its provisioner may still write to that.
        unless_missing(std::fs::remove_file(&unfinished))?;
        // The journal is as large as it would be without room to grow: all of it is written sooner or later.
        let journal_bytes = (size_bytes / 32).clamp(4 * MEBIBYTE, 64 * MEBIBYTE);
        // What the file system needs for itself comes on top, inodes first: each takes 256 bytes.
        let most_bytes = size_bytes.saturating_mul(MOST_GROWTH);
        let own_bytes = most_bytes / (BYTES_PER_INODE / 256) + most_bytes / 1024 + journal_bytes + MEBIBYTE;
        std::fs::File::create_new(&unfinished)?.set_len(most_bytes.saturating_add(own_bytes))?;
        // A new sparse file reads as zeros: nothing to discard, and no table or journal to overwrite. No
        // blocks are kept back for root, so the size is real.
        let options = "nodiscard,assume_storage_prezeroed=1";
        let image = unfinished.display().to_string();
        let (journal, inodes) = (format!("size={}", journal_bytes / MEBIBYTE), BYTES_PER_INODE.to_string());
        let layout = ["-b", "4096", "-i", &inodes, "-J", &journal, "-O", "^resize_inode"];
        run(&[&["mkfs.ext4", "-q", "-F", "-m", "0", "-E", options][..], &layout, &[&image]].concat()).await?;
        // Open to all users from the start; later the permissions are the kubelet's and the pod's.
        run(&["debugfs", "-w", "-R", "set_inode_field / mode 040777", &image]).await?;
        std::fs::rename(&unfinished, &self.image)?;
        Ok(())
    }

    /// Mounts the disk unless it is mounted, and lets its users have this much of it.
    pub(super) async fn mount(&self, size_bytes: u64) -> Result<()> {
        if !self.is_mounted()? {
            self.mount_whole().await?;
        }
        room::set(&self.mount, size_bytes)
    }

    async fn mount_whole(&self) -> Result<()> {
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
        let room = is_mounted.then(|| room::of(&disk.mount).ok()).flatten();
        if has_image || is_mounted || disk.unfinished().exists() || disk.mount.exists() {
            found.push(Found { node, has_image, is_mounted, room });
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
mod tests;
