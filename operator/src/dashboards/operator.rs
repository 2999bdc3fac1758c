//! The operator's own processes.

use super::Color::{GreenFrom, Neutral, RedFrom};
use super::Kind::{Last, Lines};
use super::{Dashboard, Panel, Query, Row, Shows};

pub const OPERATOR: Dashboard = Dashboard {
    name: "etcd-operator",
    title: "etcd / Operator",
    shows: Shows::Everything,
    annotations: &[],
    rows: &[
        Row {
            title: "Overview",
            panels: &[
                Panel {
                    title: "Leader",
                    kind: Last(GreenFrom(1.0)),
                    unit: "short",
                    width: 6,
                    queries: &[Query {
                        expression: "sum(etcd_operator_leader)",
                        legend: "processes that lead",
                    }],
                },
                Panel {
                    title: "Versions",
                    kind: Last(Neutral),
                    unit: "short",
                    width: 6,
                    queries: &[Query {
                        expression: "sum by (version) (etcd_operator_build_info)",
                        legend: "{{version}}",
                    }],
                },
                Panel {
                    title: "Clusters",
                    kind: Last(Neutral),
                    unit: "short",
                    width: 6,
                    queries: &[Query {
                        expression: "count(etcd_operator_cluster_wanted_members)",
                        legend: "clusters",
                    }],
                },
                Panel {
                    title: "Oldest observation",
                    kind: Last(RedFrom(120.0)),
                    unit: "s",
                    width: 6,
                    queries: &[Query {
                        expression: "max(time() - etcd_operator_cluster_observed_timestamp_seconds)",
                        legend: "seconds",
                    }],
                },
            ],
        },
        Row {
            title: "Work",
            panels: &[
                Panel {
                    title: "Changes, by outcome",
                    kind: Lines,
                    unit: "ops",
                    width: 12,
                    queries: &[Query {
                        expression: "sum by (outcome) (rate(etcd_operator_cluster_effects_total[$__rate_interval]))",
                        legend: "{{outcome}}",
                    }],
                },
                Panel {
                    title: "Duration of changes (99th percentile)",
                    kind: Lines,
                    unit: "s",
                    width: 12,
                    queries: &[Query {
                        expression: "histogram_quantile(0.99, sum by (effect, le) (rate(etcd_operator_effect_duration_seconds_bucket[$__rate_interval]))) >= 0",
                        legend: "{{effect}}",
                    }],
                },
                Panel {
                    title: "What clusters wait for",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: "sum by (reason) (etcd_operator_cluster_waits)",
                        legend: "{{reason}}",
                    }],
                },
                Panel {
                    title: "What the operator refuses",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: "sum by (reason) (etcd_operator_cluster_refusals)",
                        legend: "{{reason}}",
                    }],
                },
                Panel {
                    title: "Panics of workers, per hour",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: "sum(increase(etcd_operator_cluster_panics_total[1h]))",
                        legend: "panics",
                    }],
                },
            ],
        },
        Row {
            title: "Calls",
            panels: &[
                Panel {
                    title: "Requests to the API server",
                    kind: Lines,
                    unit: "reqps",
                    width: 12,
                    queries: &[Query {
                        expression: "sum by (verb, outcome) (rate(etcd_operator_api_requests_total[$__rate_interval]))",
                        legend: "{{verb}} {{outcome}}",
                    }],
                },
                Panel {
                    title: "Time to a response of the API server (99th percentile)",
                    kind: Lines,
                    unit: "s",
                    width: 12,
                    queries: &[Query {
                        expression: "histogram_quantile(0.99, sum by (verb, le) (rate(etcd_operator_api_request_duration_seconds_bucket[$__rate_interval]))) >= 0",
                        legend: "{{verb}}",
                    }],
                },
                Panel {
                    title: "Calls to members",
                    kind: Lines,
                    unit: "reqps",
                    width: 12,
                    queries: &[Query {
                        expression: "sum by (call, outcome) (rate(etcd_operator_etcd_requests_total[$__rate_interval]))",
                        legend: "{{call}} {{outcome}}",
                    }],
                },
                Panel {
                    title: "Time to a response of members (99th percentile)",
                    kind: Lines,
                    unit: "s",
                    width: 12,
                    queries: &[Query {
                        expression: "histogram_quantile(0.99, sum by (call, le) (rate(etcd_operator_etcd_request_duration_seconds_bucket[$__rate_interval]))) >= 0",
                        legend: "{{call}}",
                    }],
                },
            ],
        },
        Row {
            title: "Process",
            panels: &[
                Panel {
                    title: "CPU",
                    kind: Lines,
                    unit: "percentunit",
                    width: 8,
                    queries: &[Query {
                        expression: "rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) etcd_operator_leader",
                        legend: "{{instance}}",
                    }],
                },
                Panel {
                    title: "Memory",
                    kind: Lines,
                    unit: "bytes",
                    width: 8,
                    queries: &[Query {
                        expression: "process_resident_memory_bytes and on (instance) etcd_operator_leader",
                        legend: "{{instance}}",
                    }],
                },
                Panel {
                    title: "Open files",
                    kind: Lines,
                    unit: "short",
                    width: 8,
                    queries: &[Query {
                        expression: "process_open_fds and on (instance) etcd_operator_leader",
                        legend: "{{instance}}",
                    }],
                },
            ],
        },
    ],
};
