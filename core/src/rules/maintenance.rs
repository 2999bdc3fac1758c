//! Rules about maintenance windows.

use super::{Rule, Server};
use crate::api::{
    Defragmentation, EtcdClusterSpec, MAX_CHECK_SECONDS, MAX_FRAGMENTATION_PERCENT, MAX_MINUTES,
    MAX_SCHEDULE_LENGTH, MAX_TIME_ZONE_LENGTH, MAX_WINDOWS, MIN_CHECK_SECONDS, MIN_FRAGMENTATION_PERCENT,
    MaintenanceWindow,
};
use crate::schedule::{has_five_fields, is_expression, is_time_zone};

const AT: &str = "maintenance.windows";
const CHECK_AT: &str = "maintenance.consistencyCheck.intervalSeconds";

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    Rule {
        at: AT,
        server: Server::Schema,
        message: "must be at most 8 windows, each with a durationMinutes of 1 to 1440, a schedule of at most 100 \
            characters and a timeZone of at most 64",
        broken: |spec| windows(spec).count() > MAX_WINDOWS || windows(spec).any(is_too_large),
    },
    Rule {
        at: AT,
        server: Server::Cel(r"self.all(it, it.schedule.matches('^\\s*\\S+(\\s+\\S+){4}\\s*$'))"),
        message: "a schedule must have five fields, such as \"0 3 * * 6\": minute, hour, day of the month, month and \
            day of the week",
        broken: |spec| windows(spec).any(|it| !has_five_fields(&it.schedule)),
    },
    Rule {
        at: AT,
        server: Server::Nothing,
        message: "a schedule must be a cron expression that occurs: use numbers in the range of their field, *, lists, \
            ranges, steps, and names such as SAT, as in \"0 3 * * 6\"",
        broken: |spec| windows(spec).any(|it| has_five_fields(&it.schedule) && !is_expression(&it.schedule)),
    },
    Rule {
        at: AT,
        server: Server::Nothing,
        message: "a timeZone must be the name of an IANA time zone, such as Europe/Berlin or UTC",
        broken: |spec| windows(spec).any(|it| !is_time_zone(&it.time_zone)),
    },
    Rule {
        at: CHECK_AT,
        server: Server::Schema,
        message: "must be from 0 to 2592000 (30 days)",
        broken: |spec| check_seconds(spec).is_some_and(|it| !(0..=MAX_CHECK_SECONDS).contains(&it)),
    },
    Rule {
        at: CHECK_AT,
        server: Server::Cel("self <= 0 || self >= 10"),
        message: "must be 10 or more: each comparison reads all data; 0 disables it",
        broken: |spec| check_seconds(spec).is_some_and(|it| (1..MIN_CHECK_SECONDS).contains(&it)),
    },
    Rule {
        at: "maintenance.defragmentation.minFragmentationPercent",
        server: Server::Schema,
        message: "must be from 10 to 95",
        broken: |spec| {
            let range = MIN_FRAGMENTATION_PERCENT..=MAX_FRAGMENTATION_PERCENT;
            defragmentation(spec).is_some_and(|it| !range.contains(&it.min_fragmentation_percent))
        },
    },
    Rule {
        at: "maintenance.defragmentation.minSizeBytes",
        server: Server::Schema,
        message: "must be 0 or more",
        broken: |spec| defragmentation(spec).is_some_and(|it| it.min_size_bytes < 0),
    },
];

fn defragmentation(spec: &EtcdClusterSpec) -> Option<&Defragmentation> {
    spec.maintenance.as_ref()?.defragmentation.as_ref()
}

fn check_seconds(spec: &EtcdClusterSpec) -> Option<i64> {
    Some(spec.maintenance.as_ref()?.consistency_check.as_ref()?.interval_seconds)
}

fn windows(spec: &EtcdClusterSpec) -> impl Iterator<Item = &MaintenanceWindow> {
    spec.maintenance.iter().flat_map(|it| &it.windows)
}

fn is_too_large(window: &MaintenanceWindow) -> bool {
    let MaintenanceWindow { schedule, time_zone, duration_minutes } = window;
    !(1..=MAX_MINUTES).contains(duration_minutes)
        || schedule.len() > MAX_SCHEDULE_LENGTH
        || time_zone.len() > MAX_TIME_ZONE_LENGTH
}
