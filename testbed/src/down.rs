//! Taking an instance down. It needs nothing but the instance's directory, so it works after anything:
//! an `up` that was killed half-way, daemons that died, a second `down`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::instance::{Kind, Record};
use crate::layout::{Layout, Node};
use crate::shell::run;
use crate::{cgroup, machine, network, node, process, volumes};

/// Removes every instance of this machine.
pub async fn remove_all() -> Result<Vec<Layout>> {
    let all = Layout::all();
    for layout in &all {
        remove(layout).await?;
    }
    Ok(all)
}

/// Removes one instance: its processes, mounts, network, control groups and files.
pub async fn remove(layout: &Layout) -> Result<()> {
    if !layout.exists() {
        return Ok(());
    }
    // Without a record nothing was made yet that a record would not tell of; so it is no cluster.
    let cluster = Record::load(layout).is_some_and(|record| matches!(record.kind, Kind::Cluster(_)));
    if cluster {
        for node in Node::first(Node::MOST) {
            node::kill(layout, node).await?;
        }
    }
    process::kill_and_wait(&process::ours(layout)).await?;
    if cluster {
        volumes::unmount_all(layout).await?;
        unmount_below(layout.dir()).await?;
        network::remove().await?;
        for node in Node::first(Node::MOST) {
            cgroup::remove(node).await?;
        }
        machine::restore(layout).await?;
    }
    std::fs::remove_dir_all(layout.dir())
        .with_context(|| format!("cannot remove {}", layout.dir().display()))?;
    // Another instance may still be there; then the root stays.
    let _ = std::fs::remove_dir(Layout::root());
    Ok(())
}

/// Unmounts everything below a directory, the deepest first. Lazily: a dead container may still hold a mount.
async fn unmount_below(dir: &Path) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("cannot read the list of mounts")?;
    let mut targets: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|target| Path::new(target).starts_with(dir))
        .collect();
    targets.sort_unstable();
    for target in targets.into_iter().rev() {
        run(&["umount", "--lazy", target]).await?;
    }
    Ok(())
}

/// Copies an instance's logs to a place that outlives it; returns where.
pub fn keep_logs(layout: &Layout) -> Option<PathBuf> {
    let kept = crate::cache::dir().join("last-failure");
    let _ = std::fs::remove_dir_all(&kept);
    std::fs::create_dir_all(&kept).ok()?;
    for entry in std::fs::read_dir(layout.logs()).ok()?.flatten() {
        std::fs::copy(entry.path(), kept.join(entry.file_name())).ok()?;
    }
    Some(kept)
}
