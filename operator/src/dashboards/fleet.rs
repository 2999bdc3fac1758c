//! All clusters at once: which of them needs somebody.

use super::Color::{Neutral, RedFrom};
use super::Kind::{Last, Lines, Table};
use super::{Dashboard, Panel, Query, Row, Shows};

pub const FLEET: Dashboard = Dashboard {
    name: "etcd-fleet",
    title: "etcd / Fleet",
    shows: Shows::Fleet,
    annotations: &[],
    rows: &[
        Row {
            title: "Overview",
            panels: &[
                Panel {
                    title: "Clusters",
                    kind: Last(Neutral),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: "count(sum by (namespace, name) (etcd_operator_cluster_wanted_members{$fleet}))",
                        legend: "clusters",
                    }],
                },
                Panel {
                    title: "Not ready",
                    kind: Last(RedFrom(1.0)),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: r#"sum(1 - max by (namespace, name) (etcd_operator_cluster_condition{$fleet,condition="Ready",status="true"}))"#,
                        legend: "clusters",
                    }],
                },
                Panel {
                    title: "Without quorum",
                    kind: Last(RedFrom(1.0)),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: r#"sum(max by (namespace, name) (etcd_operator_cluster_condition{$fleet,condition="QuorumLost",status="true"}))"#,
                        legend: "clusters",
                    }],
                },
                Panel {
                    title: "Alerts that fire",
                    kind: Last(RedFrom(1.0)),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: r#"count(ALERTS{alertname=~"Etcd.+",alertstate="firing"}) or vector(0)"#,
                        legend: "alerts",
                    }],
                },
                Panel {
                    title: "Members",
                    kind: Last(Neutral),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: "sum(etcd_operator_cluster_ready_members{$fleet})",
                        legend: "ready",
                    }],
                },
                Panel {
                    title: "Backups that fail or are too old",
                    kind: Last(RedFrom(1.0)),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: "count(etcd_operator_backup_consecutive_failures{$fleet} > 0 or time() > etcd_operator_backup_overdue_timestamp_seconds{$fleet}) or vector(0)",
                        legend: "backups",
                    }],
                },
                Panel {
                    title: "Clusters",
                    kind: Table,
                    unit: "short",
                    width: 24,
                    queries: &[
                        Query {
                            expression: "max by (namespace, name) (etcd_operator_cluster_wanted_members{$fleet})",
                            legend: "wanted members",
                        },
                        Query {
                            expression: "max by (namespace, name) (etcd_operator_cluster_ready_members{$fleet})",
                            legend: "ready members",
                        },
                        Query {
                            expression: "max by (namespace, name) (etcd_operator_cluster_quorum_margin{$fleet})",
                            legend: "can fail",
                        },
                        Query {
                            expression: "max by (namespace, name) (etcd_operator_cluster_rollout_pending_members{$fleet})",
                            legend: "rollout pending",
                        },
                        Query {
                            expression: "min by (namespace, name) (time() - etcd_operator_cluster_observed_timestamp_seconds{$fleet})",
                            legend: "observed before (s)",
                        },
                        Query {
                            expression: "max by (namespace, name) (etcd_mvcc_db_total_size_in_bytes{$fleet}) / 1048576",
                            legend: "database (MiB)",
                        },
                    ],
                },
            ],
        },
        Row {
            title: "Over time",
            panels: &[
                Panel {
                    title: "Members that can fail before quorum is lost",
                    kind: Lines,
                    unit: "short",
                    width: 12,
                    queries: &[Query {
                        expression: "max by (namespace, name) (etcd_operator_cluster_quorum_margin{$fleet})",
                        legend: "{{namespace}}/{{name}}",
                    }],
                },
                Panel {
                    title: "Changes by the operator, per hour",
                    kind: Lines,
                    unit: "short",
                    width: 12,
                    queries: &[Query {
                        expression: r#"sum by (namespace, name) (increase(etcd_operator_cluster_effects_total{$fleet,outcome="done"}[1h]))"#,
                        legend: "{{namespace}}/{{name}}",
                    }],
                },
                Panel {
                    title: "Requests to members",
                    kind: Lines,
                    unit: "reqps",
                    width: 12,
                    queries: &[Query {
                        expression: "sum by (namespace, name) (rate(grpc_server_handled_total{$fleet,name!=\"\"}[$__rate_interval]))",
                        legend: "{{namespace}}/{{name}}",
                    }],
                },
                Panel {
                    title: "Time since the last copy",
                    kind: Lines,
                    unit: "s",
                    width: 12,
                    queries: &[Query {
                        expression: "time() - (etcd_operator_backup_last_success_timestamp_seconds{$fleet} > 0)",
                        legend: "{{namespace}}/{{name}}: {{backup_namespace}}/{{backup}}",
                    }],
                },
                Panel {
                    title: "Time until the first certificate expires",
                    kind: Lines,
                    unit: "s",
                    width: 12,
                    queries: &[Query {
                        expression: "min by (namespace, name) (etcd_operator_cluster_certificate_expiry_timestamp_seconds{$fleet}) - time()",
                        legend: "{{namespace}}/{{name}}",
                    }],
                },
                Panel {
                    title: "Used part of the quota of the database",
                    kind: Lines,
                    unit: "percentunit",
                    width: 12,
                    queries: &[Query {
                        expression: "max by (namespace, name) (etcd_mvcc_db_total_size_in_bytes{$fleet} / etcd_server_quota_backend_bytes)",
                        legend: "{{namespace}}/{{name}}",
                    }],
                },
            ],
        },
    ],
};
