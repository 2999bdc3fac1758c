//! The agent that guards every start of etcd in a member's pod.
//!
//! It runs as the command of the etcd container: it looks, lets `core` decide, and becomes etcd. It never runs
//! beside an etcd that serves. It lives in etcd's own image, which has no shell and no libc, and holds no token.

mod addresses;
mod awaited;
mod etcd;
mod fetch;
mod files;
pub mod guard;
pub mod http;
pub mod install;
pub mod log;
mod metrics;
mod page;
mod peers;
pub mod restore;
pub mod settings;
pub mod tls;
mod volume;
