//! One EtcdCluster: everything between an observation of it and the next.

mod ask;
mod comparison;
mod execute;
mod foreign_reader;
mod handshake;
mod member_watch;
mod objects;
mod observation;
mod outcome;
mod pods;
mod report;
mod secret_reader;
mod secrets;
mod worker;

pub(crate) use pods::address;
pub use report::Reporter;
pub use worker::{Context, Worker};
