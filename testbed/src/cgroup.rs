//! Control groups of the nodes, on machines with cgroup v1 (also beside v2) and on those with v2 alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::layout::Node;
use crate::process::until;

const ROOT: &str = "/sys/fs/cgroup";

/// The roots of all hierarchies: one per controller with v1, the one with v2.
pub fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    // Controllers mounted together appear under several names; one is enough.
    let found: BTreeSet<_> = entries
        .filter_map(|entry| entry.path().canonicalize().ok())
        .filter(|path| path.join("cgroup.procs").exists())
        .collect();
    found.into_iter().collect()
}

/// Makes a node's root in every hierarchy.
pub fn create(node: Node) -> Result<()> {
    for hierarchy in hierarchies() {
        let group = hierarchy.join(node.cgroup());
        std::fs::create_dir_all(&group).with_context(|| format!("cannot create {}", group.display()))?;
        // With v1 a new cpuset is empty, and nothing can run in it.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = std::fs::read_to_string(hierarchy.join(file))
                && !hierarchy.join("cgroup.controllers").exists()
            {
                std::fs::write(group.join(file), value.trim())
                    .with_context(|| format!("cannot set {file}"))?;
            }
        }
        if hierarchy == Path::new(ROOT) {
            delegate(&hierarchy)?;
            delegate(&group)?;
        }
    }
    Ok(())
}

/// With v2 a group hands each controller down explicitly.
fn delegate(group: &Path) -> Result<()> {
    let controllers = std::fs::read_to_string(group.join("cgroup.controllers"))?;
    let all: Vec<_> = controllers.split_whitespace().map(|name| format!("+{name}")).collect();
    std::fs::write(group.join("cgroup.subtree_control"), all.join(" "))
        .with_context(|| format!("cannot enable controllers below {}", group.display()))
}

/// All processes in a node's containers.
pub fn processes(node: Node) -> Vec<u32> {
    let found: BTreeSet<_> =
        hierarchies().iter().flat_map(|hierarchy| processes_below(&hierarchy.join(node.cgroup()))).collect();
    found.into_iter().collect()
}

/// The processes in one of a node's groups, and below it: a pod's (`pod` and its uid) or a container's (its id).
pub fn processes_in(node: Node, group: &str) -> Vec<u32> {
    // Each hierarchy has them all.
    let found = hierarchies().iter().find_map(|hierarchy| find(&hierarchy.join(node.cgroup()), group));
    found.map(|group| processes_below(&group)).unwrap_or_default()
}

fn find(root: &Path, name: &str) -> Option<PathBuf> {
    below(root).into_iter().find(|group| group.file_name().is_some_and(|file| file == name))
}

fn processes_below(group: &Path) -> Vec<u32> {
    let lists = below(group).into_iter().map(|group| group.join("cgroup.procs"));
    let text: String = lists.filter_map(|list| std::fs::read_to_string(list).ok()).collect();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Removes a node's groups. The kernel empties a group a moment after its last process ended.
pub async fn remove(node: Node) -> Result<()> {
    let what = || format!("control groups of {node} are still in use");
    until(Duration::from_secs(5), Duration::from_millis(50), what, async || {
        let mut left = false;
        for hierarchy in hierarchies() {
            let mut groups = below(&hierarchy.join(node.cgroup()));
            groups.reverse();
            for group in groups {
                left |= std::fs::remove_dir(&group).is_err() && group.exists();
            }
        }
        Ok(!left)
    })
    .await
}

/// A group and all groups below it, parents first.
fn below(group: &Path) -> Vec<PathBuf> {
    if !group.is_dir() {
        return Vec::new();
    }
    let mut found = vec![group.to_owned()];
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&entry.path()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_those_of_the_group_and_of_all_below_it() {
        let root = std::env::temp_dir().join(format!("tbtest-cgroup-{}", std::process::id()));
        let group = root.join("kubepods/burstable/pod7/11");
        std::fs::create_dir_all(group.join("nested")).expect("a directory");
        for (list, ids) in [
            ("", "1\n"),
            ("kubepods/burstable/pod7/11", "5\n6\n"),
            ("kubepods/burstable/pod7/11/nested", "7\n"),
        ] {
            std::fs::write(root.join(list).join("cgroup.procs"), ids).expect("a list of processes");
        }
        let found = [find(&root, "11"), find(&root, "12")];
        let ids = find(&root, "pod7").map(|pod| processes_below(&pod));
        std::fs::remove_dir_all(&root).expect("removed");
        assert_eq!(found, [Some(group), None]);
        assert_eq!(ids, Some(vec![5, 6, 7]));
    }
}
