//! One EtcdCluster: everything between an observation of it and the next.

mod ask;
mod execute;
mod failure;
mod look;
mod objects;
mod pace;
mod pods;
mod publications;
mod rejections;
mod report;
mod settled;
mod side_writes;
mod surroundings;
mod vigil;
mod worker;

pub use report::Reporter;
pub use worker::{Context, Worker};
