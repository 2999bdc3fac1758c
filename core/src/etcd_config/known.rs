//! Which arguments a version of etcd knows, as far as they changed between minor versions.
//!
//! What is not listed here is left to etcd: `etcd FLAGS --version` rejects what it does not know. It accepts two names
//! of one argument beside each other, though, and the start fails.

use std::collections::BTreeMap;

use super::Problem;
use crate::rules::options::is_owned;
use crate::version::Version;

const FEATURE_GATES: &str = "feature-gates";
const EXPERIMENTAL: &str = "experimental-";
/// From this version on arguments have their new names.
const RENAMED_IN: Version = Version::new(3, 6, 0);
/// From this version on they have them only.
const REMOVED_IN: Version = Version::new(3, 7, 0);

/// 3.6 dropped `experimental-` from these.
const RENAMED: [&str; 16] = [
    "bootstrap-defrag-threshold-megabytes",
    "compact-hash-check-time",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "corrupt-check-time",
    "distributed-tracing-address",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
    "distributed-tracing-service-name",
    "downgrade-check-time",
    "enable-distributed-tracing",
    "memory-mlock",
    "snapshot-catchup-entries",
    "warning-apply-duration",
    "warning-unary-request-duration",
    "watch-progress-notify-interval",
];

/// 3.6 made feature gates of these.
const GATES: [(&str, &str); 6] = [
    ("experimental-compact-hash-check-enabled", "CompactHashCheck"),
    ("experimental-enable-lease-checkpoint", "LeaseCheckpoint"),
    ("experimental-enable-lease-checkpoint-persist", "LeaseCheckpointPersist"),
    ("experimental-initial-corrupt-check", "InitialCorruptCheck"),
    ("experimental-stop-grpc-service-on-defrag", "StopGRPCServiceOnDefrag"),
    ("experimental-txn-mode-write-with-shared-buffer", "TxnModeWriteWithSharedBuffer"),
];

/// Feature gates that came with 3.7. All others came with 3.6.
const GATES_SINCE_REMOVAL: [&str; 2] = ["FastLeaseKeepAlive", "PriorityRequest"];

/// Arguments that came with 3.6 and were nowhere before.
const SINCE_RENAMING: [&str; 2] = ["log-format", "warning-unary-request-duration"];

/// The gates that the operator sets in every version that has gates, whether or not at each start.
const OUR_GATES: [&str; 2] = ["CompactHashCheck", "InitialCorruptCheck"];

/// Everything among users' arguments with which this version does not start.
pub(crate) fn problems(version: Version, arguments: &BTreeMap<String, String>) -> Vec<Problem> {
    let gates = arguments.get(FEATURE_GATES).map_or("", String::as_str);
    let of_names = arguments
        .keys()
        .filter(|name| !is_owned(name))
        .filter_map(|name| unknown(version, name).or_else(|| twice(version, name, gates, arguments)));
    let of_gates = gate_names(gates).filter(|_| version >= RENAMED_IN).filter_map(|gate| {
        let is_new = GATES_SINCE_REMOVAL.contains(&gate) && version < REMOVED_IN;
        is_new.then(|| Problem::UnknownGate { gate: gate.to_owned(), version })
    });
    of_names.chain(of_gates).collect()
}

fn unknown(version: Version, name: &str) -> Option<Problem> {
    let old = name.strip_prefix(EXPERIMENTAL);
    let instead = match old {
        Some(new) if version >= REMOVED_IN => new_name(name, new),
        None if version < RENAMED_IN && name == FEATURE_GATES => {
            Some(format!("arguments that begin with {EXPERIMENTAL}"))
        }
        None if version < RENAMED_IN && SINCE_RENAMING.contains(&name) => None,
        None if version < RENAMED_IN && RENAMED.contains(&name) => Some(format!("{EXPERIMENTAL}{name}")),
        Some(new) if version < RENAMED_IN && SINCE_RENAMING.contains(&new) => None,
        Some(_) | None => return None,
    };
    Some(Problem::UnknownArgument { argument: name.to_owned(), version, instead })
}

fn new_name(name: &str, without_prefix: &str) -> Option<String> {
    gate_of(name)
        .map(in_gates)
        .or_else(|| RENAMED.contains(&without_prefix).then(|| without_prefix.to_owned()))
}

/// Versions that know both names do not start with both of them.
fn twice(version: Version, name: &str, gates: &str, arguments: &BTreeMap<String, String>) -> Option<Problem> {
    if version < RENAMED_IN {
        return None;
    }
    let new = name.strip_prefix(EXPERIMENTAL)?;
    let instead = match gate_of(name) {
        // etcd compares texts: a gate whose name begins with the other one's counts, too.
        Some(gate) if OUR_GATES.contains(&gate) || gate_names(gates).any(|it| it.contains(gate)) => {
            in_gates(gate)
        }
        None if RENAMED.contains(&new) && arguments.contains_key(new) => new.to_owned(),
        Some(_) | None => return None,
    };
    Some(Problem::Twice { argument: name.to_owned(), version, instead })
}

fn gate_of(name: &str) -> Option<&'static str> {
    GATES.iter().find(|(argument, _)| *argument == name).map(|(_, gate)| *gate)
}

fn in_gates(gate: &str) -> String {
    format!("{gate} in {FEATURE_GATES}")
}

fn gate_names(gates: &str) -> impl Iterator<Item = &str> {
    gates.split(',').filter_map(|gate| gate.split('=').next()).map(str::trim)
}
