//! Probes by version: old members have no `/livez` and `/readyz`. While the agent waits it answers in etcd's place.

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::etcd_config::METRICS_PORT;
use crate::version::Version;

/// From here on `/readyz` also keeps learners out.
const HAS_READYZ: Version = Version::new(3, 5, 19);

/// Slow to judge: a member that replays its log or has lost its leader is better left alone.
pub fn liveness(version: &Version) -> Probe {
    let path = if *version >= HAS_READYZ { "/livez" } else { "/health?serializable=true&exclude=NOSPACE" };
    Probe { period_seconds: Some(10), timeout_seconds: Some(10), failure_threshold: Some(9), ..http(path) }
}

/// Whether clients may come. A rollout waits for it at every member, because the disruption budget counts ready pods.
pub fn readiness(version: &Version) -> Probe {
    let probe = if *version >= HAS_READYZ {
        Probe { period_seconds: Some(1), failure_threshold: Some(3), ..http("/readyz") }
    } else {
        // A learner refuses it, which its `/health` does not show. It starts a process, so it runs less often.
        let words = ["etcdctl", "endpoint", "health", "--command-timeout=2s"].map(String::from);
        let exec = Some(ExecAction { command: Some(words.to_vec()) });
        Probe { exec, period_seconds: Some(2), failure_threshold: Some(2), ..Probe::default() }
    };
    Probe { timeout_seconds: Some(3), ..probe }
}

fn http(path: &str) -> Probe {
    let get = HTTPGetAction {
        path: Some(path.into()),
        port: IntOrString::Int(i32::from(METRICS_PORT)),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(get), ..Probe::default() }
}
