//! A real Kubernetes with real etcd on one machine.
//!
//! [`cluster::Testbed`] has nodes, volumes, images and DNS, and each of them can be broken and mended ([`fault`]);
//! [`api_only::ApiOnly`] is a control plane alone. Everything is built from pinned Go modules ([`build`]),
//! lives below one directory ([`layout`]) and leaves nothing behind ([`down`]).

pub mod addons;
pub mod api_only;
pub mod build;
pub mod cache;
pub mod cert_manager;
pub mod cgroup;
pub mod cluster;
pub mod control_plane;
pub mod dns;
pub mod down;
pub mod fault;
pub mod image;
pub mod instance;
pub mod layout;
pub mod machine;
pub mod monitoring;
pub mod network;
pub mod node;
mod packet_filter;
pub mod pki;
pub mod preflight;
pub mod process;
pub mod registry;
pub mod say;
pub mod shell;
pub mod stand_in;
pub mod store;
pub mod volumes;
