//! A real Kubernetes with real etcd on one machine.

pub mod build;
pub mod cache;
pub mod layout;
pub mod preflight;
pub mod process;
pub mod shell;
