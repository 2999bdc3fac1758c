//! The right to read nodes is optional, and takes effect while the operator runs.

use std::time::Duration;

use etcd_operator::nodes::Nodes;
use etcd_operator_core::observed::{Seen, Unread};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::{as_operator, installed, kubectl, root};

/// Only there to end a wait.
const LIMIT: Duration = Duration::from_secs(180);

pub async fn nodes_are_read_as_soon_as_that_is_allowed() {
    let api = installed().await;
    let (nodes, filling) = Nodes::fill(&as_operator(&api).await);
    let filling = tokio::spawn(filling);
    nodes.answered().await;
    assert_eq!(nodes.read(), Seen::Unknown(Unread::Forbidden));

    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}, "annotations": {"note": "long"},
        },
        "spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "images": [{"names": ["etcd"]}]},
    }))
    .expect("a node");
    let all = Api::<Node>::all(api.client().await.expect("a client"));
    all.create(&PostParams::default(), &node).await.expect("it is new");
    kubectl(&api, &["apply", "--server-side", "-k", &root().join("config/nodes").display().to_string()])
        .await;
    let waiting = async {
        loop {
            match nodes.read() {
                Seen::Known(all) => break all,
                Seen::Unknown(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let read = tokio::time::timeout(LIMIT, waiting).await.expect("the right takes effect");
    let [node] = &read[..] else { panic!("there is one node: {read:?}") };
    assert_eq!(
        node.metadata
            .labels
            .as_ref()
            .and_then(|it| it.get("topology.kubernetes.io/zone"))
            .map(String::as_str),
        Some("a")
    );
    let spec = node.spec.as_ref().expect("a spec");
    assert_eq!((spec.unschedulable, &spec.pod_cidr), (Some(true), &None));
    let status = node.status.as_ref().expect("a status");
    let addresses = status.addresses.iter().flatten().map(|it| it.address.as_str());
    assert_eq!(addresses.collect::<Vec<_>>(), ["192.0.2.1"]);
    assert_eq!((&node.metadata.annotations, &status.images), (&None, &None), "what nobody needs is kept");
    filling.abort();
}
