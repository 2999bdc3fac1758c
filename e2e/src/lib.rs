//! Everything that runs against a real cluster: the end-to-end tests, `demo`, `bench` and `deploy`.

pub mod access;
pub mod answer;
pub mod bench;
pub mod context;
pub mod etcd;
pub mod evidence;
pub mod history;
pub mod host_operator;
pub mod install;
pub mod kubectl;
pub mod machine;
pub mod namespace;
pub mod operated;
pub mod passed;
pub mod plain;
pub mod progress;
pub mod readme;
pub mod report;
pub mod runner;
pub mod schedule;
pub mod selection;
pub mod serving;
pub mod sources;
pub mod suite;
pub mod target;
pub mod test;
pub mod tools;
pub mod trial;
pub mod turn;
pub mod wait;
pub mod workspace;

/// Who we are in the managed fields of what we apply.
pub const FIELD_MANAGER: &str = "etcd-operator-e2e";
