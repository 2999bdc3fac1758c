//! What nodes want of the kernel: cgroups, network namespaces, loop devices.

use super::Problem;
use crate::shell::run;

/// The kubelet does not start without these.
const ON_V1: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];
const ON_V2: [&str; 3] = ["cpu", "cpuset", "memory"];

pub fn missing_controllers() -> Option<Problem> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let on_v2 = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    controllers_missing_from(&mounts, &on_v2)
}

fn controllers_missing_from(mounts: &str, on_v2: &str) -> Option<Problem> {
    let mounts: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    // As kubelet and containerd see it: v2 counts only if it is mounted at the very top.
    let is_v2 = mounts.iter().any(|fields| matches!(fields[..], [_, "/sys/fs/cgroup", "cgroup2", ..]));
    let missing: Vec<_> = if is_v2 {
        ON_V2.into_iter().filter(|name| !on_v2.split_whitespace().any(|there| there == *name)).collect()
    } else {
        let is_mounted = |name: &str| {
            mounts.iter().any(|fields| match fields[..] {
                [_, _, "cgroup", options, ..] => options.split(',').any(|option| option == name),
                _ => false,
            })
        };
        ON_V1.into_iter().filter(|name| !is_mounted(name)).collect()
    };
    (!missing.is_empty()).then_some(Problem::CgroupsMissing { missing })
}

pub async fn no_namespaces() -> Option<Problem> {
    let tried = run(&["unshare", "--net", "true"]).await;
    tried.err().map(|error| Problem::NoNetworkNamespaces { reason: format!("{error:#}") })
}

pub async fn no_loop_device() -> Option<Problem> {
    let tried = run(&["losetup", "--find"]).await;
    tried.err().map(|error| Problem::NoLoopDevices { reason: format!("{error:#}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "proc /proc proc rw 0 0\n\
        tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
        cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
    const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";

    fn missing(mounts: &str, on_v2: &str) -> Vec<&'static str> {
        match controllers_missing_from(mounts, on_v2) {
            Some(Problem::CgroupsMissing { missing }) => missing,
            _ => Vec::new(),
        }
    }

    #[test]
    fn either_hierarchy_will_do_when_it_is_complete() {
        assert_eq!(missing(HYBRID, ""), [""; 0]);
        assert_eq!(missing(V2, "cpuset cpu io memory hugetlb pids\n"), [""; 0]);
    }

    #[test]
    fn what_is_missing_is_told_by_name() {
        assert_eq!(missing("", ""), ON_V1);
        assert_eq!(missing(&HYBRID.replace("cpuset", "freezer"), ""), ["cpuset"]);
        assert_eq!(missing(&HYBRID.replace("cpu,cpuacct", "cpu"), ""), ["cpuacct"]);
        assert_eq!(missing(V2, "io pids"), ON_V2);
        assert_eq!(missing(V2, ""), ON_V2);
    }
}
