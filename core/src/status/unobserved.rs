//! The status of a cluster that the operator cannot observe. What was known stays, and `observedAt` shows its age. What only
//! an observation can confirm becomes Unknown.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{EtcdCluster, EtcdClusterStatus, Phase};
use crate::events::Event;
use crate::names::{condition, reason};

/// Why there is no observation.
pub(super) struct Unobserved {
    pub reason: &'static str,
    pub message: String,
    /// What it means for what is reported of members.
    pub members: &'static str,
}

impl Unobserved {
    /// What to write and report, or nothing if the status reports this already. It uses as little other code as possible,
    /// because that code might be what panicked.
    pub fn status(self, cluster: &EtcdCluster, now: Timestamp) -> Option<(EtcdClusterStatus, Event)> {
        let Self { reason, message, members } = self;
        let before = cluster.status.clone().unwrap_or_default();
        let facts = [
            (condition::READY, "Unknown", message.as_str()),
            (condition::AVAILABLE, "Unknown", members),
            (condition::RECONCILING, "True", message.as_str()),
            (condition::QUORUM_LOST, "Unknown", members),
        ];
        let kept = |type_: &str| before.conditions.iter().find(|it| it.type_ == type_);
        let conditions: Vec<Condition> = condition::ALL
            .iter()
            .filter_map(|type_| match facts.iter().find(|(changed, ..)| changed == type_) {
                Some((_, status, message)) => Some(Condition {
                    type_: (*type_).into(),
                    status: (*status).into(),
                    reason: reason.into(),
                    message: (*message).into(),
                    observed_generation: cluster.metadata.generation,
                    last_transition_time: kept(type_)
                        .filter(|it| it.status == *status)
                        .map_or(Time(now), |it| it.last_transition_time.clone()),
                }),
                None => kept(type_).cloned(),
            })
            .collect();
        if conditions.iter().all(|it| before.conditions.contains(it)) {
            return None;
        }
        let event = Event { warning: true, reason: reason.into(), action: "Reconcile", note: message };
        let phase = before.phase.or(Some(Phase::Creating));
        Some((EtcdClusterStatus { phase, conditions, last_update_time: Some(Time(now)), ..before }, event))
    }
}

/// After the API server denied the operator a read without which it decides nothing.
pub fn after_denied_read(
    cluster: &EtcdCluster,
    error: &str,
    now: Timestamp,
) -> Option<(EtcdClusterStatus, Event)> {
    let message = format!(
        "the operator has no right to read an object of this cluster and makes no changes: {error}; apply its manifests \
         again, or grant the right that config/rights lists"
    );
    let members =
        "the operator does not observe the members until it has the right to read all objects of the cluster";
    Unobserved { reason: reason::OBJECTS_NOT_READABLE, message, members }.status(cluster, now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DENIED: &str = "secrets \"kv-peer-ca\" is forbidden";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn cluster(status: serde_json::Value) -> EtcdCluster {
        let object = json!({"metadata": {"name": "kv", "generation": 1}, "spec": {}, "status": status});
        serde_json::from_value(object).expect("an EtcdCluster")
    }

    #[test]
    fn a_new_cluster_that_cannot_be_read_is_being_created_and_names_the_missing_right() {
        let mut new = cluster(json!(null));
        let (status, event) = after_denied_read(&new, DENIED, at(60)).expect("it is news");
        assert_eq!(status.phase, Some(Phase::Creating));
        let told: Vec<_> =
            status.conditions.iter().map(|it| (it.type_.as_str(), it.status.as_str())).collect();
        let expected = [
            ("Ready", "Unknown"),
            ("Available", "Unknown"),
            ("Reconciling", "True"),
            ("QuorumLost", "Unknown"),
        ];
        assert_eq!(told, expected);
        assert!(status.conditions.iter().all(|it| it.reason == "ObjectsNotReadable"), "{status:?}");
        let message = &status.conditions[0].message;
        assert!(message.contains(DENIED) && message.contains("config/rights"), "{message}");
        assert!(event.warning && event.note == *message);
        assert_eq!((status.observed_generation, &status.observed_at), (None, &None), "nothing was observed");

        new.status = Some(status);
        assert_eq!(after_denied_read(&new, DENIED, at(90)), None, "it is reported once");
    }

    #[test]
    fn a_cluster_that_runs_keeps_its_phase_and_members() {
        let running = cluster(json!({"phase": "Running", "readyReplicas": 3, "clusterID": "c1"}));
        let (status, _) = after_denied_read(&running, DENIED, at(60)).expect("it is news");
        assert_eq!((status.phase, status.ready_replicas), (Some(Phase::Running), Some(3)));
        assert_eq!(status.cluster_id.as_deref(), Some("c1"));
    }
}
