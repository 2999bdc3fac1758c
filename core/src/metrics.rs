//! The operator's metrics: one table of names, labels and meanings, and the numbers of a cluster as a function of what was
//! observed. The shell adds the namespace and the name of the cluster, counts calls, and serves.
//!
//! A label has no other values than constants of this program, so that the number of series is bounded: a value that comes
//! from a user or from etcd does not compile.

mod backup;
mod cluster;
mod effect;

pub use backup::of_backup;
pub use cluster::{of_observation, of_status};
pub use effect::{Effect, outcome};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// What the table says of one metric.
#[derive(Debug, PartialEq)]
pub struct Metric {
    /// As users write it in a query.
    pub name: &'static str,
    pub kind: Kind,
    pub scope: Scope,
    /// Beside those of its scope.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
    /// With [`SECONDS`] as the upper bounds of its buckets.
    Histogram,
}

impl Kind {
    pub fn title(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The leader serves it for each EtcdCluster, until that is deleted.
    Cluster,
    /// The leader serves it for each EtcdBackup, until that is deleted.
    Backup,
    /// Every replica of the operator serves it.
    Process,
}

impl Scope {
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Cluster => &["namespace", "name"],
            // The first two are those of the cluster, as in all other series about it.
            Self::Backup => &["namespace", "name", "backup_namespace", "backup"],
            Self::Process => &[],
        }
    }
}

/// One number of a cluster or of a backup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub metric: &'static Metric,
    /// Of [`Metric::labels`], in that order; empty beyond them.
    pub values: [&'static str; 2],
    pub value: f64,
}

/// From a read of one key to an eviction that waits for its budget.
pub const SECONDS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

/// Names for metrics, and the table of them all.
macro_rules! table {
    ($($id:ident = $kind:ident $scope:ident $name:literal $labels:tt $help:literal;)*) => {
        $(pub static $id: Metric = Metric {
            name: $name, kind: Kind::$kind, scope: Scope::$scope, labels: &$labels, help: $help,
        };)*
        /// In the order in which they are served and listed.
        pub static ALL: &[&Metric] = &[$(&$id),*];
    };
}

