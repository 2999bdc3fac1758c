//! Decisions of the etcd operator, as pure values.
//!
//! Nothing in here waits, reads a clock, asks a server or rolls dice: what a function needs is among its
//! arguments, and what should happen is its result. `core/clippy.toml` and `Cargo.toml` hold that line.
//!
//! Today there is the API, its rules, and a status that says how little is done with it. What users wrote
//! becomes an [`intent::Intent`] through [`validate::validate`]; nothing behind that reads the spec itself.
//! The engine that compares what is wanted with what is there, and plans the next step, comes next.

pub mod api;
pub mod intent;
pub mod names;
pub mod notices;
mod rules;
pub mod status;
pub mod validate;
pub mod version;
