//! One EtcdCluster: everything between an observation of it and the next.

mod ask;
mod execute;
mod look;
mod objects;
mod outcome;
mod pods;
mod report;
mod vigil;
mod worker;

pub use report::Reporter;
pub use worker::{Context, Worker};
