//! Where members run and could run, as far as the operator can read nodes: that takes an optional ClusterRole.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Seen;

/// What matters of the Kubernetes cluster's nodes to one EtcdCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// Those on which members run, and one more of each zone that accepts members, if there is one.
    pub by_name: BTreeMap<String, Node>,
    /// Users gave affinity or topology spread constraints of their own, so other rules than ours decide where members run.
    pub own_rules: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// None if it has no label that names one.
    pub zone: Option<String>,
    /// Neither a cordon nor a taint nor the node selector of the pods keeps members away. Free capacity is not known.
    pub accepts_members: bool,
}

/// What Kubernetes reports when a node is lost. Its objects carry the times, so that a restart of the operator forgets none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoss {
    pub node: String,
    pub since: Timestamp,
    pub sign: LossSign,
}

/// By what Kubernetes shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LossSign {
    /// There is no such node.
    NodeGone,
    NodeNotReady,
    /// The node controller has marked the pod as not ready, although its containers were ready.
    PodMarked,
    /// Nothing has confirmed the end of the pod in the time that it had.
    EndOverdue,
    /// All containers have ended, and nothing has created the pod again.
    PodEnded,
}

/// Why nothing is known of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unread {
    NotAsked,
    /// The operator has no right to read them.
    Forbidden,
    /// In the words of the client.
    Failed(String),
}

impl<T> Default for Seen<T, Unread> {
    fn default() -> Self {
        Self::Unknown(Unread::NotAsked)
    }
}
