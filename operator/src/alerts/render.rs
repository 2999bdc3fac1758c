//! The alerts as files. Strings are written as JSON, which YAML reads.

use std::fmt::Write;

use serde_json::Value;

use super::{ALERTS, Alert};

const GENERATED: &str = "# Generated from operator/src/alerts/table.rs by `make fix`.\n";

const HEAD_OF_RULE: &str = "apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: etcd-operator
  namespace: etcd-operator-system
  labels:
    app.kubernetes.io/name: etcd-operator
spec:
";

const HEAD_OF_INDEX: &str = "<!-- Generated from operator/src/alerts/table.rs by `make fix`. -->

# Runbooks

One page for each alert in [config/prometheus](../../config/prometheus/rules.yaml).
[operations.md](../operations.md#monitor-clusters) describes how to install them. *Critical* means that a cluster does not serve
or is about to stop, *warning* that somebody has to act within a day.

| alert | severity | after | condition |
|---|---|---|---|
";

/// For `rule_files` of Prometheus.
pub fn rules() -> String {
    format!("{GENERATED}{}", groups(""))
}

/// For the Prometheus operator.
pub fn prometheus_rule() -> String {
    format!("{GENERATED}{HEAD_OF_RULE}{}", groups("  "))
}

pub fn index() -> String {
    let mut text = HEAD_OF_INDEX.to_owned();
    for Alert { name, severity, minutes, expression, .. } in ALERTS {
        let expression = expression.replace('|', "\\|");
        let _ =
            writeln!(text, "| [{name}]({name}.md) | {} | {minutes} min | `{expression}` |", severity.title());
    }
    text
}

fn groups(indent: &str) -> String {
    let mut text = format!("{indent}groups:\n{indent}- name: etcd-operator\n{indent}  rules:\n");
    for alert in ALERTS {
        let Alert { name, severity, minutes, expression, summary } = alert;
        let _ = write!(
            text,
            "{indent}  - alert: {name}\n\
             {indent}    expr: {}\n\
             {indent}    for: {minutes}m\n\
             {indent}    labels:\n\
             {indent}      severity: {}\n\
             {indent}    annotations:\n\
             {indent}      summary: {}\n\
             {indent}      runbook: {}\n",
            Value::from(*expression),
            severity.title(),
            Value::from(*summary),
            alert.runbook(),
        );
    }
    text
}
