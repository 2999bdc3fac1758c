//! The I/O shell around `etcd-operator-core`: it looks, lets the core decide, acts and reports.
//!
//! No choice is made in here that the core could make.

pub mod agent;
pub mod api_reference;
pub mod caches;
pub mod client;
pub mod cluster;
pub mod controller;
pub mod crds;
pub mod etcd;
pub mod http;
mod kind;
mod later;
pub mod lease;
pub mod nodes;
pub mod place;
pub mod reach;
pub mod supervisor;
pub mod telemetry;
