//! The rules of the API, each said once: as CEL for the API server and as a function for us.
//!
//! `api::definitions` puts the CEL into the CustomResourceDefinitions, `validate` calls the functions.
//! Servers before 1.25 know no CEL, and no server can say everything; the operator itself checks every rule
//! on every server. The CEL in here keeps to what Kubernetes 1.25 understands, because a server refuses a
//! definition with a word it does not know.

use crate::api::{EtcdBackupSpec, EtcdClusterSpec, EtcdRestoreSpec};

mod auth;
pub(crate) mod backup;
mod certificates;
mod cluster;
mod maintenance;
mod network_policy;
pub(crate) mod options;
pub(crate) mod pods;
mod recovery;
mod repair;
mod restore;
mod storage;
mod syntax;

pub(crate) struct Rule<Spec: 'static> {
    /// The field that is named when the rule is broken, below the spec; empty for the spec itself.
    pub at: &'static str,
    pub server: Server,
    /// What is wrong and the way out.
    pub message: &'static str,
    pub broken: fn(&Spec) -> bool,
}

/// What makes the API server keep the rule.
pub(crate) enum Server {
    /// An expression that holds at the rule's field.
    Cel(&'static str),
    /// The same, made from a list that the function uses too.
    CelFrom(fn() -> String),
    /// The schema of the field: a range, a pattern, a length.
    Schema,
    /// It cannot be said to an API server.
    Nothing,
}

/// A rule about an edit.
pub(crate) struct ChangeRule<Spec: 'static> {
    pub at: &'static str,
    pub cel: &'static str,
    pub message: &'static str,
    pub broken: fn(old: &Spec, new: &Spec) -> bool,
}

/// The rule about the name of an EtcdCluster, which holds for the object as a whole.
pub(crate) struct NameRule {
    pub cel: &'static str,
    pub message: &'static str,
    pub broken: fn(&str) -> bool,
}

pub(crate) const CLUSTER_NAME: NameRule = NameRule {
    cel: "self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
    message: "must be at most 52 lower-case letters, digits and dashes, starting with a letter and not ending with a \
        dash, because the names of Services and pods contain it",
    broken: |name| name.len() > 52 || !syntax::is_service_name(name),
};

pub(crate) fn of_cluster() -> impl Iterator<Item = &'static Rule<EtcdClusterSpec>> {
    let rules = [
        cluster::RULES,
        storage::RULES,
        options::RULES,
        pods::RULES,
        maintenance::RULES,
        repair::RULES,
        recovery::RULES,
        certificates::RULES,
        auth::RULES,
        network_policy::RULES,
    ];
    rules.into_iter().flatten()
}

pub(crate) fn of_cluster_changes() -> impl Iterator<Item = &'static ChangeRule<EtcdClusterSpec>> {
    storage::CHANGES.iter()
}

pub(crate) fn of_backup() -> impl Iterator<Item = &'static Rule<EtcdBackupSpec>> {
    backup::RULES.iter()
}

pub(crate) fn of_restore() -> impl Iterator<Item = &'static Rule<EtcdRestoreSpec>> {
    restore::RULES.iter()
}
