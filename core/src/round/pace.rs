//! How soon to observe again when nothing wakes the operator.

use std::time::Duration;

use jiff::Timestamp;

use super::elapsed;
use crate::plan::{Plan, WaitingOn};

/// A settled cluster: changes wake us, and this is only for what nobody reports. The longer it stays settled while it is
/// watched, the less there is to find.
const SETTLED: [Duration; 3] = [Duration::from_secs(10), Duration::from_secs(20), Duration::from_secs(30)];
/// Something is under way, and etcd does not report when it is done.
const UNDER_WAY: [(Duration, Duration); 3] = [
    (Duration::from_secs(15), Duration::from_millis(250)),
    (Duration::from_secs(60), Duration::from_secs(1)),
    (Duration::MAX, Duration::from_secs(3)),
];
/// Something is under way where Kubernetes reports everything but the passing of time.
const NOBODY_TO_ASK: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(15);
/// However often something wakes us, a failing step is not retried more often than this.
const SHORTEST_RETRY: Duration = Duration::from_secs(1);

/// How long to sleep: so long in any case, and then so much longer unless something wakes us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub at_least: Duration,
    pub at_most: Duration,
}

impl Pause {
    /// Cut short when something is known to happen in this time.
    pub(super) fn or_sooner(self, known: Option<Duration>) -> Self {
        Self { at_most: known.map_or(self.at_most, |known| known.min(self.at_most)), ..self }
    }
}

/// How we learn that something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnsBy {
    /// By streams: one to every member has been open since the last observation, and it ends when the member or its leader
    /// goes.
    Streams,
    /// Only by asking the pods.
    Asking,
    /// There is no pod to ask. Kubernetes reports when there is.
    Kubernetes,
}

/// The time, and up to a fifth more or less: what failed together should not return together.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: Timestamp,
    /// From 0 to 400.
    pub dice: u32,
}

impl Clock {
    /// The dice are cast by the last digits of the time.
    pub fn at(now: Timestamp) -> Self {
        Self { now, dice: now.subsec_nanosecond().unsigned_abs() % 401 }
    }

    fn jitter(self, pause: Duration) -> Duration {
        pause * (800 + self.dice) / 1000
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    failures: u32,
    waiting_since: Option<Timestamp>,
    /// How many observations in a row have found that all is settled and has been watched since the one before.
    calm: usize,
}

impl Pace {
    /// Something was done: what comes next is new.
    pub fn progress(&mut self) {
        *self = Self::default();
    }

    pub fn after(&mut self, plan: &Plan, learns_by: LearnsBy, clock: Clock) -> Pause {
        if plan.waiting.iter().any(|awaited| !awaited.is_for_users() && awaited.until().is_none()) {
            let Pause { at_least, at_most } = self.waiting(clock.now);
            let at_most =
                if learns_by == LearnsBy::Kubernetes { at_most.max(NOBODY_TO_ASK) } else { at_most };
            return Pause { at_least, at_most };
        }
        let settled = plan.actions.is_empty() && plan.refusals.is_empty();
        let calm = if learns_by != LearnsBy::Asking && settled { self.calm } else { 0 };
        *self = Self { calm: calm.saturating_add(1), ..Self::default() };
        let pause = SETTLED[calm.min(SETTLED.len() - 1)];
        let pause = until_a_stroke(pause / 2, clock.jitter(pause), clock.now);
        let ends = plan.waiting.iter().filter_map(WaitingOn::until).min();
        Pause { at_least: Duration::ZERO, at_most: pause }.or_sooner(ends.map(|end| elapsed(clock.now, end)))
    }

    /// Something has to happen that nobody will report.
    pub fn waiting(&mut self, now: Timestamp) -> Pause {
        (self.failures, self.calm) = (0, 0);
        let waited = elapsed(*self.waiting_since.get_or_insert(now), now);
        let (_, pause) = UNDER_WAY.iter().find(|(until, _)| waited < *until).unwrap_or(&UNDER_WAY[2]);
        Pause { at_least: Duration::ZERO, at_most: *pause }
    }

