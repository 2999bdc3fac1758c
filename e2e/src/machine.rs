//! The state of the machine that a testbed may change, as text that can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use testbed::layout::Layout;
use testbed::{process, shell};

/// Kernel settings that Kubernetes' components or we change.
const SETTINGS: [&str; 9] = [
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/conf/all/rp_filter",
    "net/bridge/bridge-nf-call-iptables",
    "net/netfilter/nf_conntrack_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
];
/// Directories outside our own where containerd, the kubelet and CNI plugins leave things.
const OUTSIDE: [&str; 4] = ["/var/lib/cni", "/run/containerd", "/var/lib/kubelet", "/run/netns"];

/// Lines by subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    subjects: BTreeMap<String, BTreeSet<String>>,
}

impl Snapshot {
    pub async fn take() -> Result<Self> {
        let mut snapshot = Self::default();
        snapshot.put("processes", marked_processes());
        snapshot.put("mounts", mounts(&std::fs::read_to_string("/proc/self/mountinfo")?));
        snapshot.put("loop devices", loop_devices());
        snapshot.put("cgroups", cgroups());
        snapshot.put("settings", settings());
        snapshot.put("testbed files", names_in(&Layout::root()));
        for directory in OUTSIDE {
            snapshot.put(directory, tree(Path::new(directory)));
        }
        snapshot.put("links", first_words(&shell::run(&["ip", "-brief", "link"]).await?));
        snapshot.put("addresses", trimmed_lines(&shell::run(&["ip", "-brief", "address"]).await?));
        for family in ["-4", "-6"] {
            let routes = shell::run(&["ip", family, "route", "show", "table", "all"]).await?;
            snapshot.put(&format!("routes {family}"), trimmed_lines(&routes));
        }
        for program in ["iptables-save", "ip6tables-save"] {
            snapshot.put(program, packet_filter(&shell::run(&[program]).await?));
        }
        if let Ok(rules) = shell::run(&["nft", "--stateless", "list", "ruleset"]).await {
            snapshot.put("nft", nft_rules(&rules));
        }
        Ok(snapshot)
    }

    fn put(&mut self, subject: &str, lines: BTreeSet<String>) {
        self.subjects.insert(subject.to_owned(), lines);
    }

    /// What is in `later` and not here, and the other way round, one line each; empty when they are equal.
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let none = BTreeSet::new();
        let subjects: BTreeSet<_> = self.subjects.keys().chain(later.subjects.keys()).collect();
        let mut changes = Vec::new();
        for subject in subjects {
            let (was, is) =
                (self.subjects.get(subject).unwrap_or(&none), later.subjects.get(subject).unwrap_or(&none));
            changes.extend(is.difference(was).map(|line| format!("{subject}: new: {line}")));
            changes.extend(was.difference(is).map(|line| format!("{subject}: missing: {line}")));
        }
        changes
    }

    pub fn lines(&self, subject: &str) -> usize {
        self.subjects.get(subject).map_or(0, BTreeSet::len)
    }
}

/// Of the instance with nodes only: API-only instances come and go beside it.
fn marked_processes() -> BTreeSet<String> {
    let command = |id: u32| std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    process::ours(&Layout::cluster())
        .into_iter()
        // Tests inherit nothing, but a helper that we run may carry the mark for its own short life.
        .filter(|&id| id != std::process::id())
        .map(|id| format!("{id} {}", command(id).replace('\0', " ")))
        .collect()
}

/// Mount point, root, type, source and propagation: without the numbers that the kernel hands out.
fn mounts(mountinfo: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        let (fields, file_system) = line.split_once(" - ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        let (root, point) = (fields.get(3)?, fields.get(4)?);
        let propagation: Vec<_> = fields
            .iter()
            .skip(6)
            .map(|optional| optional.split_once(':').map_or(*optional, |(kind, _)| kind))
            .collect();
        let file_system = file_system.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Some(format!("{point} {root} {file_system} {}", propagation.join(",")))
    };
    mountinfo.lines().filter_map(line).collect()
}

fn loop_devices() -> BTreeSet<String> {
    let backing = |name: String| {
        let file = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        Some(format!("{name} {}", file.trim()))
    };
    names_in(Path::new("/sys/block")).into_iter().filter_map(backing).collect()
}

/// In every hierarchy of cgroup v1, or in the one of v2.
fn cgroups() -> BTreeSet<String> {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = names_in(top).into_iter().map(|name| top.join(name)).chain([top.to_owned()]);
    hierarchies
        .flat_map(|hierarchy| {
            names_in(&hierarchy).into_iter().map(move |name| hierarchy.join(name).display().to_string())
        })
        .filter(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("testbed-")))
        .collect()
}

