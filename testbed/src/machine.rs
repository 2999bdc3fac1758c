//! What the testbed changes on the machine itself, remembered so that it can be put back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::shell::run;

/// Set by us, or by kubelet and kube-proxy at their start.
const SYSCTLS: &[&str] = &[
    "net/ipv4/ip_forward",
    "net/bridge/bridge-nf-call-iptables",
    "net/ipv4/conf/all/route_localnet",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Made by kubelet, containerd and CNI plugins outside of our directory; none has a setting for it.
const DIRECTORIES: &[&str] = &[
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/run/containerd",
    "/run/netns",
    "/opt/cni",
    "/etc/cni",
    "/opt/containerd",
];

#[derive(Serialize, Deserialize)]
struct Before {
    sysctls: BTreeMap<String, String>,
    /// The mount that holds our directory, if it was private.
    private: Option<PathBuf>,
    /// Those of [`DIRECTORIES`] that were not there.
    absent: Vec<PathBuf>,
}

fn record(layout: &Layout) -> PathBuf {
    layout.dir().join("machine-before.json")
}

/// Remembers the machine as it is, then prepares it.
pub async fn prepare(layout: &Layout) -> Result<()> {
    let sysctls = SYSCTLS.iter().filter_map(|&key| Some((key.to_owned(), read_sysctl(key)?))).collect();
    let mount = mount_of(layout.dir()).await?;
    let private = mount.is_private.then(|| mount.point.clone());
    let absent = DIRECTORIES.iter().map(PathBuf::from).filter(|path| !path.exists()).collect();
    let before = Before { sysctls, private, absent };
    std::fs::write(record(layout), serde_json::to_vec_pretty(&before)?)
        .context("cannot save the state of the machine")?;

    // Volumes that the kubelet mounts must appear inside containers. What is mounted below a shared mount is shared, too, so
    // the mounts of others stay as they are.
    run(&["mount", "--make-shared", &mount.point.display().to_string()]).await?;
    write_sysctl("net/ipv4/ip_forward", "1")?;
    if read_sysctl("net/bridge/bridge-nf-call-iptables").is_some() {
        write_sysctl("net/bridge/bridge-nf-call-iptables", "1")?;
    }
    Ok(())
}

/// Puts the machine back as it was.
pub async fn restore(layout: &Layout) -> Result<()> {
    remove_traces(layout)?;
    let Ok(text) = std::fs::read(record(layout)) else { return Ok(()) };
    let before: Before =
        serde_json::from_slice(&text).context("cannot read the saved state of the machine")?;
    for (key, value) in &before.sysctls {
        if read_sysctl(key).as_ref() != Some(value) {
            write_sysctl(key, value)?;
        }
    }
    for path in &before.absent {
        if path == Path::new("/run/netns") {
            remove_namespace_directory(path).await?;
        } else if path.exists() {
            std::fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    if let Some(point) = &before.private {
        run(&["mount", "--make-private", &point.display().to_string()]).await?;
    }
    Ok(())
}

struct Mount {
    point: PathBuf,
    is_private: bool,
}

async fn mount_of(path: &Path) -> Result<Mount> {
    let path = path.display().to_string();
    let found = run(&["findmnt", "-nr", "-o", "PROPAGATION,TARGET", "--target", &path]).await?;
    let (propagation, point) =
        found.trim().split_once(' ').with_context(|| format!("findmnt does not know the mount of {path}"))?;
    Ok(Mount { point: PathBuf::from(point), is_private: propagation.contains("private") })
}

/// `ip netns add` makes this directory a mount point. Another's namespaces in it are left alone.
async fn remove_namespace_directory(path: &Path) -> Result<()> {
    let empty = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if empty {
        let mounted =
            std::fs::read_to_string("/proc/self/mountinfo")?.contains(&format!(" {} ", path.display()));
        if mounted {
            run(&["umount", &path.display().to_string()]).await?;
        }
        std::fs::remove_dir(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// What our daemons leave in directories that others may use too.
fn remove_traces(layout: &Layout) -> Result<()> {
    // The sockets of containerd's shims; each container's directory names its own.
    for node in crate::layout::Node::first(crate::layout::Node::MOST) {
        let tasks = layout.node_home(node).join("containerd-run/io.containerd.runtime.v2.task/k8s.io");
        for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
            if let Ok(address) = std::fs::read_to_string(task.path().join("address")) {
                remove_if_there(Path::new(address.trim().trim_start_matches("unix://")))?;
            }
        }
    }
    // Results of CNI plugins, named after the network and the sandbox.
    let results = Path::new("/var/lib/cni/results");
    for result in std::fs::read_dir(results).into_iter().flatten().flatten() {
        let name = result.file_name().to_string_lossy().into_owned();
        if let Some(sandbox) = name.strip_prefix("testbed-").and_then(|rest| rest.strip_suffix("-eth0")) {
            remove_if_there(&result.path())?;
            remove_if_there(&results.join(format!("cni-loopback-{sandbox}-lo")))?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn read_sysctl(key: &str) -> Option<String> {
    std::fs::read_to_string(Path::new("/proc/sys").join(key)).ok().map(|value| value.trim().to_owned())
}

fn write_sysctl(key: &str, value: &str) -> Result<()> {
    std::fs::write(Path::new("/proc/sys").join(key), value)
        .with_context(|| format!("cannot set {key} to {value}"))
}