    pub fn failure(&mut self, clock: Clock) -> Pause {
        (self.failures, self.calm) = (self.failures.saturating_add(1), 0);
        let doubled = FIRST_RETRY.saturating_mul(1 << (self.failures - 1).min(10));
        let pause = clock.jitter(doubled.min(LONGEST_RETRY));
        let at_least = pause.min(SHORTEST_RETRY);
        Pause { at_least, at_most: pause - at_least }
    }
}

/// Waking up costs more than observing, so settled clusters are observed together: the pause ends when the clock strikes,
/// nearest to where it would have ended.
fn until_a_stroke(stroke: Duration, pause: Duration, now: Timestamp) -> Duration {
    let milliseconds = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let (now, stroke) = (now.as_millisecond(), milliseconds(stroke));
    let end = now + milliseconds(pause) + stroke / 2;
    Duration::from_millis((end - end % stroke - now).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use crate::decide::Reason;
    use crate::observed::Ordinal;
    use crate::plan::Refusal;

    use super::*;

    const CLOCK: Clock = Clock { now: Timestamp::UNIX_EPOCH, dice: 200 };

    #[test]
    fn failures_are_tried_again_later_and_later_but_not_for_ever_later() {
        let mut pace = Pace::default();
        let pauses: Vec<Duration> =
            (0..40).map(|_| pace.failure(CLOCK)).map(|it| it.at_least + it.at_most).collect();
        assert!(pauses[0] <= Duration::from_millis(300), "{:?}", pauses[0]);
        assert!(pauses[5] >= Duration::from_secs(6), "{:?}", pauses[5]);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_RETRY * 6 / 5));
        pace.progress();
        let pause = pace.failure(CLOCK);
        assert!(pause.at_least + pause.at_most <= Duration::from_millis(300));
    }

    #[test]
    fn a_settled_cluster_is_left_in_peace_and_one_under_way_is_watched() {
        let mut pace = Pace::default();
        assert!(pace.after(&Plan::default(), LearnsBy::Asking, CLOCK).at_most >= Duration::from_secs(5));
        let waiting = Plan::wait(WaitingOn::Start { ordinal: Ordinal(1) });
        for (learns_by, milliseconds) in
            [(LearnsBy::Streams, 250), (LearnsBy::Asking, 250), (LearnsBy::Kubernetes, 1000)]
        {
            let at_most = Duration::from_millis(milliseconds);
            assert_eq!(pace.after(&waiting, learns_by, CLOCK), Pause { at_least: Duration::ZERO, at_most });
        }
    }

    fn near(pause: Pause, seconds: u64) {
        let expected = Duration::from_secs(seconds);
        assert!(pause.at_most >= expected / 2 && pause.at_most <= expected * 3 / 2, "{pause:?}");
    }

    #[test]
    fn a_cluster_that_stays_settled_is_looked_at_less_often_as_long_as_it_is_watched() {
        let mut pace = Pace::default();
        for seconds in [10, 20, 30, 30] {
            near(pace.after(&Plan::default(), LearnsBy::Streams, CLOCK), seconds);
        }
        near(pace.after(&Plan::default(), LearnsBy::Asking, CLOCK), 10);
        near(pace.after(&Plan::default(), LearnsBy::Kubernetes, CLOCK), 20);
        pace.waiting(CLOCK.now);
        near(pace.after(&Plan::default(), LearnsBy::Streams, CLOCK), 10);
        pace.failure(CLOCK);
        near(pace.after(&Plan::default(), LearnsBy::Streams, CLOCK), 10);
        // What is refused is not settled, although there is nothing to do.
        let refused = Plan::refuse(Refusal::DataLost);
        near(pace.after(&refused, LearnsBy::Streams, CLOCK), 10);
        near(pace.after(&refused, LearnsBy::Streams, CLOCK), 10);
    }

    #[test]
    fn a_paused_cluster_is_observed_like_a_settled_one() {
        let paused = Plan::wait(WaitingOn::Unpause);
        let mut pace = Pace::default();
        for seconds in [10, 20, 30, 30] {
            near(pace.after(&paused, LearnsBy::Streams, CLOCK), seconds);
        }
        near(pace.after(&paused, LearnsBy::Asking, CLOCK), 10);
        // What is awaited beside the pause is still polled for.
        let also = Plan::wait(WaitingOn::Start { ordinal: Ordinal(1) });
        assert!(pace.after(&paused.then(also), LearnsBy::Asking, CLOCK).at_most < Duration::from_secs(1));
    }

    #[test]
    fn a_cluster_that_waits_for_consent_is_observed_when_the_window_opens_and_not_polled() {
        let waiting = |seconds: i64| {
            let opens = Some(Timestamp::from_second(seconds).expect("a time"));
            let (ordinals, reason) = (vec![Ordinal(0)], Reason::AgentRequired);
            Plan::wait(WaitingOn::Consent { ordinals, reason, opens })
        };
        let mut pace = Pace::default();
        for seconds in [10, 20, 30, 30] {
            near(pace.after(&waiting(86_400), LearnsBy::Streams, CLOCK), seconds);
        }
        let at_most = Duration::from_secs(3);
        let soon = pace.after(&waiting(3), LearnsBy::Streams, CLOCK);
        assert_eq!(soon, Pause { at_least: Duration::ZERO, at_most });
    }

    #[test]
    fn settled_clusters_are_looked_at_together() {
        for (now, pause, expected) in [(0, 10_000, 10_000), (1234, 9_000, 8_766), (4_999, 10_400, 10_001)] {
            let now = Timestamp::from_millisecond(now).expect("a time");
            let pause = until_a_stroke(Duration::from_secs(5), Duration::from_millis(pause), now);
            assert_eq!(pause, Duration::from_millis(expected));
        }
    }
}
