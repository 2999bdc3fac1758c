use serde_json::{Value, json};

use super::*;
use crate::api::{EtcdBackup, EtcdClusterStatus, Phase};
use crate::names::condition;

#[test]
fn names_and_labels_follow_the_conventions_of_prometheus() {
    for metric in ALL {
        let Metric { name, kind, scope, labels, help } = metric;
        let is_word = |text: &str| text.chars().all(|it| it.is_ascii_lowercase() || it == '_');
        assert!(is_word(name) && labels.iter().all(|it| is_word(it)), "{name}");
        let prefix = match scope {
            Scope::Cluster => "etcd_operator_cluster_",
            Scope::Backup => "etcd_operator_backup_",
            Scope::Process => "",
        };
        assert!(name.starts_with(prefix), "{name}");
        assert!(name.starts_with("etcd_operator_") || name.starts_with("process_"), "{name}");
        assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
        assert!(*kind != Kind::Histogram || name.ends_with("_duration_seconds"), "{name}");
        for wrong in ["milli", "_ms", "_percent", "_kb", "_count", "_sum", "_bucket"] {
            assert!(!name.contains(wrong), "{name}");
        }
        assert!(labels.len() <= 2 && !labels.iter().any(|it| scope.labels().contains(it)), "{name}");
        assert!(!help.is_empty() && !help.ends_with('.'), "{name}: the encoder adds the period");
        assert_eq!(ALL.iter().filter(|it| it.name == *name).count(), 1, "{name} is there twice");
    }
    assert!(SECONDS.is_sorted());
}

fn value(samples: &[Sample], metric: &Metric, values: [&str; 2]) -> Option<f64> {
    let found: Vec<_> = samples.iter().filter(|it| it.metric == metric && it.values == values).collect();
    assert!(found.len() <= 1, "{values:?} twice");
    found.first().map(|it| it.value)
}

#[test]
fn of_phases_one_is_1_and_the_names_are_those_of_the_status() {
    let status = EtcdClusterStatus { phase: Some(Phase::Scaling), ..EtcdClusterStatus::default() };
    let samples = of_status(&status);
    let phases: Vec<_> = samples.iter().filter(|it| it.metric == &PHASE).collect();
    assert_eq!(phases.len(), 7);
    for phase in phases {
        let named: Phase = serde_json::from_value(phase.values[0].into()).expect("it is a phase");
        assert_eq!(phase.value == 1.0, named == Phase::Scaling, "{named:?}");
    }
    assert!(of_status(&EtcdClusterStatus::default()).iter().all(|it| it.value == 0.0));
}

