//! The status of each kind, computed from what is known. What is not known is not claimed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{
    BackupPhase, EtcdBackup, EtcdBackupStatus, EtcdCluster, EtcdClusterStatus, EtcdRestore,
    EtcdRestoreStatus, Phase, RestorePhase,
};
use crate::names::{condition, reason};
use crate::notices::{Kind, Notice, notices};
use crate::validate::{Problem, validate};

const NO_MEMBERS_YET: &str = "This version of the operator only accepts the object: it creates no members \
    and changes nothing in the cluster.";
const NO_BACKUPS_YET: &str = "This version of the operator only accepts the object: it makes no backups yet.";
const NO_RESTORES_YET: &str =
    "This version of the operator only accepts the object: it restores nothing yet.";

/// The types of conditions that are ours, in the order in which they are written. Those of others are neither
/// written nor compared.
const OURS: [&str; 4] = [condition::READY, condition::STALLED, condition::TLS_READY, condition::SPEC_WARNING];

/// The status to write, or nothing when the one that is there already says the same.
pub fn of_cluster(cluster: &EtcdCluster, now: Timestamp) -> Option<EtcdClusterStatus> {
    let current = cluster.status.clone().unwrap_or_default();
    let history = History { before: &current.conditions, generation: cluster.metadata.generation, now };
    let next = EtcdClusterStatus {
        // The phase that tells people the same as Stalled tells programs: this will not go on by itself.
        phase: Some(Phase::Failed),
        ready_replicas: Some(0),
        observed_generation: cluster.metadata.generation,
        conditions: history.conditions(facts(cluster)),
        ..EtcdClusterStatus::default()
    };
    let comparable = EtcdClusterStatus { conditions: ours(&current.conditions), ..current };
    (next != comparable).then_some(next)
}

/// Says that backups come later.
pub fn of_backup(backup: &EtcdBackup, now: Timestamp) -> Option<EtcdBackupStatus> {
    let current = backup.status.clone().unwrap_or_default();
    let history = History { before: &current.conditions, generation: backup.metadata.generation, now };
    let next = EtcdBackupStatus {
        phase: Some(BackupPhase::Failed),
        observed_generation: backup.metadata.generation,
        conditions: history.conditions(stalled(reason::NOT_IMPLEMENTED_YET, NO_BACKUPS_YET)),
        ..EtcdBackupStatus::default()
    };
    let comparable = EtcdBackupStatus { conditions: ours(&current.conditions), ..current };
    (next != comparable).then_some(next)
}

/// Says that restoring comes later.
pub fn of_restore(restore: &EtcdRestore, now: Timestamp) -> Option<EtcdRestoreStatus> {
    let current = restore.status.clone().unwrap_or_default();
    let history = History { before: &current.conditions, generation: restore.metadata.generation, now };
    let next = EtcdRestoreStatus {
        phase: Some(RestorePhase::Failed),
        observed_generation: restore.metadata.generation,
        conditions: history.conditions(stalled(reason::NOT_IMPLEMENTED_YET, NO_RESTORES_YET)),
        ..EtcdRestoreStatus::default()
    };
    let comparable = EtcdRestoreStatus { conditions: ours(&current.conditions), ..current };
    (next != comparable).then_some(next)
}

/// What a condition says, without when and about which generation.
struct Fact {
    type_: &'static str,
    value: &'static str,
    reason: &'static str,
    message: String,
}

fn facts(cluster: &EtcdCluster) -> Vec<Fact> {
    match validate(cluster) {
        Ok(intent) => {
            let mut facts = stalled(reason::NOT_IMPLEMENTED_YET, NO_MEMBERS_YET);
            facts.extend(noticed(&notices(cluster, &intent)));
            facts
        }
        Err(problems) => {
            let problems: Vec<_> = problems.iter().map(Problem::to_string).collect();
            stalled(reason::INVALID_SPEC, &problems.join("; "))
        }
    }
}

fn stalled(reason: &'static str, message: &str) -> Vec<Fact> {
    [(condition::READY, "False"), (condition::STALLED, "True")]
        .map(|(type_, value)| Fact { type_, value, reason, message: message.into() })
        .into()
}

/// TLS has a condition of its own, because programs ask for it; the rest is one warning for people.
fn noticed(notices: &[Notice]) -> Vec<Fact> {
    let fact = |type_, value, notices: &[&Notice]| {
        let reason = notices.first()?.kind.reason();
        let messages: Vec<_> = notices.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        Some(Fact { type_, value, reason, message: messages.join("; ") })
    };
    let (tls, rest): (Vec<_>, Vec<_>) =
        notices.iter().partition(|it: &&Notice| it.kind == Kind::TlsNotInEffect);
    [fact(condition::TLS_READY, "False", &tls), fact(condition::SPEC_WARNING, "True", &rest)]
        .into_iter()
        .flatten()
        .collect()
}

/// In the order in which we write them: the API server may keep another.
fn ours(conditions: &[Condition]) -> Vec<Condition> {
    OURS.iter().flat_map(|type_| conditions.iter().find(|it| it.type_ == *type_)).cloned().collect()
}

struct History<'a> {
    before: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
}

