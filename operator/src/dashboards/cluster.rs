//! One cluster: members, latency, disk, raft, backups, certificates, and what the operator does.

use super::Color::{GreenFrom, Neutral, RedFrom};
use super::Kind::{Last, Lines};
use super::{Annotation, Dashboard, Panel, Query, Row, Shows};

pub const CLUSTER: Dashboard = Dashboard {
    name: "etcd-cluster",
    title: "etcd / Cluster",
    shows: Shows::Cluster,
    // A counter begins with its first event: that one has no value before it.
    annotations: &[
        Annotation {
            title: "Changes",
            expression: r#"sum by (effect, outcome) (etcd_operator_cluster_effects_total{$cluster,effect!~"Write.+|SendMessage",outcome="done"}) - sum by (effect, outcome) (etcd_operator_cluster_effects_total{$cluster,effect!~"Write.+|SendMessage",outcome="done"} offset 1m) > 0 or sum by (effect, outcome) (etcd_operator_cluster_effects_total{$cluster,effect!~"Write.+|SendMessage",outcome="done"}) unless sum by (effect, outcome) (etcd_operator_cluster_effects_total{$cluster,effect!~"Write.+|SendMessage",outcome="done"} offset 1m)"#,
            text: "{{effect}} {{outcome}}",
            color: "blue",
        },
        Annotation {
            title: "Changes that failed",
            expression: r#"sum by (effect, outcome) (etcd_operator_cluster_effects_total{$cluster,outcome=~"rejected|failed|no_response"}) - sum by (effect, outcome) (etcd_operator_cluster_effects_total{$cluster,outcome=~"rejected|failed|no_response"} offset 1m) > 0 or sum by (effect, outcome) (etcd_operator_cluster_effects_total{$cluster,outcome=~"rejected|failed|no_response"}) unless sum by (effect, outcome) (etcd_operator_cluster_effects_total{$cluster,outcome=~"rejected|failed|no_response"} offset 1m)"#,
            text: "{{effect}} {{outcome}}",
            color: "red",
        },
    ],
    rows: &[
        Row {
            title: "Overview",
            panels: &[
                Panel {
                    title: "Phase",
                    kind: Last(Neutral),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: r#"max by (phase) (etcd_operator_cluster_phase{$cluster}) == 1"#,
                        legend: "{{phase}}",
                    }],
                },
                Panel {
                    title: "Ready members",
                    kind: Last(Neutral),
                    unit: "short",
                    width: 4,
                    queries: &[
                        Query {
                            expression: r#"max(etcd_operator_cluster_ready_members{$cluster})"#,
                            legend: "ready",
                        },
                        Query {
                            expression: r#"max(etcd_operator_cluster_wanted_members{$cluster})"#,
                            legend: "wanted",
                        },
                    ],
                },
                Panel {
                    title: "Members that can fail",
                    kind: Last(GreenFrom(1.0)),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: r#"max(etcd_operator_cluster_quorum_margin{$cluster})"#,
                        legend: "members",
                    }],
                },
                Panel {
                    title: "Alarms",
                    kind: Last(RedFrom(1.0)),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: r#"sum(etcd_operator_cluster_alarms{$cluster})"#,
                        legend: "members with an alarm",
                    }],
                },
                Panel {
                    title: "Observed before",
                    kind: Last(RedFrom(120.0)),
                    unit: "s",
                    width: 4,
                    queries: &[Query {
                        expression: r#"min(time() - etcd_operator_cluster_observed_timestamp_seconds{$cluster})"#,
                        legend: "seconds",
                    }],
                },
                Panel {
                    title: "Rollout pending",
                    kind: Last(Neutral),
                    unit: "short",
                    width: 4,
                    queries: &[Query {
                        expression: r#"max(etcd_operator_cluster_rollout_pending_members{$cluster})"#,
                        legend: "members",
                    }],
                },
            ],
        },
        Row {
            title: "Members",
            panels: &[
                Panel {
                    title: "Members by state",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[
                        Query {
                            expression: r#"max by (state) (etcd_operator_cluster_members{$cluster})"#,
                            legend: "{{state}}",
                        },
                        Query {
                            expression: r#"max(etcd_operator_cluster_learners{$cluster})"#,
                            legend: "learners",
                        },
                    ],
                },
                Panel {
                    title: "Leader",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query { expression: r#"etcd_server_is_leader{$cluster}"#, legend: "{{pod}}" }],
                },
                Panel {
                    title: "Has a leader",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: r#"etcd_server_has_leader{$cluster}"#,
                        legend: "{{pod}}",
                    }],
                },
                Panel {
                    title: "CPU",
                    kind: Lines,
                    unit: "percentunit",
                    width: 8,
                    queries: &[Query {
                        expression: r#"rate(process_cpu_seconds_total{$cluster}[$__rate_interval])"#,
                        legend: "{{pod}}",
                    }],
                },
                Panel {
                    title: "Memory",
                    kind: Lines,
                    unit: "bytes",
                    width: 8,
                    queries: &[Query {
                        expression: r#"process_resident_memory_bytes{$cluster}"#,
                        legend: "{{pod}}",
                    }],
                },
                Panel {
                    title: "Open files",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query { expression: r#"process_open_fds{$cluster}"#, legend: "{{pod}}" }],
                },
            ],
        },
        Row {
            title: "Requests and latency",
            panels: &[
                Panel {
                    title: "Requests",
                    kind: Lines,
                    unit: "reqps",
                    width: 8,
                    queries: &[Query {
                        expression: r#"sum by (grpc_method) (rate(grpc_server_handled_total{$cluster}[$__rate_interval])) > 0"#,
                        legend: "{{grpc_method}}",
                    }],
                },
                Panel {
                    title: "Requests that fail",
                    kind: Lines,
                    unit: "reqps",
                    width: 8,
                    queries: &[Query {
                        expression: r#"sum by (grpc_method, grpc_code) (rate(grpc_server_handled_total{$cluster,grpc_code=~"Unknown|ResourceExhausted|Internal|Unavailable|DataLoss|DeadlineExceeded"}[$__rate_interval])) or vector(0)"#,
                        legend: "{{grpc_method}} {{grpc_code}}",
                    }],
                },
                Panel {
                    title: "Traffic of clients",
                    kind: Lines,
                    unit: "Bps",
                    width: 8,
                    queries: &[
                        Query {
                            expression: r#"sum(rate(etcd_network_client_grpc_received_bytes_total{$cluster}[$__rate_interval]))"#,
                            legend: "received",
                        },
                        Query {
                            expression: r#"sum(rate(etcd_network_client_grpc_sent_bytes_total{$cluster}[$__rate_interval]))"#,
                            legend: "sent",
                        },
                    ],
                },
                Panel {
                    title: "Time to save the log (99th percentile)",
                    kind: Lines,
                    unit: "s",
                    width: 8,
                    queries: &[Query {
                        expression: r#"histogram_quantile(0.99, sum by (pod, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{$cluster}[$__rate_interval]))) >= 0"#,
                        legend: "{{pod}}",
                    }],
                },
                Panel {
                    title: "Time to save the database (99th percentile)",
                    kind: Lines,
                    unit: "s",
                    width: 8,
                    queries: &[Query {
                        expression: r#"histogram_quantile(0.99, sum by (pod, le) (rate(etcd_disk_backend_commit_duration_seconds_bucket{$cluster}[$__rate_interval]))) >= 0"#,
                        legend: "{{pod}}",
                    }],
                },
                Panel {
                    title: "Time between members (99th percentile)",
                    kind: Lines,
                    unit: "s",
                    width: 8,
                    queries: &[Query {
                        expression: r#"histogram_quantile(0.99, sum by (pod, To, le) (rate(etcd_network_peer_round_trip_time_seconds_bucket{$cluster}[$__rate_interval]))) >= 0"#,
                        legend: "{{pod}} to {{To}}",
                    }],
                },
            ],
        },
        Row {
            title: "Disk",
            panels: &[
                Panel {
                    title: "Database",
                    kind: Lines,
                    unit: "bytes",
                    width: 8,
                    queries: &[
                        Query {
                            expression: r#"etcd_mvcc_db_total_size_in_bytes{$cluster}"#,
                            legend: "{{pod}}",
                        },
                        Query {
                            expression: r#"etcd_mvcc_db_total_size_in_use_in_bytes{$cluster}"#,
                            legend: "{{pod}} in use",
                        },
                        Query {
                            expression: r#"max(etcd_server_quota_backend_bytes{$cluster})"#,
                            legend: "quota",
                        },
                    ],
                },
                Panel {
                    title: "Room on volumes",
                    kind: Lines,
                    unit: "bytes",
                    width: 8,
                    queries: &[Query {
                        expression: r#"kubelet_volume_stats_available_bytes{namespace="$namespace",persistentvolumeclaim=~"data[0-9a-z]*-$name-[0-9]+"}"#,
                        legend: "{{persistentvolumeclaim}}",
                    }],
                },
                Panel {
                    title: "Time since the data of members was compared",
                    kind: Lines,
                    unit: "s",
                    width: 8,
                    queries: &[Query {
                        expression: r#"time() - max(etcd_operator_cluster_data_compared_timestamp_seconds{$cluster})"#,
                        legend: "comparison",
                    }],
                },
            ],
        },
        Row {
            title: "Raft",
            panels: &[
                Panel {
                    title: "Proposals",
                    kind: Lines,
                    unit: "ops",
                    width: 8,
                    queries: &[
                        Query {
                            expression: r#"rate(etcd_server_proposals_committed_total{$cluster}[$__rate_interval])"#,
                            legend: "{{pod}} committed",
                        },
                        Query {
                            expression: r#"rate(etcd_server_proposals_applied_total{$cluster}[$__rate_interval])"#,
                            legend: "{{pod}} applied",
                        },
                    ],
                },
                Panel {
                    title: "Proposals that wait or fail",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[
                        Query {
                            expression: r#"etcd_server_proposals_pending{$cluster}"#,
                            legend: "{{pod}} pending",
                        },
                        Query {
                            expression: r#"increase(etcd_server_proposals_failed_total{$cluster}[5m])"#,
                            legend: "{{pod}} failed in 5 minutes",
                        },
                    ],
                },
                Panel {
                    title: "Committed and not yet applied",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: r#"etcd_server_proposals_committed_total{$cluster} - etcd_server_proposals_applied_total{$cluster}"#,
                        legend: "{{pod}}",
                    }],
                },
                Panel {
                    title: "Changes of the leader, per hour",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: r#"max(increase(etcd_server_leader_changes_seen_total{$cluster}[1h]))"#,
                        legend: "changes",
                    }],
                },
                Panel {
                    title: "Heartbeats that failed, in 5 minutes",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: r#"increase(etcd_server_heartbeat_send_failures_total{$cluster}[5m])"#,
                        legend: "{{pod}}",
                    }],
                },
                Panel {
                    title: "Slow applies, in 5 minutes",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: r#"increase(etcd_server_slow_apply_total{$cluster}[5m])"#,
                        legend: "{{pod}}",
                    }],
                },
            ],
        },
        Row {
            title: "Backups",
            panels: &[
                Panel {
                    title: "Time since the last copy",
                    kind: Lines,
                    unit: "s",
                    width: 8,
                    queries: &[Query {
                        expression: r#"time() - (etcd_operator_backup_last_success_timestamp_seconds{$cluster} > 0)"#,
                        legend: "{{backup_namespace}}/{{backup}}",
                    }],
                },
                Panel {
                    title: "Size of the last copy",
                    kind: Lines,
                    unit: "bytes",
                    width: 8,
                    queries: &[Query {
                        expression: r#"etcd_operator_backup_size_bytes{$cluster}"#,
                        legend: "{{backup_namespace}}/{{backup}}",
                    }],
                },
                Panel {
                    title: "Duration of the last run",
                    kind: Lines,
                    unit: "s",
                    width: 8,
                    queries: &[Query {
                        expression: r#"etcd_operator_backup_last_run_duration_seconds{$cluster}"#,
                        legend: "{{backup_namespace}}/{{backup}}",
                    }],
                },
                Panel {
                    title: "Attempts that failed since the last copy",
                    kind: Lines,
                    unit: "short",
                    width: 6,
                    queries: &[Query {
                        expression: r#"etcd_operator_backup_consecutive_failures{$cluster}"#,
                        legend: "{{backup_namespace}}/{{backup}}",
                    }],
                },
                Panel {
                    title: "Time until the next run",
                    kind: Lines,
                    unit: "s",
                    width: 6,
                    queries: &[Query {
                        expression: r#"etcd_operator_backup_next_run_timestamp_seconds{$cluster} - time()"#,
                        legend: "{{backup_namespace}}/{{backup}}",
                    }],
                },
                Panel {
                    title: "Time until the last copy is too old",
                    kind: Lines,
                    unit: "s",
                    width: 6,
                    queries: &[Query {
                        expression: r#"etcd_operator_backup_overdue_timestamp_seconds{$cluster} - time()"#,
                        legend: "{{backup_namespace}}/{{backup}}",
                    }],
                },
                Panel {
                    title: "Time since the recovery point",
                    kind: Lines,
                    unit: "s",
                    width: 6,
                    queries: &[Query {
                        expression: r#"time() - etcd_operator_backup_recovery_point_timestamp_seconds{$cluster}"#,
                        legend: "{{backup_namespace}}/{{backup}}",
                    }],
                },
            ],
        },
        Row {
            title: "Certificates",
            panels: &[
                Panel {
                    title: "Time until certificates expire",
                    kind: Lines,
                    unit: "s",
                    width: 12,
                    queries: &[Query {
                        expression: r#"min by (certificate) (etcd_operator_cluster_certificate_expiry_timestamp_seconds{$cluster}) - time()"#,
                        legend: "{{certificate}}",
                    }],
                },
                Panel {
                    title: "Time until the operator renews them",
                    kind: Lines,
                    unit: "s",
                    width: 12,
                    queries: &[Query {
                        expression: r#"min by (certificate) (etcd_operator_cluster_certificate_renewal_timestamp_seconds{$cluster}) - time()"#,
                        legend: "{{certificate}}",
                    }],
                },
            ],
        },
        Row {
            title: "Operator",
            panels: &[
                Panel {
                    title: "Changes, per hour",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: r#"sum by (effect, outcome) (increase(etcd_operator_cluster_effects_total{$cluster}[1h]))"#,
                        legend: "{{effect}} {{outcome}}",
                    }],
                },
                Panel {
                    title: "What the operator waits for",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: r#"max by (reason) (etcd_operator_cluster_waits{$cluster})"#,
                        legend: "{{reason}}",
                    }],
                },
                Panel {
                    title: "What the operator refuses",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: r#"max by (reason) (etcd_operator_cluster_refusals{$cluster})"#,
                        legend: "{{reason}}",
                    }],
                },
            ],
        },
    ],
};
