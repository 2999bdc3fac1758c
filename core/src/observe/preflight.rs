//! What became of a preflight pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::container::{Reported, etcd_status, is_young, last_words, reported, shortened};
use super::uid;
use crate::form::Digest;
use crate::names::PROOF_ANNOTATION;
use crate::observed::{Blocked, Exit, Preflight, PreflightState, Process};

/// Reasons of a container that ended, and not by its own fault.
const LOST: [&str; 2] = ["OOMKilled", "ContainerStatusUnknown"];

pub(super) fn of(pod: &Pod, now: Timestamp) -> Preflight {
    let annotations = pod.metadata.annotations.as_ref();
    Preflight {
        uid: uid(pod),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        created: pod.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        proof: annotations.and_then(|it| it.get(PROOF_ANNOTATION)).cloned().map(Digest),
        state: state(pod, now),
    }
}

fn state(pod: &Pod, now: Timestamp) -> PreflightState {
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Succeeded") => return PreflightState::Passed,
        Some("Failed") => return failed(pod),
        _ => {}
    }
    match reported(pod) {
        Reported::Is(Process::CannotStart(blocked)) => PreflightState::Blocked(blocked),
        Reported::Beginning if !is_young(pod, now) => PreflightState::Blocked(Blocked::SlowCreation),
        Reported::Is(_) | Reported::Beginning | Reported::Running => PreflightState::Pending,
    }
}

/// A node that ends a pod (full, drained, shut down, out of time) gives the pod a reason. etcd that exits gives it none.
fn failed(pod: &Pod) -> PreflightState {
    let status = pod.status.as_ref();
    let because = status.and_then(|status| status.reason.as_deref());
    let ended = etcd_status(pod).and_then(|etcd| etcd.state.as_ref()?.terminated.as_ref());
    let lost = ended.and_then(|ended| ended.reason.as_deref()).filter(|reason| LOST.contains(reason));
    match (ended, because.or(lost)) {
        (Some(ended), None) => {
            let message = ended.message.as_deref().map(last_words).unwrap_or_default();
            PreflightState::Failed(Exit { code: ended.exit_code, message })
        }
        (_, because) => {
            let message = status.and_then(|status| status.message.as_deref()).map(shortened);
            let texts = [because.map(str::to_owned), message].into_iter().flatten();
            let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
            let text = if text.is_empty() { "the node ended the pod".into() } else { text };
            PreflightState::Interrupted(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CREATED: &str = "2026-01-01T00:00:00Z";

    fn seen(status: Value, at: &str) -> Preflight {
        let pod = json!({
            "metadata": {
                "name": "kv-preflight-0", "uid": "u", "creationTimestamp": CREATED,
                "annotations": {PROOF_ANNOTATION: "p1"},
            },
            "spec": {"nodeName": "n1", "containers": []},
            "status": status,
        });
        of(&serde_json::from_value(pod).expect("it is a pod"), at.parse().expect("a time"))
    }

    fn state_of(status: Value) -> PreflightState {
        seen(status, CREATED).state
    }

    fn ended(phase: &str, terminated: Value) -> Value {
        let container = json!({
            "name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated},
        });
        json!({"phase": phase, "containerStatuses": [container]})
    }

    fn interrupted(text: &str) -> PreflightState {
        PreflightState::Interrupted(text.into())
    }

    #[test]
    fn what_it_tries_and_where_is_read_from_the_pod() {
        let Preflight { uid, terminating, node, proof, .. } = seen(json!({}), CREATED);
        let expected = ("u".to_owned(), false, Some("n1".into()), Some(Digest("p1".into())));
        assert_eq!((uid, terminating, node, proof), expected);
    }

    #[test]
    fn it_passes_only_when_the_kubelet_reports_that_all_of_it_succeeded() {
        assert_eq!(state_of(ended("Succeeded", json!({"exitCode": 0}))), PreflightState::Passed);
        assert_eq!(state_of(ended("Running", json!({"exitCode": 0}))), PreflightState::Pending);
        assert_eq!(state_of(json!({"phase": "Pending"})), PreflightState::Pending);
    }

    #[test]
    fn etcd_that_rejects_its_arguments_has_the_last_word() {
        let message =
            "flag provided but not defined: -x\nUsage:\n\n  etcd [flags]\n    Start an etcd server.\n";
        let exit = Exit { code: 2, message: "flag provided but not defined: -x".into() };
        let terminated = json!({"exitCode": 2, "reason": "Error", "message": message});
        assert_eq!(state_of(ended("Failed", terminated)), PreflightState::Failed(exit));
        let cannot_run = json!({"exitCode": 128, "reason": "StartError", "message": "exec format error"});
        let exit = Exit { code: 128, message: "exec format error".into() };
        assert_eq!(state_of(ended("Failed", cannot_run)), PreflightState::Failed(exit));
    }

    #[test]
    fn a_node_that_ends_the_pod_proves_nothing_about_etcd() {
        let full = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"});
        assert_eq!(state_of(full), interrupted("OutOfcpu: Node didn't have enough resource: cpu"));
        let mut evicted = ended("Failed", json!({"exitCode": 137, "reason": "Error"}));
        evicted["reason"] = "Evicted".into();
        assert_eq!(state_of(evicted), interrupted("Evicted"));
        for lost in LOST {
            let status = ended("Failed", json!({"exitCode": 137, "reason": lost}));
            assert_eq!(state_of(status), interrupted(lost));
        }
        assert_eq!(state_of(json!({"phase": "Failed"})), interrupted("the node ended the pod"));
    }

    #[test]
    fn what_blocks_it_is_what_would_block_a_member() {
        let waiting = json!({"phase": "Pending", "containerStatuses": [{
            "name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
        }]});
        let (reason, message) = ("ImagePullBackOff".into(), "no such image".into());
        let blocked = PreflightState::Blocked(Blocked::Container { reason, message });
        assert_eq!(state_of(waiting), blocked);
        let slow = seen(json!({"phase": "Pending"}), "2026-01-01T00:00:20Z").state;
        assert_eq!(slow, PreflightState::Blocked(Blocked::SlowCreation));
    }
}
