//! Persistent volumes on demand: for each claim an ext4 disk that holds exactly the requested size, mounted through a
//! loop device and handed to the cluster as a `local` volume. So a full disk is really full. It grows on request.
//!
//! `local` and not `hostPath`, because only the former honours fsGroup and node affinity. Disks are sparse:
//! many large claims fit on a small machine as long as they are not filled.

mod claim;
mod decision;
mod disk;
pub(crate) mod growth;
mod inventory;
mod mounts;
mod objects;
mod provisioner;
mod quantity;
mod queue;
mod room;
mod worker;

use std::path::Path;

use anyhow::{Context, Result};

pub use disk::Disk;
pub use objects::storage_classes;
pub use provisioner::provision;

use crate::layout::{Layout, Node};
use crate::shell::run;

/// What storage classes name as their provisioner, and volumes as their maker.
pub const PROVISIONER: &str = "testbed/local";

/// Where the disk of a volume lies, whether it exists or not.
pub fn disk_of(layout: &Layout, node: Node, volume: &str) -> Disk {
    Disk::new(&layout.volumes(), node, volume)
}

/// Unmounts and detaches all disks of an instance, in use or not; the images stay.
///
/// A loop device goes when its last mount does: the kubelet's own mounts of a volume (below the node's home)
/// keep it until they are undone too.
pub async fn unmount_all(layout: &Layout) -> Result<()> {
    unmount_below(&layout.volumes()).await
}

async fn unmount_below(volumes: &Path) -> Result<()> {
    // The kernel lists mounts and files by their real path. Without the directory there is nothing below.
    let Ok(volumes) = volumes.canonicalize() else { return Ok(()) };
    let mut points = mounts::points_below(&volumes)?;
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in points {
        let unmounted = run(&["umount", "--lazy", &point.display().to_string()]).await;
        // It may have gone by itself in the meantime.
        if mounts::points_below(&volumes)?.contains(&point) {
            unmounted?;
        }
    }
    for device in mounts::loops_below(&volumes) {
        mounts::detach(&device).await.with_context(|| format!("cannot detach {device}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_lies_in_the_directory_of_its_node() {
        let disk = disk_of(&Layout::instance("x"), Node::MACHINE, "pvc-1");
        assert!(disk.image.ends_with("x/volumes/n1/pvc-1.img"), "{disk:?}");
        assert!(disk.mount.ends_with("x/volumes/n1/pvc-1"), "{disk:?}");
    }

    #[tokio::test]
    async fn unmounting_what_was_never_made_is_fine() {
        unmount_below(Path::new("/nonexistent/volumes")).await.expect("nothing to do");
    }
}
