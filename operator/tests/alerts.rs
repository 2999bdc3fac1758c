//! The alerts that we ship: promtool reads them, fires them and does not, they use metrics that exist, and each has a runbook.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_operator::alerts::{ALERTS, render};
use etcd_operator_core::metrics;
use etcd_operator_core::names::{condition, reason};
use serde_json::Value;

/// From the kubelet's own list of metrics. The kubelet serves it for volumes whose driver reports it.
const OF_KUBELETS: [&str; 1] = ["kubelet_volume_stats_available_bytes"];
const HEADINGS: [&str; 4] = ["What it means", "Impact", "Diagnosis", "Mitigation"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).current_dir(root()).output();
    let output = output.expect("promtool runs: make deps installs it");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}:\n{said}");
}

#[test]
fn the_files_are_up_to_date() {
    for (path, text) in [
        ("config/prometheus/rules.yaml", render::rules()),
        ("config/prometheus/prometheus-rule.yaml", render::prometheus_rule()),
        ("docs/runbooks/README.md", render::index()),
    ] {
        assert_eq!(read(path), text, "{path} is stale: make fix");
    }
    let rule: Value = serde_saphyr::from_str(&render::prometheus_rule()).expect("YAML");
    let rules: Value = serde_saphyr::from_str(&render::rules()).expect("YAML");
    assert_eq!(rule["spec"], rules, "both have the same groups");
    assert_eq!(rule["kind"], "PrometheusRule");
}

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_and_does_not_fire_as_its_cases_say() {
    promtool(&["check", "rules", "config/prometheus/rules.yaml"]);
    promtool(&["test", "rules", "test/alerts/tests.yaml"]);
    let cases: Value = serde_saphyr::from_str(&read("test/alerts/tests.yaml")).expect("YAML");
    let cases: Vec<&Value> = cases["tests"]
        .as_array()
        .expect("cases")
        .iter()
        .flat_map(|it| it["alert_rule_test"].as_array().expect("checks"))
        .collect();
    for alert in ALERTS {
        let expected: BTreeSet<bool> = cases
            .iter()
            .filter(|case| case["alertname"] == alert.name)
            .map(|case| case["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()))
            .collect();
        assert_eq!(
            expected,
            [false, true].into(),
            "{} needs a case that fires, and one that does not",
            alert.name
        );
    }
}

/// Debian's promtool knows no Kubernetes, so that part is left out.
#[test]
fn promtool_accepts_the_scrape_configuration() {
    let mut config: Value = serde_saphyr::from_str(&read("config/prometheus/scrape.yaml")).expect("YAML");
    for job in config["scrape_configs"].as_array_mut().expect("jobs") {
        let job = job.as_object_mut().expect("a job");
        job.remove("kubernetes_sd_configs").expect("pods are discovered");
        let last: Vec<_> =
            job["relabel_configs"].as_array().expect("labels").iter().map(|it| &it["target_label"]).collect();
        assert!(last.contains(&&Value::from("pod")), "{last:?}");
    }
    let file = std::env::temp_dir().join(format!("etcd-operator-scrape-{}.json", std::process::id()));
    std::fs::write(&file, config.to_string()).expect("it is written");
    promtool(&["check", "config", "--syntax-only", &file.display().to_string()]);
    std::fs::remove_file(&file).expect("it is there");
}

/// Whether members serve the metrics of etcd is asked in the tests of real ones.
#[test]
fn every_metric_of_an_alert_is_in_our_table_or_of_etcd_or_the_kubelet() {
    for alert in ALERTS {
        assert!(!alert.metrics().is_empty(), "{}", alert.name);
        for name in alert.metrics() {
            let ours = metrics::ALL.iter().any(|metric| metric.name == name);
            let of_operator = name.starts_with("etcd_operator_") || name.starts_with("process_");
            assert_eq!(ours, of_operator, "{}: {name} is not served", alert.name);
            assert!(!name.starts_with("kubelet_") || OF_KUBELETS.contains(&name), "{}: {name}", alert.name);
        }
    }
}

#[test]
fn conditions_and_reasons_in_alerts_are_words_of_the_status() {
    let of = |expression: &'static str, label: &str| -> Vec<&'static str> {
        let begins = format!("{label}=\"");
        let found = expression.split(begins.as_str()).skip(1);
        found.filter_map(|rest| rest.split('"').next()).collect()
    };
    let mut found = 0;
    for alert in ALERTS {
        for word in of(alert.expression, "condition") {
            assert!(condition::ALL.contains(&word), "{}: {word}", alert.name);
            found += 1;
        }
        for word in of(alert.expression, "reason") {
            assert!(reason::ALL.contains(&word), "{}: {word}", alert.name);
            found += 1;
        }
    }
    assert!(found > 3, "no condition is in an alert");
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let folder = std::fs::read_dir(root().join("docs/runbooks")).expect("there are runbooks");
    let pages: BTreeSet<String> =
        folder.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let expected = ALERTS.iter().map(|alert| format!("{}.md", alert.name)).chain(["README.md".into()]);
    assert_eq!(pages, expected.collect());
    for alert in ALERTS {
        let page = read(&alert.runbook());
        assert!(page.starts_with(&format!("# {}\n", alert.name)), "{}", alert.name);
        let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, HEADINGS, "{}", alert.name);
        let (_, diagnosis) = page.split_once("## Diagnosis").expect("it was just found");
        assert!(diagnosis.contains("```sh"), "{} has no commands", alert.name);
    }
}
