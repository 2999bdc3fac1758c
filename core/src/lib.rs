//! Decisions of the etcd operator, as pure values.
//!
//! Nothing in here waits, reads a clock, asks a server or rolls dice: what a function needs is among its
//! arguments, and what should happen is its result. `core/clippy.toml` and `Cargo.toml` hold that line.
//!
//! What users wrote becomes an [`intent::Intent`] through [`validate::validate`], and decisions read nothing else of the spec.
//! [`desired`] has the objects of a cluster as they should be. [`observe`] turns what was read into a snapshot
//! ([`observed`]), and [`assess`] states what it means. From these facts and a goal comes a plan ([`decide`], [`plan`]), and from
//! each of its steps a request ([`request`]). [`round`] says which of them are sent, what their outcomes mean and how long to
//! sleep. [`status`] and [`events`] report to users. In the pods, [`start`] decides
//! whether etcd may start.

pub mod agent;
pub mod api;
pub mod asked;
pub mod assess;
pub mod auth;
pub mod backup;
pub mod decide;
pub mod desired;
pub mod etcd_config;
pub mod events;
pub mod foreign;
pub mod form;
pub mod intent;
pub mod links;
pub mod member;
pub mod metrics;
pub mod names;
pub mod notices;
pub mod observe;
pub mod observed;
pub mod order;
pub mod plan;
pub mod quorum;
pub mod recovery;
pub mod request;
pub mod restores;
pub mod round;
mod rules;
pub mod runs;
pub mod schedule;
pub mod snapshot;
pub mod start;
pub mod status;
pub mod surroundings;
pub mod tls;
pub mod validate;
pub mod version;
