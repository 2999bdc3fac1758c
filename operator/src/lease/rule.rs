//! When a candidate may take the Lease. No clock is compared with another: the times in the record are for people.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use tokio::time::Instant;

/// All of it follows from how long an unchanged record keeps others away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub duration: Duration,
    /// A leader that could not renew for so long stops, well before anybody else may begin.
    pub renew_within: Duration,
    pub renew_every: Duration,
    /// How often candidates look, and how soon something that failed is tried again.
    pub look_every: Duration,
    /// How long one request may take.
    pub patience: Duration,
}

impl Times {
    pub fn of(duration: Duration) -> Self {
        let renew_within = duration * 2 / 3;
        Self {
            duration,
            renew_within,
            renew_every: duration / 7,
            look_every: duration / 15,
            patience: renew_within / 2,
        }
    }
}

/// What one candidate has seen so far.
#[derive(Debug)]
pub struct Candidate {
    identity: String,
    duration: Duration,
    seen: Option<(Record, Instant)>,
}

#[derive(Debug, PartialEq)]
enum Record {
    /// Nobody leads, as far as can be known.
    Free,
    /// Deleted while somebody held it, who may not know yet.
    Vanished,
    Held(LeaseSpec),
}

impl Candidate {
    pub fn new(identity: String, duration: Duration) -> Self {
        Self { identity, duration, seen: None }
    }

    /// Whether it may be taken, now that it was seen like this: nobody holds it, or who does has not touched it all
    /// the time that we have watched. Only what the holder writes counts; labels are for others.
    pub fn may_take(&mut self, lease: Option<&Lease>, now: Instant) -> bool {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let record = match (spec, holder(spec)) {
            // We made that name up ourselves, so it was us: an answer got lost.
            (_, Some(holder)) if holder == self.identity => Record::Free,
            (Some(spec), Some(_)) => Record::Held(spec.clone()),
            (None, _) if lease.is_none() && self.has_seen_a_holder() => Record::Vanished,
            (Some(_), None) | (None, _) => Record::Free,
        };
        let since = match self.seen.take() {
            Some((before, since)) if before == record => since,
            _ => now,
        };
        let may = match record {
            Record::Free => true,
            Record::Held(_) | Record::Vanished => now.duration_since(since) >= self.duration,
        };
        self.seen = Some((record, since));
        may
    }

    fn has_seen_a_holder(&self) -> bool {
        matches!(self.seen, Some((Record::Held(_) | Record::Vanished, _)))
    }
}

pub fn holder(spec: Option<&LeaseSpec>) -> Option<&str> {
    spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

    use super::*;

    const DURATION: Duration = Duration::from_secs(15);

    fn lease(holder: &str, renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.into()),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).expect("a time"))),
            ..LeaseSpec::default()
        };
        Lease { metadata: ObjectMeta::default(), spec: Some(spec) }
    }

    /// What a candidate decides when it sees these, each so many seconds after the start.
    fn decides(sights: &[(u64, Option<Lease>)]) -> Vec<bool> {
        let mut candidate = Candidate::new("me".into(), DURATION);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        sights.iter().map(|(seconds, lease)| candidate.may_take(lease.as_ref(), at(*seconds))).collect()
    }

    #[test]
    fn what_nobody_holds_is_taken_at_once() {
        assert_eq!(decides(&[(0, None)]), [true]);
        assert_eq!(decides(&[(0, Some(lease("", 1)))]), [true]);
        assert_eq!(decides(&[(0, Some(Lease::default()))]), [true]);
        assert_eq!(decides(&[(0, Some(lease("other", 1))), (1, Some(lease("", 1)))]), [false, true]);
    }

    #[test]
    fn a_holder_is_replaced_only_after_it_was_watched_doing_nothing_for_the_full_time() {
        let same = || Some(lease("other", 1));
        assert_eq!(decides(&[(0, same()), (14, same()), (15, same())]), [false, false, true]);
        // However long ago the record says it was renewed: that was another clock.
        assert_eq!(decides(&[(100, same())]), [false]);
    }

    #[test]
    fn every_renewal_begins_the_time_anew() {
        let sights =
            [(0, Some(lease("other", 1))), (14, Some(lease("other", 2))), (28, Some(lease("other", 2)))];
        assert_eq!(decides(&sights), [false, false, false]);
        // Also one by a clock that goes backwards, and by another holder.
        let sights =
            [(0, Some(lease("other", 2))), (14, Some(lease("other", 1))), (28, Some(lease("third", 1)))];
        assert_eq!(decides(&sights), [false, false, false]);
    }

    #[test]
    fn labels_do_not_count_as_a_renewal() {
        let mut labelled = lease("other", 1);
        labelled.metadata.resource_version = Some("2".into());
        assert_eq!(decides(&[(0, Some(lease("other", 1))), (15, Some(labelled))]), [false, true]);
    }

    #[test]
    fn one_deleted_under_its_holder_is_waited_for_like_one_that_is_held() {
        let sights = [(0, Some(lease("other", 1))), (1, None), (10, None), (16, None)];
        assert_eq!(decides(&sights), [false, false, false, true]);
    }

    #[test]
    fn what_we_wrote_ourselves_is_ours() {
        assert_eq!(decides(&[(0, Some(lease("me", 1)))]), [true]);
    }

    #[test]
    fn a_leader_gives_up_before_anybody_may_follow() {
        for seconds in [1, 3, 15, 60] {
            let times = Times::of(Duration::from_secs(seconds));
            assert!(times.renew_within < times.duration);
            // An attempt that is not answered leaves time for another one.
            assert!(times.renew_every + times.patience < times.renew_within);
        }
    }
}
