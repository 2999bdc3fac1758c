//! Writes beside the steps of a plan: each fails alone, is retried with a growing pause, and holds nothing else up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::{Outcome, elapsed};
use crate::status::{FailedWrite, Trouble};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(15);
/// An agent that becomes etcd in this moment does not take the message, and does not need it.
const MESSAGES_MAY_FAIL: u32 = 3;

/// What is written beside the steps of a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideWrite {
    /// By kind and name: `Service kv-client`.
    Object(String),
    Status,
    /// To the agent in this pod.
    Message(String),
}

impl SideWrite {
    pub fn title(&self) -> String {
        match self {
            Self::Object(object) => object.clone(),
            Self::Status => "status".into(),
            Self::Message(pod) => format!("message to the agent in {pod}"),
        }
    }
}

/// Those that failed the last time.
#[derive(Clone, Debug, Default)]
pub struct SideWrites(BTreeMap<SideWrite, Failing>);

#[derive(Clone, Debug)]
struct Failing {
    trouble: Trouble,
    /// 0 while it might have been done.
    failures: u32,
    failed_at: Timestamp,
    retry_after: Duration,
}

impl SideWrites {
    pub fn is_due(&self, write: &SideWrite, now: Timestamp) -> bool {
        self.0.get(write).is_none_or(|failing| failing.rest(now).is_zero())
    }

    /// Whether it has not failed with this trouble before, or is due again.
    pub(super) fn is_news(&self, write: &SideWrite, trouble: &Trouble, now: Timestamp) -> bool {
        self.is_due(write, now) || self.0.get(write).is_none_or(|failing| failing.trouble != *trouble)
    }

    /// Whether an object is written again that could not be written before.
    pub(super) fn retries_object(&self, now: Timestamp) -> bool {
        let object = |write: &SideWrite| matches!(write, SideWrite::Object(_));
        self.0.iter().any(|(write, failing)| object(write) && failing.rest(now).is_zero())
    }

    /// What became of a write.
    pub fn record(&mut self, write: SideWrite, outcome: Outcome, now: Timestamp) {
        let before = self.0.remove(&write);
        let failures = before.as_ref().map_or(0, |before| before.failures).saturating_add(1);
        let doubled = FIRST_RETRY.saturating_mul(1 << (failures - 1).min(10)).min(LONGEST_RETRY);
        let (trouble, failures, retry_after) = match outcome {
            Outcome::Done => return,
            // A status is computed anew from the next observation.
            Outcome::Overtaken if write == SideWrite::Status => return,
            // A cache that stays old must not lead to a request in every round.
            Outcome::Overtaken => (Trouble::Failed("it was changed in between".into()), 0, FIRST_RETRY),
            // The next observation shows whether it was done.
            Outcome::Ambiguous(why) if before.is_none() => (Trouble::Failed(why), 0, Duration::ZERO),
            Outcome::Ambiguous(why) => (Trouble::Failed(why), failures, doubled),
            Outcome::NotDone(trouble) => (trouble, failures, doubled),
        };
        self.0.insert(write, Failing { trouble, failures, failed_at: now, retry_after });
    }

    /// What is not to be written any more has not failed.
    pub(super) fn forget_all_but<'a>(&mut self, wanted: impl Iterator<Item = &'a SideWrite>) {
        let wanted: BTreeSet<&SideWrite> = wanted.collect();
        self.0.retain(|write, _| wanted.contains(write));
    }

    /// Why a step that depends on this write cannot be done, if so.
    pub fn trouble(&self, write: &SideWrite) -> Option<Trouble> {
        self.0.get(write).map(|failing| failing.trouble.of(&write.title()))
    }

    /// What the status reports. Waiting for an object of a previous cluster to be deleted is no failure.
    pub fn failed(&self) -> Vec<FailedWrite> {
        let is_failure = |(write, failing): &(&SideWrite, &Failing)| match write {
            SideWrite::Message(_) => failing.failures >= MESSAGES_MAY_FAIL,
            SideWrite::Object(_) | SideWrite::Status => failing.failures > 0 && !failing.trouble.is_wait(),
        };
        let failed = self.0.iter().filter(is_failure);
        failed.map(|(write, it)| FailedWrite { object: write.title(), error: it.trouble.cause() }).collect()
    }

    /// Until the next one is due. One that is due already and was not attempted has no place in this cluster now.
    pub fn next_retry(&self, now: Timestamp) -> Option<Duration> {
        self.0.values().map(|failing| failing.rest(now)).filter(|rest| !rest.is_zero()).min()
    }
}

