//! Settings of etcd that users may choose. What is left out keeps etcd's own default.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// The size of the database at which etcd rejects writes. Default: etcd's own, 2 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16_777_216, max = 8_589_934_592_i64))]
    pub quota_backend_bytes: Option<i64>,

    /// Compact old revisions by age (`Periodic`) or by number (`Revision`). Set it together with
    /// `autoCompactionRetention`. Without both, etcd does not compact by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction_mode: Option<AutoCompactionMode>,

    /// The history to keep: a duration such as `30m`, `8h` or `1h30m` with `Periodic`, a number of revisions such
    /// as `"10000"` with `Revision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub auto_compaction_retention: Option<String>,

    /// The number of committed entries after which a member writes a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub snapshot_count: Option<i64>,

    /// The interval of the leader's heartbeats. Default: etcd's own, 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub heartbeat_interval_milliseconds: Option<i32>,

    /// The time without a heartbeat after which members elect a new leader. At least five times the heartbeat
    /// interval. Default: etcd's own, 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 50_000))]
    pub election_timeout_milliseconds: Option<i32>,

    /// Other command-line arguments of etcd, without leading dashes: `max-request-bytes: "10485760"`. Arguments
    /// that the operator sets are rejected.
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
