//! When the operator may do what clients notice.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const MAX_WINDOWS: usize = 8;
pub const MAX_SCHEDULE_LENGTH: usize = 100;
pub const MAX_TIME_ZONE_LENGTH: usize = 64;
/// A day.
pub const MAX_MINUTES: i32 = 1440;
pub const MIN_FRAGMENTATION_PERCENT: i32 = 10;
pub const MAX_FRAGMENTATION_PERCENT: i32 = 95;
pub const MIN_CHECK_SECONDS: i64 = 10;
/// Thirty days.
pub const MAX_CHECK_SECONDS: i64 = 2_592_000;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// When the operator may begin to restart a member of a cluster of one or two voters for reasons of its own: such a
    /// restart stops writes. Your own edits and requests do not wait for a window, and neither do three or more voters.
    /// Default: none, so the operator asks for consent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_WINDOWS), extend("x-kubernetes-list-type" = "atomic"))]
    pub windows: Vec<MaintenanceWindow>,

    /// How often the operator compares the data of all members. Each comparison reads the whole database of each member once, one
    /// member after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency_check: Option<ConsistencyCheck>,

    /// When the operator defragments members whose database files are mostly unused, one at a time, followers first. A member does
    /// not serve meanwhile. With `windows`, only while one is open; with one or two voters, never without a window. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragmentation: Option<Defragmentation>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmentation {
    /// A member is defragmented if at least this part of its database file is unused, in percent.
    #[serde(default = "mostly_unused")]
    #[schemars(range(min = MIN_FRAGMENTATION_PERCENT, max = MAX_FRAGMENTATION_PERCENT))]
    pub min_fragmentation_percent: i32,

    /// And if its database file has at least this size, in bytes.
    #[serde(default = "worth_it")]
    #[schemars(range(min = 0))]
    pub min_size_bytes: i64,
}

fn mostly_unused() -> i32 {
    45
}

fn worth_it() -> i64 {
    100 << 20
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsistencyCheck {
    /// Seconds from one comparison to the next: 10 or more. With 0 the operator compares no data, and replaces no member whose data
    /// differs.
    #[serde(default = "hourly")]
    #[schemars(range(min = 0, max = MAX_CHECK_SECONDS))]
    pub interval_seconds: i64,
}

impl Default for ConsistencyCheck {
    fn default() -> Self {
        Self { interval_seconds: hourly() }
    }
}

impl ConsistencyCheck {
    /// None if data is never compared.
    pub fn interval(&self) -> Option<i64> {
        Some(self.interval_seconds).filter(|seconds| *seconds > 0).map(|it| it.max(MIN_CHECK_SECONDS))
    }
}

fn hourly() -> i64 {
    3600
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// When the window opens: a cron expression with minute, hour, day of the month, month and day of the week, such as
    /// `0 3 * * 6`.
    #[schemars(length(max = MAX_SCHEDULE_LENGTH))]
    pub schedule: String,

    /// The IANA time zone of the schedule, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    #[schemars(length(max = MAX_TIME_ZONE_LENGTH))]
    pub time_zone: String,

    /// How long the window stays open. A restart that has begun is completed.
    #[schemars(range(min = 1, max = MAX_MINUTES))]
    pub duration_minutes: i32,
}

fn utc() -> String {
    "UTC".into()
}
