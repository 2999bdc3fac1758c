//! The nodes of the Kubernetes cluster, if the operator is allowed to read them: that takes an optional ClusterRole.
//!
//! A change of a node wakes no cluster. There are many of both, nodes report their state all the time, and what matters of a lost
//! node wakes the clusters that have pods there: Kubernetes marks the pods.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::observed::{Seen, Unread};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use kube::api::ListParams;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::caches::{Filling, MENDED_AFTER, Reopen, trouble_with};
use crate::client::{is_forbidden, watch_config};

/// Until the operator tries again to read what it was not allowed to read.
const NEXT_ATTEMPT: Duration = Duration::from_secs(30);
/// Nodes are large until they are read: they list every image that they have.
const PAGE: u32 = 100;

/// Whether they can be read, and if not, why.
type Access = Seen<(), Unread>;

#[derive(Clone)]
pub struct Nodes {
    store: Store<Node>,
    access: watch::Receiver<Access>,
}

impl Nodes {
    pub fn fill(client: &Client) -> (Self, Filling) {
        let (store, writer) = reflector::store();
        let (sender, access) = watch::channel(Access::default());
        let nodes = Api::all(client.clone());
        (Self { store, access }, keep(nodes, writer, sender).boxed())
    }

    /// Completes when it is known whether nodes can be read. That is so also without the right to.
    pub async fn answered(&self) {
        // The sender lives as long as what fills all caches.
        let _ = self.access.clone().wait_for(|access| *access != Access::default()).await;
    }

    pub fn read(&self) -> Seen<Vec<Arc<Node>>, Unread> {
        match &*self.access.borrow() {
            Seen::Known(()) => Seen::Known(self.store.state()),
            Seen::Unknown(why) => Seen::Unknown(why.clone()),
        }
    }
}

/// A right that is granted or withdrawn later takes effect without a restart.
async fn keep(nodes: Api<Node>, mut writer: Writer<Node>, access: watch::Sender<Access>) {
    loop {
        // A watch that is forbidden makes its library log a warning at each attempt; this request does not.
        let answer = nodes.list_metadata(&ListParams::default().limit(1)).await;
        if !answer.is_err_and(|error| is_forbidden(&error)) {
            follow(&nodes, &mut writer, &access).await;
        }
        note(&access, Seen::Unknown(Unread::Forbidden));
        tokio::time::sleep(NEXT_ATTEMPT).await;
    }
}

/// Until that is forbidden. What a broken watch has reported before stays known, as in every cache.
async fn follow(nodes: &Api<Node>, writer: &mut Writer<Node>, access: &watch::Sender<Access>) {
    let backoff = ResetTimerBackoff::new(Reopen::default(), MENDED_AFTER);
    let events = watcher(nodes.clone(), watch_config().page_size(PAGE)).backoff(backoff).modify(reduce);
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                writer.apply_watcher_event(&event);
                if matches!(event, Event::InitDone) {
                    note(access, Seen::Known(()));
                }
            }
            Err(error) if forbids(&error) => return,
            Err(error) => {
                let known = *access.borrow() == Seen::Known(());
                if let Some(error) = trouble_with(&error).filter(|_| !known) {
                    note(access, Seen::Unknown(Unread::Failed(error)));
                }
            }
        }
    }
}

fn note(access: &watch::Sender<Access>, now: Access) {
    let news = access.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
    match now {
        _ if !news => {}
        Seen::Known(()) => tracing::info!("reading nodes"),
        Seen::Unknown(Unread::Failed(error)) => tracing::warn!(error, "cannot read nodes, retrying"),
        Seen::Unknown(Unread::Forbidden | Unread::NotAsked) => {
            tracing::info!("not reading nodes: the optional right in config/nodes is not granted");
        }
    }
}

/// Only what decides whether members can run there is kept, whether the node is lost, and by which addresses clients reach it.
fn reduce(node: &mut Node) {
    let spec = node.spec.take().unwrap_or_default();
    let NodeSpec { unschedulable, taints, .. } = spec;
    node.spec = Some(NodeSpec { unschedulable, taints, ..NodeSpec::default() });
    let NodeStatus { addresses, conditions, .. } = node.status.take().unwrap_or_default();
    let is_ready = |it: &NodeCondition| it.type_ == "Ready";
    let conditions = conditions.map(|all| all.into_iter().filter(is_ready).collect());
    node.status = Some(NodeStatus { addresses, conditions, ..NodeStatus::default() });
    (node.metadata.annotations, node.metadata.managed_fields) = (None, None);
}

fn forbids(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => is_forbidden(error),
        watcher::Error::WatchError(status) => status.code == 403,
        watcher::Error::NoResourceVersion => false,
    }
}
