//! A node that loses power, and gets it back.

use super::{FaultError, Result};
use crate::cluster::Testbed;
use crate::layout::{Layout, Node};
use crate::node;
use crate::shell::run;

/// The node of that name, if this testbed has it.
pub(super) fn find(bed: &Testbed, name: &str) -> Result<Node> {
    let nodes = bed.nodes();
    let found = nodes.iter().copied().find(|node| node.name() == name);
    found.ok_or_else(|| FaultError::NoSuchNode {
        node: name.to_owned(),
        there: nodes.iter().map(|node| node.name()).collect(),
    })
}

/// The network goes first: nobody is to be told of the death of a connection that lived there.
pub(super) async fn begin(layout: &Layout, node: Node) -> Result<()> {
    set_link(node, "down").await?;
    node::kill(layout, node).await.map_err(FaultError::machine(format_args!("kill the processes on {node}")))
}

pub(super) async fn end(bed: &Testbed, node: Node) -> Result<()> {
    set_link(node, "up").await?;
    let restart = async || -> anyhow::Result<()> {
        if node::runs(bed.layout(), node) {
            return Ok(());
        }
        // An undo that was interrupted may have started some of it.
        node::kill(bed.layout(), node).await?;
        bed.restart_node(node).await
    };
    restart().await.map_err(FaultError::machine(format_args!("start {node}")))
}

/// At the bridge's end: taking the node's own end down would also take its routes.
async fn set_link(node: Node, state: &str) -> Result<()> {
    let Some(link) = node.network_namespace() else { return Ok(()) };
    run(&["ip", "link", "set", &link, state])
        .await
        .map(drop)
        .map_err(FaultError::machine(format_args!("set the link of {node} {state}")))
}
