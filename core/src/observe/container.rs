//! What goes on in a pod's etcd container: what its process responded, else what its status reports.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::Value;

use super::Reply;
use crate::observed::{Blocked, Exit, Process};
use crate::version::Version;

const ETCD: &str = "etcd";
const BACK_OFF: &str = "CrashLoopBackOff";
/// Containers are created within this time, unless something is wrong.
const CREATED_WITHIN: SignedDuration = SignedDuration::from_secs(20);
/// Messages of Kubernetes can be long, and are shown in a status.
const LONGEST: usize = 300;

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Evidence that the container ran, although its status does not report it yet.
pub(super) struct Ran {
    pub responded: bool,
    pub is_member: bool,
}

/// What the status of a pod alone reports.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reported {
    /// The container runs: whether agent or etcd, only asking tells.
    Running,
    /// Nothing is wrong. The kubelet reports a second later that it runs.
    Beginning,
    Is(Process),
}

pub(super) fn process(pod: &Pod, reply: Option<&Reply>, ran: Ran, now: Timestamp) -> Process {
    match reply {
        Some(Reply::Etcd { .. } | Reply::Denied) => return Process::Started,
        Some(Reply::Agent { process, .. }) => return process.clone(),
        Some(Reply::Nobody(_)) | None => {}
    }
    match reported(pod) {
        Reported::Running => Process::Started,
        Reported::Is(Process::CannotStart(_)) if ran.responded => Process::Started,
        Reported::Is(process) => process,
        Reported::Beginning if ran.responded || ran.is_member => Process::Started,
        Reported::Beginning if is_young(pod, now) => Process::Beginning,
        Reported::Beginning => Process::CannotStart(Blocked::SlowCreation),
    }
}

pub(super) fn version(pod: &Pod) -> Option<Version> {
    let etcd = pod.spec.as_ref()?.containers.iter().find(|container| container.name == ETCD)?;
    Version::parse(etcd.image.as_deref()?.rsplit(':').next()?)
}

pub(super) fn reported(pod: &Pod) -> Reported {
    let Some(etcd) = etcd_status(pod) else {
        return before_start(pod);
    };
    let state = etcd.state.clone().unwrap_or_default();
    if state.running.is_some() {
        return Reported::Running;
    }
    let last = etcd.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    if let Some(ended) = state.terminated.as_ref().or(last) {
        let message = ended.message.as_deref().map(last_words).unwrap_or_default();
        let again = state.waiting.as_ref().is_some_and(|waiting| waiting.reason.as_deref() == Some(BACK_OFF));
        let exit = Exit { code: ended.exit_code, message };
        return Reported::Is(if again { Process::Failing(exit) } else { Process::Started });
    }
    if etcd.restart_count > 0 {
        return Reported::Is(Process::Started);
    }
    before_start(pod)
}

pub(super) fn is_young(pod: &Pod, now: Timestamp) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref();
    created.is_some_and(|created| now.duration_since(created.0) < CREATED_WITHIN)
}

/// Why no container of a pod has started, if something is wrong.
pub fn blocked(pod: &Pod, now: Timestamp) -> Option<Blocked> {
    match before_start(pod) {
        Reported::Is(Process::CannotStart(blocked)) => Some(blocked),
        Reported::Beginning if !is_young(pod, now) => Some(Blocked::SlowCreation),
        Reported::Is(_) | Reported::Beginning | Reported::Running => None,
    }
}

/// Of the etcd container.
pub fn image(pod: &Pod) -> Option<&str> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == ETCD)?.image.as_deref()
}

pub(super) fn etcd_status(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == ETCD)
}

/// The most specific of what the scheduler and the kubelet report.
fn before_start(pod: &Pod) -> Reported {
    let status = pod.status.clone().unwrap_or_default();
    let init = status.init_container_statuses.unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let waiting = init.iter().chain(&containers).filter_map(|it| it.state.as_ref()?.waiting.as_ref());
    let mut telling = waiting
        .filter(|it| !matches!(it.reason.as_deref(), None | Some("PodInitializing" | "ContainerCreating")));
    // Containers come after those that prepare them, and know more.
    if let Some(waiting) = telling.next_back() {
        let reason = waiting.reason.clone().unwrap_or_default();
        let message = waiting.message.as_deref().map(shortened).unwrap_or_default();
        return Reported::Is(Process::CannotStart(Blocked::Container { reason, message }));
    }
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled = conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    unscheduled.map_or(Reported::Beginning, |unscheduled| {
        let message = unscheduled.message.as_deref().map(shortened).unwrap_or_default();
        Reported::Is(Process::CannotStart(Blocked::Unschedulable(message)))
    })
}

