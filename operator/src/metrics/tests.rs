use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use etcd_operator_core::api::{EtcdBackup, EtcdClusterStatus, Phase};
use etcd_operator_core::decide::Goal;
use etcd_operator_core::metrics::{ALL, Effect, Scope};
use etcd_operator_core::observed::Observed;
use etcd_operator_core::plan::Plan;
use etcd_operator_core::round::Outcome;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::caches::Key;

fn key(name: &str) -> Key {
    Key { namespace: "shop".into(), name: name.into() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// A cluster of which nothing is there yet.
fn observe(meter: &Meter, second: i64) {
    let seen = Observed { now: at(second), ..Observed::nothing_of("uid") };
    meter.observed(&Goal::of_size(3), &seen, &Plan::default());
}

fn line(metrics: &Metrics, begins: &str) -> Option<String> {
    metrics.text().lines().find_map(|line| line.strip_prefix(begins)).map(|rest| rest.trim().to_owned())
}

#[test]
fn the_series_of_a_cluster_are_served_until_its_meter_is_dropped() {
    let metrics = Metrics::default();
    let (kv, other) = (metrics.meter(&key("kv")), metrics.meter(&key("other")));
    observe(&kv, 7);
    observe(&other, 8);
    let observed = "etcd_operator_cluster_observed_timestamp_seconds";
    let of = |name: &str| line(&metrics, &format!("{observed}{{namespace=\"shop\",name=\"{name}\"}}"));
    assert_eq!((of("kv").as_deref(), of("other").as_deref()), (Some("7.0"), Some("8.0")));
    drop(kv);
    assert_eq!((of("kv"), of("other").as_deref()), (None, Some("8.0")));
    assert!(!metrics.text().contains("name=\"kv\""), "{}", metrics.text());
    // A worker that ends after its successor has begun takes nothing with it.
    let (before, after) = (metrics.meter(&key("kv")), metrics.meter(&key("kv")));
    observe(&after, 9);
    drop(before);
    assert_eq!(of("kv").as_deref(), Some("9.0"));
}

#[test]
fn a_cluster_that_was_never_observed_shows_that() {
    let metrics = Metrics::default();
    let meter = metrics.meter(&key("kv"));
    let of = |metrics: &Metrics| {
        line(metrics, "etcd_operator_cluster_observed_timestamp_seconds{namespace=\"shop\",name=\"kv\"}")
    };
    assert_eq!(of(&metrics).as_deref(), Some("0.0"));
    observe(&meter, 7);
    meter.observed_the_same(at(17));
    assert_eq!(of(&metrics).as_deref(), Some("17.0"));
    observe(&meter, 27);
    assert_eq!(
        of(&metrics).as_deref(),
        Some("27.0"),
        "the last observation, not the last one without changes"
    );
}

#[test]
fn effects_are_counted_by_outcome() {
    let metrics = Metrics::default();
    let meter = metrics.meter(&key("kv"));
    let took = Duration::from_millis(20);
    meter.requested(Effect("EvictPod"), &Outcome::Done, took);
    meter.requested(Effect("EvictPod"), &Outcome::Done, took);
    meter.requested(Effect("EvictPod"), &Outcome::Overtaken, took);
    let of = |outcome: &str| {
        let labels = format!("namespace=\"shop\",name=\"kv\",effect=\"EvictPod\",outcome=\"{outcome}\"");
        line(&metrics, &format!("etcd_operator_cluster_effects_total{{{labels}}}"))
    };
    assert_eq!(
        (of("done").as_deref(), of("conflict").as_deref(), of("failed")),
        (Some("2.0"), Some("1.0"), None)
    );
    let count = line(&metrics, "etcd_operator_effect_duration_seconds_count{effect=\"EvictPod\"}");
    assert_eq!(count.as_deref(), Some("3"));
}

#[test]
fn a_call_without_a_response_is_counted_as_one() {
    let metrics = Metrics::default();
    drop(ETCD.begin("test without response"));
    ETCD.begin("test with response").end("ok");
    let of = |call: &str, outcome: &str| {
        line(&metrics, &format!("etcd_operator_etcd_requests_total{{call=\"{call}\",outcome=\"{outcome}\"}}"))
    };
    assert_eq!(of("test without response", "no_response").as_deref(), Some("1"));
    assert_eq!(of("test with response", "ok").as_deref(), Some("1"));
}

#[test]
fn the_process_leads_until_it_does_not() {
    let metrics = Metrics::default();
    let leads = || line(&metrics, "etcd_operator_leader");
    assert_eq!(leads().as_deref(), Some("0.0"));
    let leading = metrics.leading();
    assert_eq!(leads().as_deref(), Some("1.0"));
    drop(leading);
    assert_eq!(leads().as_deref(), Some("0.0"));
    for number in ["process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"] {
        let value: f64 = line(&metrics, number).expect(number).parse().expect("a number");
        assert!(value > 0.0, "{number} {value}");
    }
    assert!(line(&metrics, "process_cpu_seconds_total").is_some());
}

fn backup(cluster: &str) -> EtcdBackup {
    let object = json!({
        "metadata": {"name": "nightly", "namespace": "archive", "creationTimestamp": "2026-11-17T10:00:00Z"},
        "spec": {"clusterName": cluster, "clusterNamespace": "shop", "storageType": "Local", "schedule": "0 2 * * *"},
        "status": {
            "backupSize": 7, "nextRunTime": "2026-11-19T02:00:00Z",
            "startTime": "2026-11-18T02:00:00Z", "completionTime": "2026-11-18T02:00:03Z",
            "archive": {"copiesRequested": 1, "ended": 0, "recoveryPoint": "2026-11-18T02:00:03Z"},
        },
    });
    serde_json::from_value(object).expect("it is an EtcdBackup")
}

#[test]
fn the_series_of_a_backup_name_its_cluster_and_vanish_with_it() {
    let metrics = Metrics::default();
    let meter = metrics.backup_meter();
    let key = Key { namespace: "archive".into(), name: "nightly".into() };
    let of = |cluster: &str| {
        let labels =
            format!("namespace=\"shop\",name=\"{cluster}\",backup_namespace=\"archive\",backup=\"nightly\"");
        line(&metrics, &format!("etcd_operator_backup_size_bytes{{{labels}}}"))
    };
    meter.reported(&key, &backup("kv"));
    assert_eq!(of("kv").as_deref(), Some("7.0"));
    meter.reported(&key, &backup("other"));
    assert_eq!((of("kv"), of("other").as_deref()), (None, Some("7.0")), "it belongs to one cluster");
    meter.deleted(&key);
    assert_eq!(of("other"), None);
    // A process that does not lead any more has no task for backups.
    meter.reported(&key, &backup("kv"));
    drop(meter);
    assert_eq!(of("kv"), None);
}

/// Names and labels of what is served, from the exposition format.
fn served(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let names = labels.trim_end_matches('}').split(',').filter_map(|it| Some(it.split_once("=\"")?.0));
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it)).unwrap_or(name);
        let known = all.entry(name.to_owned()).or_default();
        known.extend(names.filter(|it| *it != "le").map(str::to_owned));
    }
    all
}

