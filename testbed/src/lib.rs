//! A real Kubernetes with real etcd on one machine.

pub mod build;
pub mod cache;
pub mod image;
pub mod layout;
pub mod process;
pub mod registry;
pub mod shell;
pub mod volumes;
