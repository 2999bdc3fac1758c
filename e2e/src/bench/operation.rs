//! What is measured, and what it may cost at most.

use std::fmt;

use etcd_operator_core::version::Version;
use serde::Serialize;

/// Clusters of one member, asked for at the same moment.
pub const CROWD: usize = 20;
/// What is in the cluster whose data is copied.
pub const BACKUP_MEGABYTES: usize = 256;
/// While at least one voter stays, clients may be without a write for this long.
pub const WRITE_GAP_AT_MOST_MS: f64 = 300.0;
/// The status may be so much later than etcd itself.
pub const STATUS_LAG_AT_MOST_MS: f64 = 1000.0;
/// What TLS adds to the creation of a cluster.
const TLS_AT_MOST_SECONDS: f64 = 0.3;
/// What etcd asks for between two joins, until two learners are allowed at once.
const SECOND_LEARNER: Version = Version::new(3, 6, 0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create {
        size: u8,
    },
    Scale {
        from: u8,
        to: u8,
    },
    /// From three to one and back, with data.
    ThereAndBack,
    Stop {
        from: u8,
    },
    Start {
        to: u8,
    },
    /// Every member restarts, one after the other.
    Roll {
        size: u8,
    },
    /// A copy of the data into a store.
    Backup,
    Crowd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    Plain,
    Operator,
}

/// An operation, who did it, and with which etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    pub operation: Operation,
    pub by: By,
    pub etcd: &'static str,
    /// The plain StatefulSet has none.
    pub tls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AtMost {
    /// The plain StatefulSet of the same benchmark, so many times.
    TimesPlain(f64),
    Seconds(f64),
}

impl Operation {
    /// As slow as it may be on an idle machine with two cores.
    pub fn at_most(self, etcd: &str) -> Option<AtMost> {
        let two_learners = Version::parse(etcd).is_some_and(|version| version >= SECOND_LEARNER);
        match self {
            Self::Create { .. } | Self::Roll { .. } | Self::Crowd => Some(AtMost::TimesPlain(1.5)),
            Self::Backup => Some(AtMost::TimesPlain(0.8)),
            Self::Scale { from, to } if to > from && two_learners => Some(AtMost::Seconds(5.0)),
            Self::Scale { from, to } if to > from => Some(AtMost::Seconds(9.5)),
            Self::Scale { .. } => Some(AtMost::Seconds(2.5)),
            Self::ThereAndBack => Some(AtMost::Seconds(12.0)),
            Self::Stop { .. } | Self::Start { .. } => None,
        }
    }

    /// How much longer it may take than without TLS.
    pub fn tls_at_most(self) -> Option<f64> {
        match self {
            Self::Create { .. } => Some(TLS_AT_MOST_SECONDS),
            Self::Scale { .. }
            | Self::ThereAndBack
            | Self::Stop { .. }
            | Self::Start { .. }
            | Self::Roll { .. }
            | Self::Backup
            | Self::Crowd => None,
        }
    }
}

impl Subject {
    /// As clusters are unless their spec says otherwise.
    pub fn operated(operation: Operation, etcd: &'static str) -> Self {
        Self { operation, by: By::Operator, etcd, tls: true }
    }

    /// Whether clients are to be served all the time.
    pub fn keeps_serving(&self) -> bool {
        match self.operation {
            Operation::Scale { .. } | Operation::ThereAndBack | Operation::Roll { .. } => true,
            Operation::Create { .. }
            | Operation::Stop { .. }
            | Operation::Start { .. }
            | Operation::Backup
            | Operation::Crowd => false,
        }
    }

    /// The same thing done by hand, if that can be.
    pub fn plain(self) -> Self {
        Self { by: By::Plain, tls: false, ..self }
    }

    /// The same thing with a cluster that uses no TLS.
    pub fn without_tls(self) -> Self {
        Self { tls: false, ..self }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { size } => write!(f, "create {size}"),
            Self::Scale { from, to } => write!(f, "{from}->{to}"),
            Self::ThereAndBack => f.write_str("3->1->3 with data"),
            Self::Stop { from } => write!(f, "stop {from}->0"),
            Self::Start { to } => write!(f, "start 0->{to}"),
            Self::Roll { size } => write!(f, "roll {size}"),
            Self::Backup => write!(f, "backup of {BACKUP_MEGABYTES} MB"),
            Self::Crowd => write!(f, "{CROWD} clusters of 1"),
        }
    }
}

/// Unique among all rows of a benchmark.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        match (self.by, self.tls) {
            (By::Plain, _) => f.write_str(", plain")?,
            (By::Operator, false) => f.write_str(", without TLS")?,
            (By::Operator, true) => {}
        }
        match self.etcd {
            crate::plain::VERSION => Ok(()),
            other => write!(f, ", {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_is_quicker_where_two_may_learn_at_once() {
        let grow = Operation::Scale { from: 1, to: 3 };
        assert_eq!(grow.at_most("v3.5.21"), Some(AtMost::Seconds(9.5)));
        assert_eq!(grow.at_most("v3.6.16"), Some(AtMost::Seconds(5.0)));
        assert_eq!(Operation::Scale { from: 5, to: 3 }.at_most("v3.6.16"), Some(AtMost::Seconds(2.5)));
        assert_eq!(Operation::Start { to: 3 }.at_most("v3.5.21"), None);
    }

    #[test]
    fn names_tell_rows_apart() {
        let operator = Subject::operated(Operation::Create { size: 3 }, "v3.5.21");
        assert_eq!(operator.to_string(), "create 3");
        assert_eq!(operator.without_tls().to_string(), "create 3, without TLS");
        assert_eq!(operator.plain().to_string(), "create 3, plain");
        assert_eq!(Subject { etcd: "v3.6.16", ..operator }.to_string(), "create 3, v3.6.16");
    }
}
