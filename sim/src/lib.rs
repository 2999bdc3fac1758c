//! The operator's decisions against a simulated world.
//!
//! Kubernetes and etcd are modelled as far as they can hurt: caches that are old, requests that arrive late or twice,
//! volumes that vanish, an etcd that votes and forgets. Everything follows from a seed; time is a counter. The same
//! [`decide`](etcd_operator_core::decide::decide) runs here as in the real operator, the same
//! [`decide_start`](etcd_operator_core::start::decide_start) guards every start of etcd, and [`execute`] says what the
//! real executor has to check.
//!
//! While faults strike, safety is checked at every tick: nothing that was acknowledged is lost, no second cluster is
//! bootstrapped, no volume is deleted while its member is listed, no voter is disrupted, and the status does not
//! contradict etcd for longer than five seconds. When they end, everything must converge, and then stay quiet.

pub mod agent;
pub mod agreement;
pub mod auth;
pub mod bugs;
pub mod client;
mod downgrade;
mod ending;
pub mod etcd;
pub mod execute;
pub mod faults;
pub mod form;
pub mod gift;
pub mod kube;
mod lineage;
pub mod observe;
pub mod operator;
mod past;
pub mod problem;
pub mod random;
pub mod recovery;
mod report;
mod rolling;
pub mod run;
pub mod script;
pub mod secrets;
pub mod switching;
pub mod volumes;
mod watch;
pub mod world;