impl History<'_> {
    fn conditions(&self, facts: Vec<Fact>) -> Vec<Condition> {
        facts
            .into_iter()
            .map(|fact| Condition {
                last_transition_time: self.since(&fact).unwrap_or(Time(self.now)),
                type_: fact.type_.into(),
                status: fact.value.into(),
                reason: fact.reason.into(),
                message: fact.message,
                observed_generation: self.generation,
            })
            .collect()
    }

    /// Since when the condition has had this value, if it has it already.
    fn since(&self, fact: &Fact) -> Option<Time> {
        let same =
            self.before.iter().find(|there| there.type_ == fact.type_ && there.status == fact.value)?;
        Some(same.last_transition_time.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{EtcdBackupSpec, EtcdRestoreSpec};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time in range")
    }

    fn cluster(spec: serde_json::Value) -> EtcdCluster {
        let mut cluster = EtcdCluster::new("kv", serde_json::from_value(spec).expect("it is a spec"));
        cluster.metadata.generation = Some(1);
        cluster
    }

    fn plain() -> EtcdCluster {
        cluster(json!({"security": {"tls": {"enabled": false}}}))
    }

    fn settled() -> EtcdCluster {
        let mut cluster = plain();
        cluster.status = of_cluster(&cluster, at(0));
        cluster
    }

    fn expected(message: &str) -> serde_json::Value {
        let condition = |type_: &str, status: &str| {
            json!({
                "type": type_, "status": status, "reason": "NotImplementedYet", "message": message,
                "observedGeneration": 1, "lastTransitionTime": "1970-01-01T00:00:00Z",
            })
        };
        json!({
            "phase": "Failed",
            "observedGeneration": 1,
            "conditions": [condition("Ready", "False"), condition("Stalled", "True")],
        })
    }

    #[test]
    fn a_new_cluster_is_told_plainly_that_nothing_will_happen() {
        let mut expected = expected(
            "This version of the operator only accepts the object: it creates no members and changes \
             nothing in the cluster.",
        );
        expected["readyReplicas"] = json!(0);
        assert_eq!(serde_json::to_value(of_cluster(&plain(), at(0))).expect("plain data"), expected);
    }

    #[test]
    fn a_backup_and_a_restore_are_told_plainly_that_nothing_will_happen() {
        let spec: EtcdBackupSpec =
            serde_json::from_value(json!({"clusterName": "kv", "storageType": "Local"}))
                .expect("it is a spec");
        let mut backup = EtcdBackup::new("b", spec);
        backup.metadata.generation = Some(1);
        backup.status = of_backup(&backup, at(0));
        let message = "This version of the operator only accepts the object: it makes no backups yet.";
        assert_eq!(serde_json::to_value(&backup.status).expect("plain data"), expected(message));
        assert_eq!(of_backup(&backup, at(60)), None);

        let spec: EtcdRestoreSpec =
            serde_json::from_value(json!({"clusterName": "kv", "backupName": "b"})).expect("it is a spec");
        let mut restore = EtcdRestore::new("r", spec);
        restore.metadata.generation = Some(1);
        restore.status = of_restore(&restore, at(0));
        let message = "This version of the operator only accepts the object: it restores nothing yet.";
        assert_eq!(serde_json::to_value(&restore.status).expect("plain data"), expected(message));
        assert_eq!(of_restore(&restore, at(60)), None);
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written_again() {
        assert_eq!(of_cluster(&settled(), at(60)), None);
    }

    #[test]
    fn an_edit_is_acknowledged_without_pretending_that_anything_turned() {
        let mut cluster = settled();
        cluster.metadata.generation = Some(2);
        let next = of_cluster(&cluster, at(60)).expect("the generation moved");
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
        let next = of_cluster(&cluster, at(60)).expect("somebody claimed that it is ready");
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
        status.conditions.reverse();
        assert_eq!(of_cluster(&cluster, at(60)), None);
    }

    #[test]
    fn what_has_no_effect_or_may_surprise_is_said_and_taken_back_when_it_is_gone() {
        let mut cluster = cluster(json!({"size": 2}));
        cluster.status = of_cluster(&cluster, at(0));
        let conditions = &cluster.status.as_ref().expect("a status").conditions;
        let said: Vec<_> = conditions[2..].iter().map(|it| (it.type_.as_str(), it.status.as_str())).collect();
        assert_eq!(said, [("TLSReady", "False"), ("SpecWarning", "True")]);
        assert_eq!(
            (conditions[2].reason.as_str(), conditions[3].reason.as_str()),
            ("TLSNotInEffect", "EvenSize")
        );
        assert!(conditions[3].message.starts_with("spec.size: 2 members"), "{}", conditions[3].message);

        cluster.spec = plain().spec;
        let next = of_cluster(&cluster, at(60)).expect("there is less to say");
        assert_eq!(next.conditions.len(), 2);
    }

    #[test]
    fn a_spec_that_the_api_server_should_have_refused_is_told_every_problem() {
        let status = of_cluster(&cluster(json!({"size": 12, "version": "3.4.1"})), at(0)).expect("a status");
        let stalled = &status.conditions[1];
        assert_eq!((stalled.type_.as_str(), stalled.reason.as_str()), ("Stalled", "InvalidSpec"));
        assert!(stalled.message.contains("spec.size: ") && stalled.message.contains("spec.version: "));
    }
}
