//! Cuts: packets are dropped by rules inside the network namespace of what is cut off.
//!
//! Every cut has a chain of its own, named after its id, so that cuts of the same pod or node add up and go one by one.

use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Direction, FaultError, Result, container, crash};
use crate::cluster::Testbed;
use crate::layout::Node;
use crate::packet_filter::Table;
use crate::process;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cut {
    network: Network,
    dropped: Dropped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Dropped {
    All(Direction),
    /// What is sent to that port, but for the word that a connection has ended. Both ends hear that of open ones: where
    /// packets were only dropped, etcd still held its streams for open a minute and a half later.
    Calls {
        to: Ipv4Addr,
        port: u16,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Network {
    /// The namespace by the kernel's name for it, which goes with the pod's last process.
    Pod {
        namespace: PathBuf,
        gateway: String,
    },
    Node {
        namespace: String,
    },
}

pub(super) async fn of_pod(bed: &Testbed, namespace: &str, pod: &str, direction: Direction) -> Result<Cut> {
    let network = network_of_pod(bed, namespace, pod).await?;
    Ok(Cut { network, dropped: Dropped::All(direction) })
}

pub(super) async fn of_calls(bed: &Testbed, namespace: &str, pod: &str, to: &str, port: u16) -> Result<Cut> {
    let network = network_of_pod(bed, namespace, pod).await?;
    let called = container::read_pod(bed, namespace, to).await?;
    let address = called.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
    let to = address.ok_or_else(|| FaultError::NoAddress { pod: container::title(&called) })?;
    Ok(Cut { network, dropped: Dropped::Calls { to, port } })
}

async fn network_of_pod(bed: &Testbed, namespace: &str, pod: &str) -> Result<Network> {
    let found = container::read_pod(bed, namespace, pod).await?;
    let node = container::node_of(bed, &found)?;
    let pod = container::title(&found);
    if found.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
        return Err(FaultError::SharesNodeNetwork { pod, node: node.name() });
    }
    // A process that is just being started may not have left the node's network yet.
    let of_the_node = [network_of(std::process::id()), network_of_node(node)];
    let networks = container::processes_of_pod(node, &found).into_iter().map(network_of);
    let own = networks.flatten().find(|network| !of_the_node.contains(&Some(network.clone())));
    let namespace = own.ok_or(FaultError::PodNotRunning { pod })?;
    Ok(Network::Pod { namespace, gateway: gateway(node) })
}

pub(super) fn of_node(bed: &Testbed, name: &str, direction: Direction) -> Result<Cut> {
    let node = crash::find(bed, name)?;
    match node.network_namespace() {
        Some(namespace) => Ok(Cut { network: Network::Node { namespace }, dropped: Dropped::All(direction) }),
        None => Err(FaultError::CarriesControlPlane { node: node.name() }),
    }
}

/// The first address of the pods' subnet is the bridge's: from there the kubelet probes.
fn gateway(node: Node) -> String {
    format!("10.244.{}.1", node.index())
}

/// The kernel's name of the network namespace a process lives in.
fn network_of(id: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{id}/ns/net")).ok()
}

fn network_of_node(node: Node) -> Option<PathBuf> {
    let file = std::fs::metadata(Path::new("/run/netns").join(node.network_namespace()?)).ok()?;
    Some(PathBuf::from(format!("net:[{}]", file.ino())))
}

impl Cut {
    pub async fn begin(&self, id: &str) -> Result<()> {
        let begin = async || -> anyhow::Result<()> {
            let Some(enter) = self.network.enter() else { anyhow::bail!("the pod does not exist any more") };
            let table = self.network.filter(&enter);
            table.remove(|found| found == chain(id)).await?;
            table.restore(&self.rules(&chain(id))).await
        };
        begin().await.map_err(FaultError::machine("drop packets"))
    }

    pub async fn end(&self, id: &str) -> Result<()> {
        let Some(enter) = self.network.enter() else { return Ok(()) };
        let removed = self.network.filter(&enter).remove(|found| found == chain(id)).await;
        removed.map_err(FaultError::machine("stop dropping packets"))
    }

    /// They look at single packets, not at connections, so an open connection is cut as well.
    fn rules(&self, chain: &str) -> String {
        let (inward, outward) = self.network.paths();
        let paths = match &self.dropped {
            Dropped::All(Direction::In) => vec![inward],
            Dropped::All(Direction::Out) => vec![outward],
            Dropped::All(Direction::Both) => vec![inward, outward],
            Dropped::Calls { to, port } => {
                vec![format!("OUTPUT -d {to}/32 -p tcp --dport {port} ! --tcp-flags RST RST")]
            }
        };
        let verdict = match &self.dropped {
            Dropped::All(_) => "-j DROP",
            Dropped::Calls { .. } => "-p tcp -j REJECT --reject-with tcp-reset",
        };
        let jumps: String = paths.iter().map(|path| format!("-I {path} -j {chain}\n")).collect();
        format!("*{}\n:{chain} - [0:0]\n-A {chain} {verdict}\n{jumps}COMMIT\n", self.network.table())
    }
}

impl Network {
    /// A node forwards the packets of its pods, and rewrites those to services: `mangle` comes before and after both.
    fn table(&self) -> &'static str {
        match self {
            Self::Pod { .. } => "filter",
            Self::Node { .. } => "mangle",
        }
    }

    fn filter<'a>(&self, enter: &'a [String]) -> Table<'a> {
        Table { enter, family: "iptables", name: self.table() }
    }

    /// Where packets come in and go out, without those that no cut concerns.
    fn paths(&self) -> (String, String) {
        match self {
            Self::Pod { gateway, .. } => {
                (format!("INPUT ! -s {gateway}/32 ! -i lo"), format!("OUTPUT ! -d {gateway}/32 ! -o lo"))
            }
            Self::Node { .. } => ("PREROUTING -i eth0".into(), "POSTROUTING -o eth0".into()),
        }
    }

    /// The words in front of a command that take it there; none if a pod's network is gone.
    fn enter(&self) -> Option<Vec<String>> {
        let file = match self {
            Self::Pod { namespace, .. } => {
                let lives_there = |id: &u32| network_of(*id).is_some_and(|network| network == *namespace);
                format!("/proc/{}/ns/net", process::all_ids().find(lives_there)?)
            }
            Self::Node { namespace } => format!("/run/netns/{namespace}"),
        };
        Some(vec!["nsenter".into(), format!("--net={file}")])
    }
}

fn chain(id: &str) -> String {
    format!("TESTBED-{id}")
}

#[cfg(test)]
mod tests;
