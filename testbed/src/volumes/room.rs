//! How much a mounted disk holds. It changes while pods use the disk.
//!
//! A mounted ext4 file system grows only for a process with CAP_SYS_RESOURCE, which root often lacks in containers and
//! virtual machines. So each file system has more blocks than its volume offers, and keeps the rest as reserved
//! clusters, which no user gets, root included. That number can be changed at any time. One difference remains: as
//! total size, the file system reports the most that it can ever offer.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// What a disk offers to its users now, and the most that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub size_bytes: u64,
    pub most_bytes: u64,
}

pub fn of(mount: &Path) -> Result<Room> {
    let what = || format!("cannot read the size of {}", mount.display());
    let state = rustix::fs::statvfs(mount).with_context(what)?;
    let reserved =
        std::fs::read_to_string(reserved_clusters(mount).with_context(what)?).with_context(what)?;
    let reserved: u64 = reserved.trim().parse().with_context(what)?;
    let bytes = |blocks: u64| blocks.saturating_mul(state.f_frsize);
    Ok(Room { size_bytes: bytes(state.f_blocks.saturating_sub(reserved)), most_bytes: bytes(state.f_blocks) })
}

pub fn set(mount: &Path, size_bytes: u64) -> Result<()> {
    let what = || format!("cannot set the size of {} to {size_bytes} bytes", mount.display());
    let state = rustix::fs::statvfs(mount).with_context(what)?;
    let blocks = size_bytes.div_ceil(state.f_frsize);
    ensure!(blocks <= state.f_blocks, "{}: it has only {} blocks", what(), state.f_blocks);
    let reserved = state.f_blocks - blocks;
    std::fs::write(reserved_clusters(mount).with_context(what)?, reserved.to_string()).with_context(what)
}

/// A cluster is a block here: `bigalloc` is off.
fn reserved_clusters(mount: &Path) -> std::io::Result<PathBuf> {
    let device = mount.metadata()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
    Ok(Path::new("/sys/fs/ext4").join(device.file_name().unwrap_or_default()).join("reserved_clusters"))
}