table! {
    PHASE = Gauge Cluster "etcd_operator_cluster_phase" ["phase"]
        "Whether the cluster is in this phase, 1 or 0";
    CONDITION = Gauge Cluster "etcd_operator_cluster_condition" ["condition", "status"]
        "Whether the condition has this status (true, false, unknown), 1 or 0; all are 0 for a condition that is absent";
    OBSERVED = Gauge Cluster "etcd_operator_cluster_observed_timestamp_seconds" []
        "When the operator last observed the cluster, in Unix time; 0 if it never did";
    WANTED = Gauge Cluster "etcd_operator_cluster_wanted_members" []
        "The number of members that the spec asks for";
    READY = Gauge Cluster "etcd_operator_cluster_ready_members" []
        "The number of voting members that served a linearizable read at the last observation";
    MEMBERS = Gauge Cluster "etcd_operator_cluster_members" ["state"]
        "The number of members in this state; absent while no quorum lists the members";
    LEARNERS = Gauge Cluster "etcd_operator_cluster_learners" []
        "The number of learners; absent while no quorum lists the members";
    MARGIN = Gauge Cluster "etcd_operator_cluster_quorum_margin" []
        "The number of serving voters that can fail before quorum is lost; absent while no quorum is proven";
    ALARMS = Gauge Cluster "etcd_operator_cluster_alarms" ["alarm"]
        "The number of members that have raised this alarm in etcd (NOSPACE, CORRUPT, other)";
    COMPARED = Gauge Cluster "etcd_operator_cluster_data_compared_timestamp_seconds" []
        "When the last comparison of the data of all voters began, in Unix time; absent before this process has compared them";
    WAITS = Gauge Cluster "etcd_operator_cluster_waits" ["reason"]
        "The number of things that the operator waits for, by reason as in docs/status.md; absent for other reasons";
    REFUSALS = Gauge Cluster "etcd_operator_cluster_refusals" ["reason"]
        "The number of things that the operator refuses to do, by reason as in docs/status.md; absent for other reasons";
    ROLLOUT = Gauge Cluster "etcd_operator_cluster_rollout_pending_members" []
        "The number of members that do not run yet with what the spec asks for; 0 without a rollout";
    CERTIFICATE_EXPIRY = Gauge Cluster "etcd_operator_cluster_certificate_expiry_timestamp_seconds" ["certificate"]
        "When the certificate expires, in Unix time, by the suffix of its Secret's name";
    CERTIFICATE_RENEWAL = Gauge Cluster "etcd_operator_cluster_certificate_renewal_timestamp_seconds" ["certificate"]
        "When the operator renews the certificate, in Unix time; for a CA, when it introduces the next one";
    EFFECTS = Counter Cluster "etcd_operator_cluster_effects_total" ["effect", "outcome"]
        "Changes that the operator requested, by kind and outcome (done, conflict, rejected, failed, no_response)";
    PANICS = Counter Cluster "etcd_operator_cluster_panics_total" []
        "Panics of the worker of this cluster, each of which restarts it";
    BACKUP_CONDITION = Gauge Backup "etcd_operator_backup_condition" ["condition", "status"]
        "Whether the condition of the EtcdBackup has this status (true, false, unknown), 1 or 0; all are 0 for a condition that is absent";
    BACKUP_SUCCESS = Gauge Backup "etcd_operator_backup_last_success_timestamp_seconds" []
        "When the last copy completed, in Unix time; 0 if none has";
    BACKUP_SIZE = Gauge Backup "etcd_operator_backup_size_bytes" []
        "The size of the last copy, as it is stored; absent without one";
    BACKUP_DURATION = Gauge Backup "etcd_operator_backup_last_run_duration_seconds" []
        "How long the last run took; absent while one takes place, and before the first one has ended";
    BACKUP_FAILURES = Gauge Backup "etcd_operator_backup_consecutive_failures" []
        "The number of attempts that have failed since the last copy";
    BACKUP_NEXT = Gauge Backup "etcd_operator_backup_next_run_timestamp_seconds" []
        "The next time of the schedule, in Unix time; absent without a schedule and while it is suspended";
    BACKUP_RECOVERY_POINT = Gauge Backup "etcd_operator_backup_recovery_point_timestamp_seconds" []
        "The time up to which the continuous archive has everything, in Unix time, at most 30 seconds old; before the archive has anything, when the EtcdBackup was created; absent without one, and while it or the cluster is stopped";
    BACKUP_OVERDUE = Gauge Backup "etcd_operator_backup_overdue_timestamp_seconds" []
        "When the last copy becomes too old, in Unix time: a run is due, and the time that it can take has passed; absent while suspended, and for a single copy that exists";
    EFFECT_SECONDS = Histogram Process "etcd_operator_effect_duration_seconds" ["effect"]
        "How long requests for changes took, of all clusters";
    API_REQUESTS = Counter Process "etcd_operator_api_requests_total" ["verb", "outcome"]
        "Requests to the API server, by verb and outcome (ok, not_found, conflict, rejected, failed, no_response)";
    API_SECONDS = Histogram Process "etcd_operator_api_request_duration_seconds" ["verb"]
        "How long the API server took to respond; for a watch, until it began";
    ETCD_REQUESTS = Counter Process "etcd_operator_etcd_requests_total" ["call", "outcome"]
        "Calls to members, by what they were asked to do and outcome (ok, rejected, failed, no_response)";
    ETCD_SECONDS = Histogram Process "etcd_operator_etcd_request_duration_seconds" ["call"]
        "How long members took to respond";
    LEADER = Gauge Process "etcd_operator_leader" []
        "Whether this process holds the Lease and acts, 1 or 0";
    BUILD = Gauge Process "etcd_operator_build_info" ["version"]
        "1, with the version of the operator";
    CPU = Counter Process "process_cpu_seconds_total" []
        "CPU time of this process, user and system";
    MEMORY = Gauge Process "process_resident_memory_bytes" []
        "Resident memory of this process";
    FILES = Gauge Process "process_open_fds" []
        "Open file descriptors of this process";
    STARTED = Gauge Process "process_start_time_seconds" []
        "When this process started, in Unix time";
}

/// Whether each of these conditions has each status.
fn by_condition(
    metric: &'static Metric,
    types: &'static [&'static str],
    conditions: &[Condition],
) -> impl Iterator<Item = Sample> {
    types.iter().flat_map(move |&type_| {
        let there = conditions.iter().find(|it| it.type_ == type_);
        [("true", "True"), ("false", "False"), ("unknown", "Unknown")].map(|(label, value)| {
            let holds = there.is_some_and(|it| it.status == value);
            Sample { metric, values: [type_, label], value: holds.into() }
        })
    })
}

fn plain(metric: &'static Metric, value: f64) -> Sample {
    Sample { metric, values: [""; 2], value }
}

fn labelled(metric: &'static Metric, label: &'static str, value: f64) -> Sample {
    Sample { metric, values: [label, ""], value }
}

fn seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

#[cfg(test)]
mod tests;
