//! Work done as if on another node.

use std::fs::File;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use testbed::layout::Node;

/// Runs a future with the network of a node: what it connects to is what that node reaches.
///
/// A network namespace belongs to a thread, so the work gets a thread with a runtime of its own.
pub async fn in_network_of<T, F>(node: &str, work: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let node = Node::by_name(node).with_context(|| format!("no node is called {node}"))?;
    let run = move || {
        if let Some(namespace) = node.network_namespace() {
            let file = File::open(format!("/run/netns/{namespace}"))
                .with_context(|| format!("cannot open the network of {node}"))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot enter the network of {node}"))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(work()))
    };
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || sender.send(run()));
    receiver.await.context("the work on the node panicked")?
}