#[test]
fn every_condition_of_the_vocabulary_is_served_with_each_status_and_no_other_is() {
    let status = serde_json::json!({"conditions": [
        {"type": "Ready", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "QuorumLost", "status": "Unknown", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Foreign", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]});
    let samples = of_status(&serde_json::from_value(status).expect("it is a status"));
    let of = |condition, status| value(&samples, &CONDITION, [condition, status]);
    assert_eq!((of("Ready", "true"), of("Ready", "false")), (Some(1.0), Some(0.0)));
    assert_eq!((of("QuorumLost", "true"), of("QuorumLost", "unknown")), (Some(0.0), Some(1.0)));
    assert_eq!((of("Paused", "true"), of("Paused", "false")), (Some(0.0), Some(0.0)), "it is absent");
    assert_eq!(of("Foreign", "true"), None);
    assert_eq!(samples.iter().filter(|it| it.metric == &CONDITION).count(), condition::ALL.len() * 3);
}

/// Created on the 17th at 10:00.
fn backup(spec: Value, status: Value) -> Vec<Sample> {
    let mut all = json!({"clusterName": "kv", "storageType": "Local", "local": {"claimName": "c"}});
    for (field, value) in spec.as_object().expect("an object") {
        all[field] = value.clone();
    }
    let metadata = json!({"name": "nightly", "namespace": "ns", "creationTimestamp": "2026-11-17T10:00:00Z"});
    let object = json!({"metadata": metadata, "spec": all, "status": status});
    let backup: EtcdBackup = serde_json::from_value(object).expect("it is an EtcdBackup");
    of_backup(&backup)
}

fn at(time: &str) -> Option<f64> {
    Some(seconds(time.parse().expect("a time")))
}

#[test]
fn a_backup_has_the_numbers_of_its_status() {
    let status = json!({
        "backupSize": 1_000_000, "lastSuccessTime": "2026-11-18T02:01:00Z", "nextRunTime": "2026-11-19T02:00:00Z",
        "startTime": "2026-11-18T02:00:00Z", "completionTime": "2026-11-18T02:01:30Z",
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    let samples = backup(json!({"schedule": "0 2 * * *"}), status.clone());
    let of = |metric| value(&samples, metric, ["", ""]);
    assert_eq!(of(&BACKUP_SUCCESS), at("2026-11-18T02:01:00Z"));
    assert_eq!((of(&BACKUP_SIZE), of(&BACKUP_DURATION)), (Some(1_000_000.0), Some(90.0)));
    assert_eq!((of(&BACKUP_FAILURES), of(&BACKUP_NEXT)), (Some(0.0), at("2026-11-19T02:00:00Z")));
    let condition = |type_, is| value(&samples, &BACKUP_CONDITION, [type_, is]);
    assert_eq!((condition("Ready", "true"), condition("Ready", "false")), (Some(1.0), Some(0.0)));
    assert_eq!(condition("Stalled", "true"), Some(0.0));

    let mut running = status;
    running["completionTime"] = Value::Null;
    running["consecutiveFailures"] = json!(3);
    let samples = backup(json!({"schedule": "0 2 * * *"}), running);
    assert_eq!(value(&samples, &BACKUP_DURATION, ["", ""]), None, "it has no end yet");
    assert_eq!(value(&samples, &BACKUP_FAILURES, ["", ""]), Some(3.0));

    let none = backup(json!({}), json!({}));
    assert_eq!(value(&none, &BACKUP_SUCCESS, ["", ""]), Some(0.0));
    for absent in [&BACKUP_SIZE, &BACKUP_DURATION, &BACKUP_NEXT] {
        assert_eq!(value(&none, absent, ["", ""]), None, "{}", absent.name);
    }
}

#[test]
fn a_recovery_point_is_there_while_something_should_be_archived() {
    let point = |archive: Value, archiving: &str| {
        let condition = json!({"type": "Archiving", "status": "False", "reason": archiving, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let samples = backup(json!({}), json!({"archive": archive, "conditions": [condition]}));
        value(&samples, &BACKUP_RECOVERY_POINT, ["", ""])
    };
    let counts = json!({"copiesRequested": 1, "ended": 0});
    let mut archived = counts.clone();
    archived["recoveryPoint"] = json!("2026-11-18T02:01:00Z");
    assert_eq!(point(archived.clone(), "StoreUnreachable"), at("2026-11-18T02:01:00Z"));
    assert_eq!(point(counts, "CopyNeeded"), at("2026-11-17T10:00:00Z"), "since its creation");
    for on_purpose in ["Suspended", "Stopped", "Deleting", "ClusterNotFound", "NotBootstrapped"] {
        assert_eq!(point(archived.clone(), on_purpose), None, "{on_purpose}");
    }
    assert_eq!(point(Value::Null, "Suspended"), None);
}

#[test]
fn a_copy_becomes_too_old_by_its_own_schedule() {
    let overdue = |spec: Value, success: Option<&str>| {
        value(&backup(spec, json!({"lastSuccessTime": success})), &BACKUP_OVERDUE, ["", ""])
    };
    let (nightly, hourly) = (json!({"schedule": "0 2 * * *"}), json!({"schedule": "0 * * * *"}));
    let copied = Some("2026-11-18T02:01:00Z");
    assert_eq!(overdue(nightly.clone(), copied), at("2026-11-19T08:00:00Z"), "due at 2, at most 6 h");
    assert_eq!(overdue(hourly, copied), at("2026-11-18T04:00:00Z"), "due at 3, the following time is 4");
    assert_eq!(overdue(nightly.clone(), None), at("2026-11-18T08:00:00Z"), "since its creation");
    let elsewhere = json!({"schedule": "0 2 * * *", "timeZone": "America/New_York"});
    assert_eq!(overdue(elsewhere, copied), at("2026-11-18T13:00:00Z"));
    // One that is not repeated.
    assert_eq!(overdue(json!({}), None), at("2026-11-17T16:00:00Z"));
    assert_eq!(overdue(json!({}), copied), None);
    for quiet in [json!({"schedule": "0 2 * * *", "suspend": true}), json!({"schedule": "nonsense"})] {
        assert_eq!(overdue(quiet.clone(), copied), None, "{quiet}");
    }
}
