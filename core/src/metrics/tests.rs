use super::*;
use crate::api::{EtcdClusterStatus, Phase};
use crate::names::condition;

#[test]
fn names_and_labels_follow_the_conventions_of_prometheus() {
    for metric in ALL {
        let Metric { name, kind, scope, labels, help } = metric;
        let is_word = |text: &str| text.chars().all(|it| it.is_ascii_lowercase() || it == '_');
        assert!(is_word(name) && labels.iter().all(|it| is_word(it)), "{name}");
        let prefix = if *scope == Scope::Cluster { "etcd_operator_cluster_" } else { "" };
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
