//! One EtcdCluster: everything between a look at it and the next.

mod ask;
mod execute;
mod failure;
mod look;
mod objects;
mod pace;
mod pods;
mod publications;
mod report;
mod settled;
mod surroundings;
mod vigil;
mod wanted;
mod worker;

pub use report::Reporter;
pub use worker::{Context, Worker};