impl Failing {
    fn rest(&self, now: Timestamp) -> Duration {
        match now < self.failed_at {
            // The clock was set back.
            true => Duration::ZERO,
            false => self.retry_after.saturating_sub(elapsed(self.failed_at, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn service() -> SideWrite {
        SideWrite::Object("Service kv-nodeport".into())
    }

    fn taken() -> Outcome {
        Outcome::NotDone(Trouble::Failed("Service kv-nodeport exists already".into()))
    }

    #[test]
    fn a_failing_write_is_retried_later_and_later_and_forgotten_when_it_succeeds() {
        let (mut writes, mut now) = (SideWrites::default(), NOW);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            writes.record(service(), taken(), now);
            assert!(!writes.is_due(&service(), now));
            let pause = writes.next_retry(now).expect("it is retried");
            now += pause;
            assert!(writes.is_due(&service(), now));
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 15000, 15000, 15000]);
        assert_eq!(writes.failed()[0].object, "Service kv-nodeport");
        writes.record(service(), Outcome::Done, now);
        assert_eq!((writes.failed(), writes.next_retry(now)), (vec![], None));
    }

    #[test]
    fn a_write_that_is_due_and_not_attempted_does_not_keep_the_worker_awake() {
        let mut writes = SideWrites::default();
        writes.record(service(), taken(), NOW);
        // A paused cluster, or one whose spec is invalid, writes no Services.
        assert_eq!(writes.next_retry(NOW + LONGEST_RETRY), None);
        assert!(writes.is_due(&service(), NOW + LONGEST_RETRY));
    }

    #[test]
    fn one_failing_write_does_not_delay_another() {
        let mut writes = SideWrites::default();
        writes.record(service(), taken(), NOW);
        assert!(writes.is_due(&SideWrite::Status, NOW));
        assert!(writes.is_due(&SideWrite::Object("Service kv-client".into()), NOW));
    }

    #[test]
    fn what_is_deleted_by_itself_soon_is_no_failure() {
        let mut writes = SideWrites::default();
        let left_behind = Trouble::LeftBehind("Service kv-nodeport".into());
        writes.record(service(), Outcome::NotDone(left_behind.clone()), NOW);
        assert_eq!(writes.failed(), []);
        assert_eq!(writes.trouble(&service()), Some(left_behind));
    }

    #[test]
    fn a_step_that_depends_on_a_failing_write_names_it() {
        let mut writes = SideWrites::default();
        writes.record(service(), Outcome::NotDone(Trouble::Failed("forbidden".into())), NOW);
        let trouble = Trouble::Failed("cannot write Service kv-nodeport: forbidden".into());
        assert_eq!(writes.trouble(&service()), Some(trouble));
    }

    #[test]
    fn a_message_that_does_not_arrive_is_reported_only_when_it_fails_again_and_again() {
        let mut writes = SideWrites::default();
        let message = || SideWrite::Message("kv-1".into());
        for expected in [0, 0, 1] {
            writes.record(message(), taken(), NOW);
            assert_eq!(writes.failed().len(), expected);
        }
        writes.forget_all_but([SideWrite::Message("kv-2".into())].iter());
        assert_eq!(writes.failed(), []);
    }

    #[test]
    fn a_write_without_a_response_is_sent_again_at_once_and_reported_the_second_time() {
        let mut writes = SideWrites::default();
        let silence = || Outcome::Ambiguous("no response".into());
        for write in [service(), SideWrite::Status] {
            writes.record(write.clone(), silence(), NOW);
            assert!(writes.is_due(&write, NOW));
            assert_eq!(
                (writes.failed(), writes.next_retry(NOW)),
                (vec![], None),
                "it might have been carried out"
            );
            writes.record(write.clone(), silence(), NOW);
            assert_eq!(writes.failed().len(), 1);
            assert!(!writes.is_due(&write, NOW));
            writes.record(write, Outcome::Done, NOW);
        }
    }

    #[test]
    fn what_was_changed_in_between_is_written_again_a_little_later_and_is_no_failure() {
        let mut writes = SideWrites::default();
        writes.record(service(), Outcome::Overtaken, NOW);
        assert_eq!(writes.failed(), []);
        assert!(!writes.is_due(&service(), NOW) && writes.is_due(&service(), NOW + FIRST_RETRY));
        writes.record(SideWrite::Status, Outcome::Overtaken, NOW);
        assert!(writes.is_due(&SideWrite::Status, NOW), "it is computed anew");
    }
}
