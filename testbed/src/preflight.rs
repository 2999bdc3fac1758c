//! Whether this machine can carry a testbed: everything that is missing at once, each with the way out.

mod disk;
mod kernel;
mod network;
mod programs;
mod toolchain;

use std::path::PathBuf;

use crate::build;
use crate::layout::Layout;

/// What the machine is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Building the programs.
    Build,
    /// Building them, and running a cluster with nodes.
    Cluster,
    /// Building them, and running an API without nodes.
    ApiOnly,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("a cluster with nodes needs root: use sudo, or be content with an API without nodes")]
    NotRoot,
    #[error("Go is missing: install Go {needed} or newer from https://go.dev/dl")]
    GoMissing { needed: String },
    #[error(
        "Go {found} is too old: install Go {needed} or newer from https://go.dev/dl, \
         or have Go 1.21 or newer and let it fetch a newer one itself (GOTOOLCHAIN=auto)"
    )]
    GoTooOld { found: String, needed: String },
    #[error("{program} is missing: `make deps` installs it (on Debian, package {package})")]
    ProgramMissing { program: &'static str, package: &'static str },
    #[error(
        "{} needs libraries, so it cannot run alone in an image: \
         `make deps` installs a static one (on Debian, package busybox-static)", path.display()
    )]
    BusyboxNotStatic { path: PathBuf },
    #[error(
        "network plugins are missing ({}) from /usr/lib/cni and /opt/cni/bin: \
         `make deps` installs them (on Debian, package containernetworking-plugins)", missing.join(", ")
    )]
    NetworkPluginsMissing { missing: Vec<&'static str> },
    #[error(
        "no network namespace can be made ({reason}): \
         the kernel must have them (CONFIG_NET_NS), and a container must be privileged"
    )]
    NoNetworkNamespaces { reason: String },
    #[error(
        "no loop device can be had ({reason}): try `modprobe loop`, \
         and give a container the devices /dev/loop-control and /dev/loop*"
    )]
    NoLoopDevices { reason: String },
    #[error(
        "not enough disk: about {needed_gb} GB are needed for {}, and {free_gb} GB are free: \
         make room, or move some of it elsewhere ({})", places.join(", "), movers.join(", ")
    )]
    DiskShort { places: Vec<String>, movers: Vec<&'static str>, needed_gb: u64, free_gb: u64 },
    #[error(
        "cgroup controllers are missing below /sys/fs/cgroup: {}; enable them in the kernel and mount \
         either cgroup2 there or each of them alone (`mount -t cgroup -o NAME cgroup /sys/fs/cgroup/NAME`)",
        missing.join(", ")
    )]
    CgroupsMissing { missing: Vec<&'static str> },
    #[error(
        "another Kubernetes is here: iptables has its chains ({chain} and others) and no testbed runs; \
         stop it, and remove what it leaves behind with `kube-proxy --cleanup` or a reboot"
    )]
    OtherKubernetes { chain: String },
    #[error(
        "the testbed uses {range}, but this machine sends {route} to {device}: \
         use another machine, or remove that route if nobody needs it"
    )]
    RangeTaken { range: &'static str, route: String, device: String },
    #[error("cannot find out {what}: {reason}")]
    Unknown { what: &'static str, reason: String },
}

/// At least one.
#[derive(Debug, thiserror::Error)]
#[error("this machine cannot carry a testbed:{}", list(.0))]
pub struct Problems(pub Vec<Problem>);

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  - {problem}")).collect()
}

pub async fn check(need: Need) -> Result<(), Problems> {
    let search = programs::search_path();
    let is_root = rustix::process::geteuid().is_root();
    let mut problems = Vec::new();
    if need == Need::Cluster && !is_root {
        problems.push(Problem::NotRoot);
    }
    problems.extend(toolchain::problem(toolchain::installed(&search).await));
    problems.extend(programs::missing(need, &search));
    let is_built = build::base_is_built().await.unwrap_or(false);
    problems.extend(disk::short(disk::wishes(need, is_built).await));
    if need == Need::Cluster {
        problems.extend(cluster(is_root, &search).await);
    }
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// A program that is missing was told already, so nothing is asked of it here.
async fn cluster(is_root: bool, search: &[PathBuf]) -> Vec<Problem> {
    let has = |program| programs::find(program, search).is_some();
    let mut problems: Vec<_> = kernel::missing_controllers().into_iter().collect();
    if has("ip") {
        problems.extend(network::taken_ranges().await);
    }
    // The rest can be found out by root only.
    if !is_root {
        return problems;
    }
    if has("unshare") {
        problems.extend(kernel::no_namespaces().await);
    }
    if has("losetup") {
        problems.extend(kernel::no_loop_device().await);
    }
    if has("iptables-save") && !Layout::cluster().exists() {
        problems.extend(network::other_kubernetes().await);
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_told_one_a_line() {
        let text = Problems(vec![
            Problem::NotRoot,
            Problem::ProgramMissing { program: "conntrack", package: "conntrack" },
        ])
        .to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("  - a cluster with nodes needs root"), "{text}");
        assert_eq!(
            lines[2],
            "  - conntrack is missing: `make deps` installs it (on Debian, package conntrack)"
        );
    }

    #[test]
    fn every_problem_names_the_way_out() {
        let reason = || "no".to_owned();
        for (problem, way_out) in [
            (Problem::NotRoot, "sudo"),
            (Problem::GoMissing { needed: "1.26".into() }, "install Go 1.26"),
            (Problem::GoTooOld { found: "1.19".into(), needed: "1.26".into() }, "GOTOOLCHAIN=auto"),
            (Problem::BusyboxNotStatic { path: "/bin/busybox".into() }, "busybox-static"),
            (Problem::NetworkPluginsMissing { missing: vec!["bridge"] }, "containernetworking-plugins"),
            (Problem::NoNetworkNamespaces { reason: reason() }, "privileged"),
            (Problem::NoLoopDevices { reason: reason() }, "modprobe loop"),
            (Problem::CgroupsMissing { missing: vec!["cpu"] }, "mount -t cgroup"),
            (Problem::OtherKubernetes { chain: "KUBE-SERVICES".into() }, "kube-proxy --cleanup"),
        ] {
            let text = problem.to_string();
            assert!(text.contains(way_out), "{text}");
            assert!(!text.contains("  ") && !text.contains('\n'), "{text}");
        }
    }
}
