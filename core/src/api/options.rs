//! Settings of etcd that users may choose. What is left out keeps etcd's own default.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// How large the database may grow before etcd refuses writes; etcd's default is 2 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16_777_216, max = 8_589_934_592_i64))]
    pub quota_backend_bytes: Option<i64>,

    /// Whether old revisions are compacted by their age or by their number. Goes together with
    /// `autoCompactionRetention`; without both, nothing is compacted by etcd itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction_mode: Option<AutoCompactionMode>,

    /// How much history is kept: a time such as `30m`, `8h` or `1h30m` with `Periodic`, a number of revisions
    /// such as `"10000"` with `Revision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub auto_compaction_retention: Option<String>,

    /// After how many committed entries a member takes a snapshot of its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub snapshot_count: Option<i64>,

    /// How often the leader says that it is there; etcd's default is 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub heartbeat_interval_milliseconds: Option<i32>,

    /// How long the others wait for the leader before they elect another; etcd's default is 1000. At least
    /// five times the heartbeat interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 50_000))]
    pub election_timeout_milliseconds: Option<i32>,

    /// Other arguments of etcd, by name without the leading dashes: `max-request-bytes: "10485760"`. Those
    /// that the operator sets itself are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 32,
        "additionalProperties" = {"type": "string", "maxLength": 1024, "pattern": "^[ -~]*$"}
    ))]
    pub extra_arguments: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AutoCompactionMode {
    Periodic,
    Revision,
}
