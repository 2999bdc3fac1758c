//! When the operator may do what clients notice.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const MAX_WINDOWS: usize = 8;
pub const MAX_SCHEDULE_LENGTH: usize = 100;
pub const MAX_TIME_ZONE_LENGTH: usize = 64;
/// A day.
pub const MAX_MINUTES: i32 = 1440;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// When the operator may begin to restart a member of a cluster of one or two voters for reasons of its own: such a
    /// restart stops writes. Your own edits and requests do not wait for a window, and neither do three or more voters.
    /// Default: none, so the operator asks for consent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_WINDOWS), extend("x-kubernetes-list-type" = "atomic"))]
    pub windows: Vec<MaintenanceWindow>,
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
