//! Whether Kubernetes reports the node of a pod as lost. What the pod itself shows needs no right to read nodes; where nodes can be
//! read, one that is ready disproves it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, PersistentVolumeClaim, Pod, PodCondition};
use kube::ResourceExt;

use super::nodes;
use crate::observed::{LossSign, NodeLoss, Seen, Unread};

/// On claims whose volume was created where the pod was scheduled.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Kubelets confirm the end of a pod a little later than its time to end is over.
const UNTIL_CONFIRMED: SignedDuration = SignedDuration::from_secs(10);

/// Where nodes can be read, or why not.
type Nodes = Seen<Vec<Arc<Node>>, Unread>;

/// What a readable list of nodes shows about one of them.
enum Reading {
    Unread,
    Gone,
    Ready,
    NotReady { since: Timestamp, cordoned: bool },
}

pub fn of(
    pod: &Pod,
    claim: Option<&PersistentVolumeClaim>,
    nodes: &Nodes,
    now: Timestamp,
) -> Option<NodeLoss> {
    let Some(node) = nodes::of_pod(pod) else { return of_volume(pod, claim?, nodes) };
    let signs = signs(pod).filter(|(_, since)| *since <= now);
    let of_node = match read(node, nodes) {
        Reading::Ready => return None,
        Reading::NotReady { since, .. } => Some((LossSign::NodeNotReady, since)),
        Reading::Gone | Reading::Unread => None,
    };
    let is_gone = matches!(read(node, nodes), Reading::Gone);
    let (sign, since) = signs.chain(of_node).min_by_key(|(_, since)| *since)?;
    let sign = if is_gone { LossSign::NodeGone } else { sign };
    Some(NodeLoss { node: node.into(), since, sign })
}

/// The pod was deleted or ended with its node, and the one that followed it finds no node because its volume is there. A node
/// that is cordoned is in maintenance: its users have drained it, and they bring it back.
fn of_volume(pod: &Pod, claim: &PersistentVolumeClaim, nodes: &Nodes) -> Option<NodeLoss> {
    let unscheduled = condition(pod, "PodScheduled").filter(|it| it.status == "False")?;
    // The scheduler's words differ from version to version, and both have these.
    let is_tied = unscheduled.message.as_deref().is_some_and(|it| it.contains("node affinity"));
    let node = claim.annotations().get(SELECTED_NODE).filter(|_| is_tied)?;
    let (sign, since) = match read(node, nodes) {
        Reading::Gone => (LossSign::NodeGone, changed(unscheduled)?),
        Reading::NotReady { since, cordoned: false } => (LossSign::NodeNotReady, since),
        Reading::NotReady { .. } | Reading::Ready | Reading::Unread => return None,
    };
    Some(NodeLoss { node: node.clone(), since, sign })
}

/// A kubelet reports the end of containers before that of the pod, so nobody else leaves these two as they are here.
fn signs(pod: &Pod) -> impl Iterator<Item = (LossSign, Timestamp)> {
    let ready = condition(pod, "Ready");
    let marked = ready.filter(|it| it.status == "False" && was_ready(pod)).and_then(changed);
    let has_ended = matches!(phase(pod), Some("Succeeded" | "Failed"));
    let ended = ready.filter(|_| has_ended).and_then(changed);
    // Without finalizers only a kubelet is missing.
    let is_free = pod.finalizers().is_empty();
    let overdue = pod.metadata.deletion_timestamp.as_ref().filter(|_| is_free);
    let overdue = overdue.and_then(|time| time.0.checked_add(UNTIL_CONFIRMED).ok());
    [
        marked.map(|since| (LossSign::PodMarked, since)),
        overdue.map(|since| (LossSign::EndOverdue, since)),
        ended.map(|since| (LossSign::PodEnded, since)),
    ]
    .into_iter()
    .flatten()
}

pub fn was_ready(pod: &Pod) -> bool {
    condition(pod, "ContainersReady").is_some_and(|it| it.status == "True")
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn read(name: &str, nodes: &Nodes) -> Reading {
    let Seen::Known(all) = nodes else { return Reading::Unread };
    let Some(node) = all.iter().find(|node| node.metadata.name.as_deref() == Some(name)) else {
        return Reading::Gone;
    };
    let conditions = node.status.iter().flat_map(|status| &status.conditions).flatten();
    let ready: Option<&NodeCondition> = conditions.into_iter().find(|it| it.type_ == "Ready");
    // One that has not reported yet is new.
    let since = ready.filter(|it| it.status != "True").and_then(|it| it.last_transition_time.as_ref());
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    since.map_or(Reading::Ready, |since| Reading::NotReady { since: since.0, cordoned })
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == type_)
}

