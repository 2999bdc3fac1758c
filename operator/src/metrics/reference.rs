//! The metrics as a page for people; `docs/metrics.md` is this text.

use std::fmt::Write;

use etcd_operator_core::agent::metrics as of_agents;
use etcd_operator_core::metrics::{ALL, Kind, Scope};

const HEAD: &str = "<!-- Generated from core/src/metrics.rs and core/src/agent/metrics.rs by `make fix`. -->

# Metrics

The operator serves these metrics on port 8443 at `/metrics`; [operations.md](operations.md#monitor-clusters) describes who
can read them and how to scrape them. Members serve etcd's own metrics on port 2381.

A label has a fixed set of values, except `namespace` and `name`, which are those of an EtcdCluster, and `backup_namespace` and
`backup`, which are those of an EtcdBackup. Names of phases, conditions and reasons are those of [status.md](status.md).
";

const CLUSTERS: &str = "
## Of a cluster

The leader serves one set for each EtcdCluster, with the labels `namespace` and `name`. The series of a cluster disappear
when it is deleted, and from a process that does not lead any more.
";

const BACKUPS: &str = "
## Of a backup

The leader serves one set for each EtcdBackup, with the labels `namespace` and `name` of its cluster, and `backup_namespace` and
`backup`, its own. They disappear like those of a cluster.
";

const PROCESS: &str = "
## Of the operator

Every replica of the operator serves these.
";

const AGENTS: &str = "
## Of a waiting agent

Port 2381 of a member's pod serves these while etcd has not started there, and etcd's own metrics then.
";

const TABLE: &str = "\n| metric | type | labels | meaning |\n|---|---|---|---|\n";

pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for (heading, scope) in [(CLUSTERS, Scope::Cluster), (BACKUPS, Scope::Backup), (PROCESS, Scope::Process)]
    {
        text.push_str(heading);
        text.push_str(TABLE);
        for metric in ALL.iter().filter(|metric| metric.scope == scope) {
            add_row(&mut text, metric.name, metric.kind, metric.labels, metric.help);
        }
    }
    text.push_str(AGENTS);
    text.push_str(TABLE);
    for metric in of_agents::ALL {
        add_row(&mut text, metric.name, metric.kind, metric.labels, metric.help);
    }
    text
}

fn add_row(text: &mut String, name: &str, kind: Kind, labels: &[&str], help: &str) {
    let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
    let _ = writeln!(text, "| `{name}` | {} | {} | {help} |", kind.title(), labels.join(", "));
}