#[test]
fn what_is_served_is_what_the_table_lists() {
    let metrics = Metrics::default();
    let meter = metrics.meter(&key("kv"));
    observe(&meter, 7);
    meter.reported(Some(&EtcdClusterStatus { phase: Some(Phase::Running), ..EtcdClusterStatus::default() }));
    meter.requested(Effect("EvictPod"), &Outcome::Done, Duration::ZERO);
    let backups = metrics.backup_meter();
    backups.reported(&key("nightly"), &backup("kv"));
    API.begin("get").end("ok");
    ETCD.begin("list the members").end("ok");
    let text = metrics.text();
    assert!(text.ends_with("# EOF\n"));
    let served = served(&text);
    for (name, labels) in &served {
        let metric = ALL.iter().find(|it| it.name == name).unwrap_or_else(|| panic!("{name} is not listed"));
        let listed = metric.scope.labels().iter().chain(metric.labels).map(|it| (*it).to_owned());
        assert_eq!(*labels, listed.collect(), "{name}");
    }
    for metric in ALL {
        assert!(text.contains(&format!("# TYPE {} ", base_name(metric))), "{} is not served", metric.name);
    }
    for always in ALL.iter().filter(|it| it.scope != Scope::Cluster) {
        assert!(served.contains_key(always.name), "{}", always.name);
    }
}

#[test]
fn the_page_that_lists_the_metrics_is_up_to_date() {
    let page = include_str!("../../../docs/metrics.md");
    assert_eq!(page, reference::markdown(), "run make fix");
}