/// Of a message of the agent, which is one line, or of the end of a log: the line in which etcd gives up, or the last one. If
/// etcd does not accept an argument, its usage follows what it has to say.
pub(super) fn last_words(message: &str) -> String {
    let before_usage = message.split_once("\nUsage:\n").map_or(message, |(words, _)| words);
    let lines = || before_usage.lines().map(str::trim).filter(|line| !line.is_empty());
    let gives_up = |line: &&str| {
        line.starts_with("panic:")
            || ["fatal", "panic"].iter().any(|it| line.contains(&format!("\"level\":\"{it}\"")))
    };
    shortened(&words_of(lines().rfind(gives_up).or(lines().next_back()).unwrap_or_default()))
}

/// etcd logs JSON with the time. What it has to say is the same after each crash, and so is the status then.
fn words_of(line: &str) -> String {
    let log: Value = serde_json::from_str(line).unwrap_or_default();
    let words: Vec<&str> = ["msg", "error"].iter().filter_map(|it| log.get(it)?.as_str()).collect();
    if words.is_empty() { line.into() } else { words.join(": ") }
}

pub(super) fn shortened(message: &str) -> String {
    let message = message.trim();
    match message.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &message[..end]),
        None => message.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        assert_eq!(reported(&unplaced), Reported::Is(Process::CannotStart(no_node)));
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        let (reason, message) = ("ImagePullBackOff".into(), "no such image".into());
        let expected = Reported::Is(Process::CannotStart(Blocked::Container { reason, message }));
        assert_eq!(reported(&etcd(waiting, json!({}), 0)), expected);
        let creating = json!({"waiting": {"reason": "PodInitializing"}});
        assert_eq!(reported(&etcd(creating, json!({}), 0)), Reported::Beginning);
        assert_eq!(reported(&pod(json!({}))), Reported::Beginning);
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
        assert_eq!(reported(&etcd(waiting, json!({}), 1)), Reported::Is(Process::Started));
    }

    #[test]
    fn what_ends_again_and_again_tells_its_last_words() {
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let ended = json!({"terminated": {"exitCode": 1, "message": "the volume belongs to another pod\n"}});
        let exit =
            |code, message: &str| Reported::Is(Process::Failing(Exit { code, message: message.into() }));
        let expected = exit(1, "the volume belongs to another pod");
        assert_eq!(reported(&etcd(waiting.clone(), ended.clone(), 3)), expected);
        assert_eq!(reported(&etcd(ended, json!({}), 0)), Reported::Is(Process::Started));
        let log = |lines: &[&str]| {
            etcd(waiting.clone(), json!({"terminated": {"exitCode": 1, "message": lines.join("\n")}}), 3)
        };
        let (first, fatal) =
            (r#"{"level":"info","msg":"starting"}"#, r#"{"level":"fatal","msg":"no such file"}"#);
        assert_eq!(reported(&log(&[first, fatal, "goroutine 1 [running]:", ""])), exit(1, "no such file"));
        let warning =
            r#"{"level":"warn","ts":"2026-01-01T00:00:00Z","msg":"failed to verify flags","error":"open x"}"#;
        assert_eq!(reported(&log(&[first, warning])), exit(1, "failed to verify flags: open x"));
        assert_eq!(reported(&log(&[first, "unknown flag: --x", ""])), exit(1, "unknown flag: --x"));
        let (unknown, usage) =
            ("flag provided but not defined: -x", "Usage:\n\n  etcd [flags]\n    Start an etcd server.");
        assert_eq!(reported(&log(&[first, unknown, usage, ""])), exit(1, unknown));
        let silent = json!({"terminated": {"exitCode": 2}});
        assert_eq!(reported(&etcd(waiting, silent, 1)), exit(2, ""));
    }

    #[test]
    fn a_container_that_runs_has_to_be_asked() {
        assert_eq!(reported(&etcd(json!({"running": {}}), json!({}), 0)), Reported::Running);
    }
}
