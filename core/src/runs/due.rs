//! For which time of a schedule a run is due.

use jiff::{SignedDuration, Timestamp};

use crate::schedule::Schedule;

/// How far back the last missed time is searched: a longer time only if a shorter one has none, so that few times are
/// counted.
const HOURS: [i64; 6] = [1, 24, 24 * 32, 24 * 400, 24 * 366 * 5, 24 * 366 * 50];

/// The last time that has come since this one. Times before it that were missed have no run of their own.
pub fn due(schedule: &Schedule, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let windows =
        HOURS.into_iter().filter_map(|hours| now.checked_sub(SignedDuration::from_hours(hours)).ok());
    let mut first =
        windows.filter_map(|start| schedule.next_after(start.max(since)).filter(|time| *time <= now));
    let times = std::iter::successors(first.next(), |time| schedule.next_after(*time));
    times.take_while(|time| *time <= now).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    #[test]
    fn of_all_times_that_have_come_the_last_one_is_due_and_none_twice() {
        let nightly = Schedule::new("0 2 * * *", "UTC").expect("a schedule");
        let created = at("2026-11-17T10:00:00Z");
        assert_eq!(due(&nightly, created, at("2026-11-17T23:00:00Z")), None);
        let first = at("2026-11-18T02:00:00Z");
        assert_eq!(due(&nightly, created, first), Some(first));
        assert_eq!(due(&nightly, first, at("2026-11-18T02:00:00.5Z")), None, "it has its run");
        assert_eq!(due(&nightly, first, at("2027-03-01T12:00:00Z")), Some(at("2027-03-01T02:00:00Z")));
        let often = Schedule::new("* * * * *", "UTC").expect("a schedule");
        assert_eq!(due(&often, created, at("2036-11-18T02:00:30Z")), Some(at("2036-11-18T02:00:00Z")));
        let seldom = Schedule::new("0 0 29 2 *", "UTC").expect("a schedule");
        assert_eq!(
            due(&seldom, at("2024-02-28T00:00:00Z"), at("2027-01-01T00:00:00Z")),
            Some(at("2024-02-29T00:00:00Z"))
        );
    }
}
