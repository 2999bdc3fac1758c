//! Decisions of the etcd operator, as pure values.
//!
//! Nothing in here waits, reads a clock, asks a server or rolls dice: what a function needs is among its
//! arguments, and what should happen is its result. `core/clippy.toml` and `Cargo.toml` hold that line.
//!
//! Today there is the API, a status that says how little is done with it, and the decision whether etcd may start
//! in a pod. The engine that compares what is wanted with what is there, and plans the next step, comes next.

pub mod agent;
pub mod api;
pub mod etcd_config;
pub mod names;
pub mod order;
pub mod start;
pub mod status;