fn settings() -> BTreeSet<String> {
    let value = |name: &str| {
        std::fs::read_to_string(Path::new("/proc/sys").join(name))
            .map_or_else(|_| "absent".to_owned(), |value| value.trim().to_owned())
    };
    SETTINGS.iter().map(|name| format!("{name} = {}", value(name))).collect()
}

/// Rules, chains that are not built in, and policies that stop something. A table that was merely
/// looked at stays behind empty, which changes nothing.
fn packet_filter(saved: &str) -> BTreeSet<String> {
    let mut table = "";
    let mut lines = BTreeSet::new();
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':') {
            let chain = chain.split('[').next().unwrap_or_default().trim();
            if !chain.ends_with(" ACCEPT") {
                lines.insert(format!("{table}: chain {chain}"));
            }
        } else if line.starts_with('-') {
            lines.insert(format!("{table}: {line}"));
        }
    }
    lines
}

/// The same for nft: what is neither an empty table nor an empty base chain that accepts.
fn nft_rules(ruleset: &str) -> BTreeSet<String> {
    let (mut table, mut chain, mut lines) = (String::new(), String::new(), BTreeSet::new());
    for line in ruleset.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ") {
            (table, chain) = (name.trim_end_matches(" {").to_owned(), String::new());
        } else if let Some(name) = line.strip_prefix("chain ") {
            chain = name.trim_end_matches(" {").to_owned();
        } else if line.starts_with("type ") && line.ends_with("policy accept;") {
            chain.push_str(" (base)");
        } else if line == "}" && !chain.is_empty() {
            if !chain.ends_with(" (base)") {
                lines.insert(format!("{table}: chain {chain}"));
            }
            chain.clear();
        } else if !line.is_empty() && line != "}" && !line.starts_with('#') {
            lines.insert(format!("{table}: {chain}: {line}"));
        }
    }
    lines
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Every path below a directory, itself included; nothing when it does not exist.
fn tree(directory: &Path) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(path) = todo.pop() {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            todo.extend(names_in(&path).into_iter().map(|name| path.join(name)));
        }
        paths.insert(path.display().to_string());
    }
    paths
}

fn trimmed_lines(text: &str) -> BTreeSet<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn first_words(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(subject: &str, lines: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.put(subject, lines.iter().map(|line| (*line).to_owned()).collect());
        snapshot
    }

    #[test]
    fn what_is_left_and_what_is_missing_are_both_told() {
        let (before, after) = (snapshot("links", &["lo", "eth0"]), snapshot("links", &["lo", "tb0"]));
        assert_eq!(before.changes(&after), ["links: new: tb0", "links: missing: eth0"]);
        assert!(before.changes(&before).is_empty());
        assert_eq!(before.changes(&Snapshot::default()).len(), 2);
    }

    #[test]
    fn an_empty_table_is_nothing_but_a_chain_a_rule_or_a_policy_is() {
        let untouched = "*filter\n:INPUT ACCEPT [9:7]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n";
        assert!(packet_filter(untouched).is_empty());
        let ours = "*filter\n:INPUT ACCEPT [9:7]\n:FORWARD DROP [0:0]\n:TESTBED - [0:0]\n-A FORWARD -j TESTBED\nCOMMIT\n";
        assert_eq!(
            packet_filter(ours).into_iter().collect::<Vec<_>>(),
            ["filter: -A FORWARD -j TESTBED", "filter: chain FORWARD DROP", "filter: chain TESTBED -"]
        );
    }

    #[test]
    fn nft_is_read_the_same_way() {
        let untouched = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\t}\n}\n";
        assert!(nft_rules(untouched).is_empty());
        let ours = "table ip kube-proxy {\n\tset things {\n\t\ttype ipv4_addr\n\t}\n\tchain services {\n\t\tip daddr 1.2.3.4 drop\n\t}\n}\n";
        let lines = nft_rules(ours);
        assert!(lines.contains("ip kube-proxy: services: ip daddr 1.2.3.4 drop"), "{lines:?}");
        assert!(lines.contains("ip kube-proxy: chain services"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("set things")), "{lines:?}");
    }

    #[test]
    fn mounts_are_compared_without_the_kernels_numbers() {
        let one = "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n";
        let two = "31 1 254:0 / / rw,relatime shared:7 - ext4 /dev/vda rw\n";
        let private = "31 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
        assert_eq!(mounts(one), mounts(two));
        assert_ne!(mounts(one), mounts(private));
    }
}
