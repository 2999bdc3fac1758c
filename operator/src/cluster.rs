//! One EtcdCluster: everything between an observation of it and the next.

mod ask;
mod execute;
mod failure;
mod look;
mod objects;
mod pods;
mod report;
mod surroundings;
mod vigil;
mod worker;

use etcd_operator_core::round::{Outcome, SideWrite, SideWrites};
use jiff::Timestamp;

use failure::Failure;
pub use report::Reporter;
pub use worker::{Context, Worker};

/// Remembers what became of a write beside the steps of a plan.
fn record(writes: &mut SideWrites, write: SideWrite, result: Result<(), Failure>) {
    let outcome = result.map_or_else(|failure| failure.outcome_alone(), |()| Outcome::Done);
    let (title, error) = (write.title(), format!("{outcome:?}"));
    let failed = matches!(outcome, Outcome::NotDone(_));
    if writes.record(write, outcome, Timestamp::now()) && failed {
        tracing::debug!(write = title, error, "write failed");
    }
}
