//! Writes that fail on their own: each is retried with a growing pause, and holds nothing else up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use etcd_operator_core::status::{FailedWrite, Trouble};

use super::failure::Failure;

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
    fn title(&self) -> String {
        match self {
            Self::Object(object) => object.clone(),
            Self::Status => "status".into(),
            Self::Message(pod) => format!("message to the agent in {pod}"),
        }
    }
}

/// Those that failed the last time.
#[derive(Default)]
pub struct SideWrites(BTreeMap<SideWrite, Failing>);

struct Failing {
    trouble: Trouble,
    error: String,
    failures: u32,
    retry_at: Instant,
}

impl SideWrites {
    pub fn is_due(&self, write: &SideWrite, now: Instant) -> bool {
        self.0.get(write).is_none_or(|failing| now >= failing.retry_at)
    }

    pub fn record(&mut self, write: SideWrite, result: Result<(), Failure>, now: Instant) {
        let Err(failure) = result else {
            self.0.remove(&write);
            return;
        };
        let (trouble, error) = (failure.trouble(), failure.cause());
        let before = self.0.remove(&write);
        if before.as_ref().is_none_or(|before| before.error != error) {
            tracing::debug!(write = write.title(), error, "write failed");
        }
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        let pause = FIRST_RETRY.saturating_mul(1 << (failures - 1).min(10)).min(LONGEST_RETRY);
        self.0.insert(write, Failing { trouble, error, failures, retry_at: now + pause });
    }

    /// Forgets messages to pods that are not told anything any more.
    pub fn forget_messages_except(&mut self, pods: &[String]) {
        self.0.retain(|write, _| match write {
            SideWrite::Message(pod) => pods.contains(pod),
            SideWrite::Object(_) | SideWrite::Status => true,
        });
    }

    pub fn trouble(&self, write: &SideWrite) -> Option<&Trouble> {
        self.0.get(write).map(|failing| &failing.trouble)
    }

    /// What the status reports. Waiting for an object of a previous cluster to be deleted is no failure.
    pub fn failed(&self) -> Vec<FailedWrite> {
        let is_failure = |(write, failing): &(&SideWrite, &Failing)| match write {
            SideWrite::Message(_) => failing.failures >= MESSAGES_MAY_FAIL,
            SideWrite::Object(_) | SideWrite::Status => !failing.trouble.is_wait(),
        };
        let failed = self.0.iter().filter(is_failure);
        failed.map(|(write, it)| FailedWrite { object: write.title(), error: it.error.clone() }).collect()
    }

    /// Until the next one is due. One that is due already and was not attempted has no place in this cluster now.
    pub fn next_retry(&self, now: Instant) -> Option<Duration> {
        let pauses = self.0.values().filter_map(|failing| failing.retry_at.checked_duration_since(now));
        pauses.filter(|pause| !pause.is_zero()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> SideWrite {
        SideWrite::Object("Service kv-nodeport".into())
    }

    fn taken() -> Result<(), Failure> {
        Err(Failure::NotOurs { what: "Service kv-nodeport".into() })
    }

    #[test]
    fn a_failing_write_is_retried_later_and_later_and_forgotten_when_it_succeeds() {
        let (mut writes, mut now) = (SideWrites::default(), Instant::now());
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
        writes.record(service(), Ok(()), now);
        assert_eq!((writes.failed(), writes.next_retry(now)), (vec![], None));
    }

    #[test]
    fn a_write_that_is_due_and_not_attempted_does_not_keep_the_worker_awake() {
        let (mut writes, now) = (SideWrites::default(), Instant::now());
        writes.record(service(), taken(), now);
        // A paused cluster, or one whose spec is invalid, writes no Services.
        assert_eq!(writes.next_retry(now + LONGEST_RETRY), None);
        assert!(writes.is_due(&service(), now + LONGEST_RETRY));
    }

    #[test]
    fn one_failing_write_does_not_delay_another() {
        let (mut writes, now) = (SideWrites::default(), Instant::now());
        writes.record(service(), taken(), now);
        assert!(writes.is_due(&SideWrite::Status, now));
        assert!(writes.is_due(&SideWrite::Object("Service kv-client".into()), now));
    }

    #[test]
    fn what_is_deleted_by_itself_soon_is_no_failure() {
        let (mut writes, now) = (SideWrites::default(), Instant::now());
        writes.record(service(), Err(Failure::LeftBehind { what: "Service kv-nodeport".into() }), now);
        assert_eq!(writes.failed(), []);
        assert!(writes.trouble(&service()).is_some_and(Trouble::is_wait));
    }

    #[test]
    fn a_message_that_does_not_arrive_is_reported_only_when_it_fails_again_and_again() {
        let (mut writes, now) = (SideWrites::default(), Instant::now());
        let message = || SideWrite::Message("kv-1".into());
        for expected in [0, 0, 1] {
            writes.record(message(), taken(), now);
            assert_eq!(writes.failed().len(), expected);
        }
        writes.forget_messages_except(&["kv-2".into()]);
        assert_eq!(writes.failed(), []);
    }
}