fn changed(condition: &PodCondition) -> Option<Timestamp> {
    condition.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const AT: &str = "1970-01-01T00:01:00Z";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn pod(metadata: Value, node: Option<&str>, status: Value) -> Pod {
        let pod =
            json!({"metadata": metadata, "spec": {"containers": [], "nodeName": node}, "status": status});
        serde_json::from_value(pod).expect("a pod")
    }

    fn condition(type_: &str, status: &str) -> Value {
        json!({"type": type_, "status": status, "lastTransitionTime": AT})
    }

    /// As the node controller leaves it: the kubelet's last report, but for the condition Ready.
    fn marked() -> Pod {
        let conditions = [condition("ContainersReady", "True"), condition("Ready", "False")];
        pod(json!({}), Some("n1"), json!({"phase": "Running", "conditions": conditions}))
    }

    fn nodes(all: &[Value]) -> Nodes {
        Seen::Known(
            all.iter().map(|node| Arc::new(serde_json::from_value(node.clone()).expect("a node"))).collect(),
        )
    }

    fn node(ready: &str, cordoned: bool) -> Value {
        json!({
            "metadata": {"name": "n1"}, "spec": {"unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": AT}]},
        })
    }

    fn unread() -> Nodes {
        Seen::Unknown(Unread::Forbidden)
    }

    fn sign(pod: &Pod, nodes: &Nodes) -> Option<LossSign> {
        let loss = of(pod, None, nodes, at(1000))?;
        assert_eq!((loss.node.as_str(), loss.since.as_second() / 10), ("n1", 6));
        Some(loss.sign)
    }

    #[test]
    fn the_mark_of_the_node_controller_needs_no_right_to_read_nodes() {
        assert_eq!(sign(&marked(), &unread()), Some(LossSign::PodMarked));
        let conditions = [condition("ContainersReady", "False"), condition("Ready", "False")];
        let crashing = pod(json!({}), Some("n1"), json!({"phase": "Running", "conditions": conditions}));
        assert_eq!(sign(&crashing, &unread()), None, "a kubelet reports this of a container that crashes");
    }

    #[test]
    fn a_node_that_is_ready_disproves_every_sign() {
        assert_eq!(sign(&marked(), &nodes(&[node("True", false)])), None);
        assert_eq!(sign(&marked(), &nodes(&[node("Unknown", true)])), Some(LossSign::PodMarked));
        assert_eq!(sign(&marked(), &nodes(&[])), Some(LossSign::NodeGone));
        let without_sign = pod(json!({}), Some("n1"), json!({"phase": "Running"}));
        assert_eq!(sign(&without_sign, &nodes(&[node("False", false)])), Some(LossSign::NodeNotReady));
        assert_eq!(sign(&without_sign, &nodes(&[])), None, "nothing says since when");
        assert_eq!(sign(&without_sign, &unread()), None);
    }

    #[test]
    fn a_pod_is_overdue_when_nothing_confirms_its_end() {
        let deleted = |finalizers: Value| {
            let metadata = json!({"deletionTimestamp": AT, "finalizers": finalizers});
            pod(metadata, Some("n1"), json!({"phase": "Running"}))
        };
        let overdue = of(&deleted(json!([])), None, &unread(), at(70)).expect("its time is over");
        assert_eq!((overdue.sign, overdue.since), (LossSign::EndOverdue, at(70)));
        assert_eq!(of(&deleted(json!([])), None, &unread(), at(69)), None);
        assert_eq!(of(&deleted(json!(["a/b"])), None, &unread(), at(1000)), None, "something else keeps it");
    }

    #[test]
    fn a_pod_that_has_ended_counts_from_its_end() {
        for phase in ["Succeeded", "Failed"] {
            let status = json!({"phase": phase, "conditions": [condition("Ready", "False")]});
            assert_eq!(sign(&pod(json!({}), Some("n1"), status), &unread()), Some(LossSign::PodEnded));
        }
    }

    #[test]
    fn a_pod_that_finds_no_node_is_lost_with_the_node_of_its_volume() {
        let unscheduled = |message: &str| {
            let condition = json!({
                "type": "PodScheduled", "status": "False", "message": message, "lastTransitionTime": AT,
            });
            pod(json!({}), None, json!({"phase": "Pending", "conditions": [condition]}))
        };
        let claim = json!({"metadata": {"annotations": {SELECTED_NODE: "n1"}}});
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
        let sign = |message: &str, nodes: &Nodes| {
            of(&unscheduled(message), Some(&claim), nodes, at(1000)).map(|loss| loss.sign)
        };
        // Of Kubernetes before and after 1.34.
        for words in
            ["1 node(s) had volume node affinity conflict", "didn't match PersistentVolume's node affinity"]
        {
            assert_eq!(sign(words, &nodes(&[])), Some(LossSign::NodeGone), "{words}");
            assert_eq!(sign(words, &nodes(&[node("Unknown", false)])), Some(LossSign::NodeNotReady));
            assert_eq!(sign(words, &nodes(&[node("Unknown", true)])), None, "in maintenance");
            assert_eq!(sign(words, &nodes(&[node("True", false)])), None);
            assert_eq!(sign(words, &unread()), None);
        }
        assert_eq!(sign("3 Insufficient cpu", &nodes(&[])), None, "the volume can move");
    }
}
