//! The status, computed from what is known. What is not known is not claimed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{EtcdCluster, EtcdClusterStatus, Phase};
use crate::names::{condition, reason};

const NOT_IMPLEMENTED_YET: &str = "This version of the operator only accepts the object: it creates no members and \
    changes nothing in the cluster.";

/// The status to write, or nothing when the one that is there already says the same.
///
/// Conditions that others put beside ours do not count: we neither write nor compare them.
pub fn update(cluster: &EtcdCluster, now: Timestamp) -> Option<EtcdClusterStatus> {
    let next = compute(cluster, now);
    let current = cluster.status.as_ref();
    let says_the_same = current.is_some_and(|current| {
        let EtcdClusterStatus { phase, ready_replicas, observed_generation, conditions } = &next;
        current.phase == *phase
            && current.ready_replicas == *ready_replicas
            && current.observed_generation == *observed_generation
            && conditions.iter().all(|ours| current.conditions.contains(ours))
    });
    (!says_the_same).then_some(next)
}

fn compute(cluster: &EtcdCluster, now: Timestamp) -> EtcdClusterStatus {
    let condition = |type_: &str, value: &str| Condition {
        type_: type_.into(),
        status: value.into(),
        reason: reason::NOT_IMPLEMENTED_YET.into(),
        message: NOT_IMPLEMENTED_YET.into(),
        observed_generation: cluster.metadata.generation,
        last_transition_time: since(cluster, type_, value).unwrap_or(Time(now)),
    };
    EtcdClusterStatus {
        // The phase that tells people the same as Stalled tells programs: this will not go on by itself.
        phase: Some(Phase::Failed),
        ready_replicas: Some(0),
        observed_generation: cluster.metadata.generation,
        conditions: vec![condition(condition::READY, "False"), condition(condition::STALLED, "True")],
    }
}

/// Since when the condition has had this value, if it has it already.
fn since(cluster: &EtcdCluster, type_: &str, value: &str) -> Option<Time> {
    let conditions = &cluster.status.as_ref()?.conditions;
    let same = conditions.iter().find(|there| there.type_ == type_ && there.status == value)?;
    Some(same.last_transition_time.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::EtcdClusterSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time in range")
    }

    fn cluster() -> EtcdCluster {
        let mut cluster = EtcdCluster::new("kv", EtcdClusterSpec::default());
        cluster.metadata.generation = Some(1);
        cluster
    }

    fn settled() -> EtcdCluster {
        let mut cluster = cluster();
        cluster.status = update(&cluster, at(0));
        cluster
    }

    #[test]
    fn a_new_cluster_is_told_plainly_that_nothing_will_happen() {
        let message = "This version of the operator only accepts the object: it creates no members and changes \
            nothing in the cluster.";
        let expected = json!({
            "phase": "Failed",
            "readyReplicas": 0,
            "observedGeneration": 1,
            "conditions": [
                {
                    "type": "Ready", "status": "False", "reason": "NotImplementedYet", "message": message,
                    "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z",
                },
                {
                    "type": "Stalled", "status": "True", "reason": "NotImplementedYet", "message": message,
                    "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z",
                },
            ],
        });
        assert_eq!(serde_json::to_value(update(&cluster(), at(0))).expect("plain data"), expected);
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written_again() {
        assert_eq!(update(&settled(), at(60)), None);
    }

    #[test]
    fn an_edit_is_acknowledged_without_pretending_that_anything_turned() {
        let mut cluster = settled();
        cluster.metadata.generation = Some(2);
        let next = update(&cluster, at(60)).expect("the generation moved");
        assert_eq!(next.observed_generation, Some(2));
        for condition in &next.conditions {
            assert_eq!(condition.observed_generation, Some(2));
            assert_eq!(condition.last_transition_time, Time(at(0)), "{}", condition.type_);
        }
    }

    #[test]
    fn a_condition_that_turns_gets_a_new_time() {
        let mut cluster = settled();
        let status = cluster.status.as_mut().expect("settled");
        status.conditions[0].status = "True".into();
        let next = update(&cluster, at(60)).expect("somebody claimed that it is ready");
        assert_eq!(next.conditions[0].last_transition_time, Time(at(60)));
        assert_eq!(next.conditions[1].last_transition_time, Time(at(0)));
    }

    #[test]
    fn conditions_of_others_are_left_alone() {
        let mut cluster = settled();
        let status = cluster.status.as_mut().expect("settled");
        let mut foreign = status.conditions[0].clone();
        foreign.type_ = "example.org/Audited".into();
        status.conditions.push(foreign);
        assert_eq!(update(&cluster, at(60)), None);
    }
}
