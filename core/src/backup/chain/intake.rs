//! What arrives from a watch, revision by revision.

use std::fmt;

/// Checks that revisions arrive completely and one after the other.
#[derive(Clone, Debug)]
pub struct Intake {
    complete: i64,
    /// Whose events have not all arrived.
    open: Option<i64>,
}

/// Which revision an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Same,
    /// The first event of the next revision; the previous one is complete.
    Next,
}

/// etcd does not send what follows in its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub expected: i64,
    pub found: i64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd sent revision {} where revision {} was expected", self.found, self.expected)
    }
}

impl std::error::Error for Violation {}

/// What a progress notification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything up to the revision of the cluster has arrived.
    Confirmed,
    /// It was sent before something that has arrived.
    Stale,
    /// etcd reports a revision whose events did not arrive.
    Ahead,
}

impl Intake {
    /// All revisions up to this one are there.
    pub fn after(complete: i64) -> Self {
        Self { complete, open: None }
    }

    pub fn complete(&self) -> i64 {
        self.complete
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub fn event(&mut self, revision: i64) -> Result<Step, Violation> {
        if self.open == Some(revision) {
            return Ok(Step::Same);
        }
        self.close();
        let expected = self.complete + 1;
        if revision != expected {
            return Err(Violation { expected, found: revision });
        }
        self.open = Some(revision);
        Ok(Step::Next)
    }

    /// At the end of a response, unless it is a fragment: etcd never splits a revision otherwise.
    pub fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.complete = open;
        }
    }

    pub fn progress(&self, revision: i64) -> Progress {
        match revision.cmp(&self.complete) {
            std::cmp::Ordering::Less => Progress::Stale,
            std::cmp::Ordering::Equal if self.open.is_none() => Progress::Confirmed,
            std::cmp::Ordering::Equal => Progress::Stale,
            std::cmp::Ordering::Greater => Progress::Ahead,
        }
    }
}
