//! The I/O shell around `etcd-operator-core`: it looks, lets the core decide, acts and reports.
//!
//! No choice is made in here that the core could make.

pub mod agent;
pub mod api_reference;
pub mod controller;
pub mod crds;
pub mod etcd;
pub mod http;
pub mod lease;
pub mod reach;
pub mod telemetry;
