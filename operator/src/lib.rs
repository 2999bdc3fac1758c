//! The I/O shell around `etcd-operator-core`: it observes, lets the core decide, acts and reports.
//!
//! No choice is made in here that the core could make.

pub mod agent;
pub mod alerts;
pub mod api_reference;
mod backups;
pub mod caches;
pub mod certificates;
pub mod client;
pub mod cluster;
pub mod controller;
pub mod crds;
pub mod credentials;
pub mod dashboards;
pub mod environment;
pub mod etcd;
pub mod http;
mod kind;
pub mod lease;
pub mod metrics;
pub mod nodes;
pub mod output;
mod page;
pub mod reach;
mod restores;
mod rounds;
pub mod scope;
pub mod supervisor;
pub mod telemetry;
pub mod traces;
