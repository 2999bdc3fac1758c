//! The dashboards that we ship: the files are what the tables say, and Prometheus reads every query. That they show something is
//! tested in the harness.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use etcd_operator::alerts::metrics_in;
use etcd_operator::dashboards::{ALL, Dashboard, render};
use etcd_operator_core::metrics;
use etcd_operator_core::names::condition;
use serde_json::{Value, json};

fn rendered(dashboard: &Dashboard) -> Value {
    serde_json::from_str(&render::file(dashboard)).expect("JSON")
}

#[test]
fn the_files_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/grafana");
    for dashboard in ALL {
        let file = root.join(format!("{}.json", dashboard.name));
        let text =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(text.trim_end(), render::file(dashboard), "{} is stale: make fix", file.display());
    }
}

/// As rules, because promtool reads nothing else without a server.
#[test]
fn prometheus_reads_every_query() {
    let rule = |(number, query): (usize, String)| {
        let query = query.replace("$__rate_interval", "5m");
        json!({"record": format!("query:{number}"), "expr": query})
    };
    let queries: Vec<String> = ALL.iter().flat_map(|it| it.expressions()).collect();
    let of_variables = ALL.iter().flat_map(|it| rendered(it)["templating"]["list"].as_array().cloned());
    assert_eq!(of_variables.flatten().filter(|it| it["type"] == "query").count(), 3);
    assert!(queries.len() > 60, "{}", queries.len());
    let rules: Vec<Value> = queries.into_iter().enumerate().map(rule).collect();
    let rules = json!({"groups": [{"name": "queries", "rules": rules}]});
    let file = std::env::temp_dir().join(format!("etcd-operator-queries-{}.json", std::process::id()));
    std::fs::write(&file, rules.to_string()).expect("it is written");
    let output = Command::new("promtool").args(["check", "rules"]).arg(&file).output();
    let output = output.expect("promtool runs: make deps installs it");
    std::fs::remove_file(&file).expect("it is there");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
}

#[test]
fn queries_use_metrics_and_conditions_that_exist_and_every_number_of_a_cluster_is_shown() {
    let all: String = ALL.iter().flat_map(|it| it.expressions()).collect::<Vec<_>>().join("\n");
    for name in metrics_in(&all).into_iter().filter(|it| it.starts_with("etcd_operator_")) {
        let name = name.trim_end_matches("_bucket");
        assert!(metrics::ALL.iter().any(|metric| metric.name == name), "{name} is not served");
    }
    for rest in all.split("condition=\"").skip(1) {
        let word = rest.split('"').next().expect("a word");
        assert!(condition::ALL.contains(&word), "{word}");
    }
    let shown: BTreeSet<&str> =
        metrics_in(&all).into_iter().map(|it| it.trim_end_matches("_bucket")).collect();
    // The status has the conditions of a backup in words, and alerts ask for them; Prometheus shows when a process started.
    let in_words = ["etcd_operator_backup_condition", "process_start_time_seconds"];
    for metric in metrics::ALL.iter().filter(|metric| !in_words.contains(&metric.name)) {
        assert!(shown.contains(metric.name), "no panel shows {}", metric.name);
    }
}

#[test]
fn panels_have_ids_of_their_own_and_do_not_overlap() {
    for dashboard in ALL {
        let rendered = rendered(dashboard);
        let panels = rendered["panels"].as_array().expect("panels");
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
        assert_eq!(ids.len(), panels.len(), "{}", dashboard.name);
        let mut taken = BTreeSet::new();
        for panel in panels {
            let of = |side: &str| panel["gridPos"][side].as_u64().expect("a number");
            assert!(of("x") + of("w") <= 24, "{}", panel["title"]);
            for cell in
                (of("x")..of("x") + of("w")).flat_map(|x| (of("y")..of("y") + of("h")).map(move |y| (x, y)))
            {
                assert!(taken.insert(cell), "{}: {} overlaps", dashboard.name, panel["title"]);
            }
        }
        for (index, query) in dashboard.panels().flat_map(|panel| panel.queries).enumerate() {
            assert!(!query.legend.is_empty(), "{} {index}", dashboard.name);
        }
    }
}
