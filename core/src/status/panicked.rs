//! The status after the operator's worker for a cluster panicked.

use jiff::Timestamp;

use super::unobserved::Unobserved;
use crate::api::{EtcdCluster, EtcdClusterStatus};
use crate::events::Event;
use crate::names::reason;

/// Bytes of a panic's own message, which can hold a whole debug representation: an event's note takes 1024 in all.
const LONGEST_MESSAGE: usize = 700;

/// What to write and report, or nothing if the status reports this panic already.
pub fn after_panic(
    cluster: &EtcdCluster,
    message: &str,
    now: Timestamp,
) -> Option<(EtcdClusterStatus, Event)> {
    let panic = message.char_indices().take_while(|(at, _)| *at < LONGEST_MESSAGE);
    let panic: String = panic.map(|(_, character)| character).collect();
    let message = format!(
        "the operator's worker for this cluster panicked and restarts with backoff: {panic}; other clusters are not \
         affected; please report this with the operator's log"
    );
    let members = "the operator does not observe the members until its worker has restarted";
    Unobserved { reason: reason::WORKER_PANICKED, message, members }.status(cluster, now)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn running() -> EtcdCluster {
        let condition = |type_: &str, status: &str, reason: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": "",
                   "lastTransitionTime": "1970-01-01T00:00:10Z", "observedGeneration": 1})
        };
        serde_json::from_value(json!({
            "metadata": {"name": "kv", "generation": 2},
            "spec": {},
            "status": {
                "phase": "Running", "readyReplicas": 3, "observedGeneration": 1, "clusterID": "c1",
                "observedAt": "1970-01-01T00:00:10Z",
                "conditions": [
                    condition("Ready", "True", "AllMembersServe"), condition("Available", "True", "QuorumServes"),
                    condition("Reconciling", "False", "NothingToDo"), condition("Stalled", "False", "NothingRefused"),
                    condition("QuorumLost", "False", "QuorumServes"), condition("SpecWarning", "True", "EvenSize"),
                ],
            },
        }))
        .expect("an EtcdCluster")
    }

    #[test]
    fn what_was_known_stays_and_nothing_is_claimed_to_be_so_still() {
        let (status, event) = after_panic(&running(), "index out of bounds", at(60)).expect("it is news");
        let told: Vec<_> = status
            .conditions
            .iter()
            .map(|it| (it.type_.as_str(), it.status.as_str(), it.reason.as_str()))
            .collect();
        let panicked = reason::WORKER_PANICKED;
        assert_eq!(
            told,
            [
                ("Ready", "Unknown", panicked),
                ("Available", "Unknown", panicked),
                ("Reconciling", "True", panicked),
                ("Stalled", "False", "NothingRefused"),
                ("QuorumLost", "Unknown", panicked),
                ("SpecWarning", "True", "EvenSize"),
            ]
        );
        assert!(status.conditions[0].message.contains("index out of bounds"), "{status:?}");
        assert_eq!(status.conditions[0].last_transition_time, Time(at(60)));
        assert_eq!(status.conditions[3].last_transition_time, Time(at(10)));
        // Nothing was observed, so neither the spec nor the members count as observed.
        assert_eq!((status.observed_generation, status.observed_at), (Some(1), Some(Time(at(10)))));
        assert_eq!((status.cluster_id.as_deref(), status.ready_replicas), (Some("c1"), Some(3)));
        assert!(event.warning && event.reason == panicked && event.note == status.conditions[0].message);
    }

    #[test]
    fn the_same_panic_is_reported_once() {
        let mut cluster = running();
        let (first, _) = after_panic(&cluster, "a", at(60)).expect("it is news");
        cluster.status = Some(first.clone());
        assert_eq!(after_panic(&cluster, "a", at(90)), None);
        let (other, _) = after_panic(&cluster, "b", at(90)).expect("another panic is news");
        assert_eq!(other.conditions[0].last_transition_time, first.conditions[0].last_transition_time);
    }

    #[test]
    fn a_cluster_without_a_status_gets_one_and_a_long_message_is_cut_between_characters() {
        let mut cluster = running();
        cluster.status = None;
        let (status, event) = after_panic(&cluster, &"ü".repeat(3000), at(60)).expect("it is news");
        assert_eq!(status.conditions.len(), 4);
        // The API server takes notes of up to 1024 bytes, and messages of conditions of up to 32768.
        assert!(event.note.len() <= 1024, "{}", event.note.len());
    }
}
