//! What a pod's status tells of the etcd in it, before anybody is asked.

use std::net::IpAddr;

use etcd_operator_core::observed::{Blocked, Exit, Process};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use crate::reach::PodAddress;

const ETCD: &str = "etcd";
const BACK_OFF: &str = "CrashLoopBackOff";
/// Containers are created within this time, unless something stands in their way.
const YOUNG: SignedDuration = SignedDuration::from_secs(20);

/// What is known from the pod alone.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// The container runs: whether agent or etcd, only asking tells.
    Runs,
    /// Nothing stands in its way. The kubelet tells a second later that it runs.
    Begins,
    Is(Process),
}

pub fn told(pod: &Pod) -> Told {
    let Some(etcd) = etcd_status(pod) else {
        return before_start(pod);
    };
    let state = etcd.state.clone().unwrap_or_default();
    if state.running.is_some() {
        return Told::Runs;
    }
    let last = etcd.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    if let Some(ended) = state.terminated.as_ref().or(last) {
        let message = ended.message.as_deref().map(first_lines).unwrap_or_default();
        let again = state.waiting.as_ref().is_some_and(|waiting| waiting.reason.as_deref() == Some(BACK_OFF));
        let exit = Exit { code: ended.exit_code, message };
        return Told::Is(if again { Process::Failing(exit) } else { Process::Started });
    }
    if etcd.restart_count > 0 {
        return Told::Is(Process::Started);
    }
    before_start(pod)
}

pub fn is_young(pod: &Pod, now: Timestamp) -> bool {
    let made = pod.metadata.creation_timestamp.as_ref();
    made.is_some_and(|made| now.duration_since(made.0) < YOUNG)
}

/// Of the container that matters.
pub fn image(pod: &Pod) -> Option<&str> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == ETCD)?.image.as_deref()
}

/// Where to reach it, if it has an address.
pub fn address(pod: &Pod) -> Option<PodAddress> {
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    Some(PodAddress {
        namespace: pod.namespace().unwrap_or_default(),
        pod: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        address,
    })
}

fn etcd_status(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == ETCD)
}

/// The most specific of what the scheduler and the kubelet say.
fn before_start(pod: &Pod) -> Told {
    let status = pod.status.clone().unwrap_or_default();
    let init = status.init_container_statuses.unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let waiting = init.iter().chain(&containers).filter_map(|it| it.state.as_ref()?.waiting.as_ref());
    let mut telling = waiting
        .filter(|it| !matches!(it.reason.as_deref(), None | Some("PodInitializing" | "ContainerCreating")));
    // Containers come after those that prepare them, and know more.
    if let Some(waiting) = telling.next_back() {
        let reason = waiting.reason.clone().unwrap_or_default();
        let message = waiting.message.as_deref().map(first_lines).unwrap_or_default();
        return Told::Is(Process::CannotStart(Blocked::Container { reason, message }));
    }
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled = conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    unscheduled.map_or(Told::Begins, |unscheduled| {
        let message = unscheduled.message.as_deref().map(first_lines).unwrap_or_default();
        Told::Is(Process::CannotStart(Blocked::Unschedulable(message)))
    })
}

/// Messages of the kubelet can be long, and end up in a status.
fn first_lines(message: &str) -> String {
    const LONGEST: usize = 300;
    let message = message.trim();
    match message.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &message[..end]),
        None => message.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "kv-0"}, "status": status})).expect("it is a pod")
    }

    fn etcd(state: Value, last: Value, restarts: i32) -> Pod {
        pod(json!({"containerStatuses": [{
            "name": "etcd", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
            "state": state, "lastState": last,
        }]}))
    }

    #[test]
    fn a_pod_that_was_never_started_says_why() {
        let unplaced = pod(json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"},
        ]}));
        let no_node = Blocked::Unschedulable("0/3 nodes are available".into());
        assert_eq!(told(&unplaced), Told::Is(Process::CannotStart(no_node)));
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        let (reason, message) = ("ImagePullBackOff".into(), "no such image".into());
        let expected = Told::Is(Process::CannotStart(Blocked::Container { reason, message }));
        assert_eq!(told(&etcd(waiting, json!({}), 0)), expected);
        let creating = json!({"waiting": {"reason": "PodInitializing"}});
        assert_eq!(told(&etcd(creating, json!({}), 0)), Told::Begins);
        assert_eq!(told(&pod(json!({}))), Told::Begins);
    }

    #[test]
    fn a_pod_is_young_for_some_seconds() {
        let made = json!({"metadata": {"name": "kv-0", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        let pod: Pod = serde_json::from_value(made).expect("it is a pod");
        let at = |time: &str| time.parse::<Timestamp>().expect("a time");
        assert!(is_young(&pod, at("2026-01-01T00:00:19Z")));
        assert!(!is_young(&pod, at("2026-01-01T00:00:20Z")));
        assert!(!is_young(&Pod::default(), at("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn an_image_that_is_lost_later_does_not_undo_that_etcd_ran() {
        let waiting = json!({"waiting": {"reason": "ErrImagePull"}});
        assert_eq!(told(&etcd(waiting, json!({}), 1)), Told::Is(Process::Started));
    }

    #[test]
    fn what_ends_again_and_again_tells_its_last_words() {
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let ended = json!({"terminated": {"exitCode": 1, "message": "the volume belongs to another pod\n"}});
        let exit = |code, message: &str| Told::Is(Process::Failing(Exit { code, message: message.into() }));
        let expected = exit(1, "the volume belongs to another pod");
        assert_eq!(told(&etcd(waiting.clone(), ended.clone(), 3)), expected);
        assert_eq!(told(&etcd(ended, json!({}), 0)), Told::Is(Process::Started));
        let silent = json!({"terminated": {"exitCode": 2}});
        assert_eq!(told(&etcd(waiting, silent, 1)), exit(2, ""));
    }

    #[test]
    fn a_container_that_runs_has_to_be_asked() {
        assert_eq!(told(&etcd(json!({"running": {}}), json!({}), 0)), Told::Runs);
    }
}
