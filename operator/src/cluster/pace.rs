//! How soon to look again when nothing wakes us.

use std::time::{Duration, Instant};

use etcd_operator_core::plan::Plan;
use jiff::Timestamp;

/// A settled cluster: changes wake us, this is only for what tells nobody.
const SETTLED: Duration = Duration::from_secs(10);
/// Something is under way, and etcd does not tell when it is done.
const UNDER_WAY: [(Duration, Duration); 3] = [
    (Duration::from_secs(15), Duration::from_millis(250)),
    (Duration::from_secs(60), Duration::from_secs(1)),
    (Duration::MAX, Duration::from_secs(3)),
];
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(15);
/// However often something wakes us, a failing step is not tried more often than this.
const SHORTEST_RETRY: Duration = Duration::from_secs(1);

/// How long to sleep: so long in any case, and then so much longer unless something wakes us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub at_least: Duration,
    pub at_most: Duration,
}

#[derive(Default)]
pub struct Pace {
    failures: u32,
    waiting_since: Option<Instant>,
}

impl Pace {
    /// Something was done: what comes next is new.
    pub fn progress(&mut self) {
        *self = Self::default();
    }

    pub fn after(&mut self, plan: &Plan) -> Pause {
        if !plan.waiting.is_empty() {
            return self.waiting();
        }
        self.progress();
        Pause { at_least: Duration::ZERO, at_most: jitter(SETTLED) }
    }

    /// Something has to happen that nobody will tell us.
    pub fn waiting(&mut self) -> Pause {
        self.failures = 0;
        let waited = self.waiting_since.get_or_insert_with(Instant::now).elapsed();
        let (_, pause) = UNDER_WAY.iter().find(|(until, _)| waited < *until).unwrap_or(&UNDER_WAY[2]);
        Pause { at_least: Duration::ZERO, at_most: *pause }
    }

    pub fn failure(&mut self) -> Pause {
        self.failures = self.failures.saturating_add(1);
        let doubled = FIRST_RETRY.saturating_mul(1 << (self.failures - 1).min(10));
        let pause = jitter(doubled.min(LONGEST_RETRY));
        let at_least = pause.min(SHORTEST_RETRY);
        Pause { at_least, at_most: pause - at_least }
    }
}

/// Up to a fifth more or less, so that what failed together does not come back together.
fn jitter(pause: Duration) -> Duration {
    let dice = Timestamp::now().subsec_nanosecond().unsigned_abs() % 401;
    pause * (800 + dice) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_tried_again_later_and_later_but_not_for_ever_later() {
        let mut pace = Pace::default();
        let pauses: Vec<Duration> =
            (0..40).map(|_| pace.failure()).map(|it| it.at_least + it.at_most).collect();
        assert!(pauses[0] <= Duration::from_millis(300), "{:?}", pauses[0]);
        assert!(pauses[5] >= Duration::from_secs(6), "{:?}", pauses[5]);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_RETRY * 6 / 5));
        pace.progress();
        let pause = pace.failure();
        assert!(pause.at_least + pause.at_most <= Duration::from_millis(300));
    }

    #[test]
    fn a_settled_cluster_is_left_in_peace_and_one_under_way_is_watched() {
        let mut pace = Pace::default();
        assert!(pace.after(&Plan::default()).at_most >= Duration::from_secs(8));
        let waiting = Plan::wait(etcd_operator_core::plan::WaitingOn::Unpause);
        assert_eq!(
            pace.after(&waiting),
            Pause { at_least: Duration::ZERO, at_most: Duration::from_millis(250) }
        );
    }
}
