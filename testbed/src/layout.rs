//! Names, addresses and places: one list, so that `down` finds everything that `up` made.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Every process we start carries this variable with its instance's directory as the value.
pub const MARK: &str = "TESTBED_DIR";
/// The bridge that joins the nodes; the machine itself has [`HOST_ADDRESS`] on it.
pub const BRIDGE: &str = "tb0";
/// The bridge that joins the pods of one node, in that node's network namespace.
pub const POD_BRIDGE: &str = "tbpod";
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 31, 0, 1);
pub const NODE_SUBNET: &str = "172.31.0.0/24";
pub const SERVICE_SUBNET: &str = "10.96.0.0/16";
pub const POD_SUBNET: &str = "10.244.0.0/16";
pub const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
pub const API_PORT: u16 = 6443;
pub const REGISTRY_PORT: u16 = 5000;
pub const CLUSTER_DOMAIN: &str = "cluster.local";
/// The name of the instance with nodes; there is at most one on a machine.
pub const CLUSTER_INSTANCE: &str = "cluster";

/// The directory of one instance, and what lies where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// The instance with nodes.
    pub fn cluster() -> Self {
        Self::instance(CLUSTER_INSTANCE)
    }

    pub fn instance(name: &str) -> Self {
        Self { dir: Self::root().join(name) }
    }

    /// The instance in a directory, for a process that was started with [`MARK`].
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Below which all instances of this machine live; `TESTBED_ROOT` moves it.
    pub fn root() -> PathBuf {
        std::env::var_os("TESTBED_ROOT").map_or_else(|| PathBuf::from("/var/tmp/etcd-testbed"), PathBuf::from)
    }

    /// All instances that have a directory, running or left over.
    pub fn all() -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(Self::root()) else { return Vec::new() };
        let finished = |layout: &Self| layout.dir.is_dir() && !layout.name().starts_with('.');
        let mut all: Vec<_> =
            entries.flatten().map(|entry| Self { dir: entry.path() }).filter(finished).collect();
        all.sort_by(|one, other| one.dir.cmp(&other.dir));
        all
    }

    /// Where this instance's directory is made before it appears under its name.
    pub fn unfinished(&self) -> Self {
        Self { dir: self.dir.with_file_name(format!(".{}.{}", self.name(), std::process::id())) }
    }

    pub fn name(&self) -> &str {
        self.dir.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn exists(&self) -> bool {
        self.dir.exists()
    }

    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    pub fn pids(&self) -> PathBuf {
        self.dir.join("pids")
    }

    pub fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// Disk images and mount points of persistent volumes, one directory per node.
    pub fn volumes(&self) -> PathBuf {
        self.dir.join("volumes")
    }

    /// Image archives that only this instance serves, beside those of the cache.
    pub fn images(&self) -> PathBuf {
        self.dir.join("images")
    }

    /// One file per fault that is in effect.
    pub fn faults(&self) -> PathBuf {
        self.dir.join("faults")
    }

    /// The administrator's.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    pub fn kubeconfig_of(&self, component: &str) -> PathBuf {
        self.dir.join(format!("{component}.kubeconfig"))
    }

    /// Names that cluster DNS denies while they stand here, one a line.
    pub fn denied_names(&self) -> PathBuf {
        self.dir.join("dns-denied")
    }

    pub fn node_home(&self, node: Node) -> PathBuf {
        self.dir.join("nodes").join(node.name())
    }
}

/// A node by number: 1 is the machine itself, each further one a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Node(u8);

impl Node {
    pub const MOST: u8 = 9;
    pub const MACHINE: Node = Node(1);

    pub fn first(count: u8) -> impl Iterator<Item = Node> {
        (1..=count).map(Node)
    }

    /// `n2` is node 2.
    pub fn by_name(name: &str) -> Option<Node> {
        let index = name.strip_prefix('n')?.parse().ok()?;
        (1..=Self::MOST).contains(&index).then_some(Node(index))
    }

    pub fn index(self) -> u8 {
        self.0
    }

    pub fn name(self) -> String {
        format!("n{}", self.0)
    }

    pub fn zone(self) -> String {
        format!("z{}", self.0)
    }

    pub fn address(self) -> Ipv4Addr {
        if self == Self::MACHINE { HOST_ADDRESS } else { Ipv4Addr::new(172, 31, 0, 10 + self.0) }
    }

    pub fn pod_subnet(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    /// The network namespace, which is also the name of the node's link on the bridge.
    pub fn network_namespace(self) -> Option<String> {
        (self != Self::MACHINE).then(|| format!("tb-n{}", self.0))
    }

    /// Kubelets remove pod cgroups they do not know, so each has its own root.
    pub fn cgroup(self) -> String {
        format!("testbed-n{}", self.0)
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "n{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_its_name_and_nothing_else_is() {
        assert_eq!(Node::by_name("n1"), Some(Node::MACHINE));
        assert_eq!(Node::by_name("n3").map(Node::index), Some(3));
        for wrong in ["", "n", "n0", "n10", "m1", "3", "n-1"] {
            assert_eq!(Node::by_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_two_nodes_share_an_address_or_a_pod_subnet() {
        let nodes: Vec<_> = Node::first(Node::MOST).collect();
        let addresses: std::collections::BTreeSet<_> = nodes.iter().map(|node| node.address()).collect();
        let subnets: std::collections::BTreeSet<_> = nodes.iter().map(|node| node.pod_subnet()).collect();
        assert_eq!((addresses.len(), subnets.len()), (nodes.len(), nodes.len()));
    }
}
