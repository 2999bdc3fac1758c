//! The runs of every operation, and what they come to.

use std::time::Duration;

use super::operation::{By, Subject};

/// One run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub time: Duration,
    /// How long after etcd itself the status was there.
    pub status_lag: Option<Duration>,
    /// The longest time in which no client could write; `None` when nobody wrote.
    pub write_gap: Option<Duration>,
    /// Operations of clients that failed, or whose outcome they do not know.
    pub failed: Option<usize>,
}

/// In the order in which operations came first.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    of: Vec<(Subject, Vec<Sample>)>,
}

impl Samples {
    pub fn add(&mut self, subject: Subject, sample: Sample) {
        match self.of.iter_mut().find(|(there, _)| *there == subject) {
            Some((_, samples)) => samples.push(sample),
            None => self.of.push((subject, vec![sample])),
        }
    }

    pub fn of(&self, subject: Subject) -> &[Sample] {
        self.of.iter().find(|(there, _)| *there == subject).map_or(&[], |(_, samples)| samples)
    }

    pub fn all(&self) -> impl Iterator<Item = (Subject, &[Sample])> {
        self.of.iter().map(|(subject, samples)| (*subject, samples.as_slice()))
    }

    /// The median of what the plain StatefulSet took for the same.
    pub fn plain_seconds(&self, subject: Subject) -> Option<f64> {
        Spread::of(self.of(subject.plain())).map(|spread| spread.median)
    }

    /// The median of what the operator took for the same without TLS.
    pub fn without_tls_seconds(&self, subject: Subject) -> Option<f64> {
        let operated = subject.by == By::Operator;
        let without = operated.then(|| self.of(subject.without_tls()))?;
        Spread::of(without).map(|spread| spread.median)
    }
}

/// Seconds, rounded to what the clock and the polling are worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let mut sorted: Vec<_> = samples.iter().map(|sample| sample.time).collect();
        sorted.sort();
        let middle = sorted.len() / 2;
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2 };
        Some(Self { least: rounded(least), median: rounded(median), most: rounded(most) })
    }
}

fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(milliseconds: &[u64]) -> Vec<Sample> {
        let sample = |&time| Sample { time: Duration::from_millis(time), ..Sample::default() };
        milliseconds.iter().map(sample).collect()
    }

    #[test]
    fn the_median_is_the_middle_run_and_the_spread_its_ends() {
        let spread = Spread::of(&took(&[2600, 2430, 9000, 2500, 2510])).expect("runs");
        assert_eq!(spread, Spread { least: 2.43, median: 2.51, most: 9.0 });
        assert_eq!(Spread::of(&took(&[1000, 2000])).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of(&[]), None);
    }
}
