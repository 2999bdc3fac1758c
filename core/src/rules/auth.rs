//! Rules about etcd's own authentication.

use super::{Rule, Server, syntax};
use crate::api::{Auth, EtcdClusterSpec, MAX_SECRET_NAME_LENGTH};
use crate::tls::Transport;

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    Rule {
        at: "security",
        server: Server::Cel(
            "!has(self.auth) || !self.auth.enabled || (self.tls.enabled && self.tls.clientTLSEnabled)",
        ),
        message: "auth.enabled needs TLS for clients, because etcd knows users by their certificates: set tls.enabled and \
            tls.clientTLSEnabled to true, or set auth.enabled to false before you switch TLS off",
        broken: |spec| {
            let plain = !Transport::asked_for(&spec.security.tls).clients.is_tls();
            auth(spec).is_some_and(|auth| auth.enabled) && plain
        },
    },
    Rule {
        at: "security.auth.rootPasswordSecret",
        server: Server::Schema,
        message: "must be the name of a Secret, with at most 253 characters: remove the field if root needs no password",
        broken: |spec| {
            secret(spec).is_some_and(|name| name.is_empty() || name.len() > MAX_SECRET_NAME_LENGTH)
        },
    },
    Rule {
        at: "security.auth.rootPasswordSecret",
        server: Server::Cel(
            "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$')",
        ),
        message: "must be the name of a Secret, such as etcd-root: lower-case letters, digits, dashes and dots",
        broken: |spec| {
            let is_short = |name: &&str| !name.is_empty() && name.len() <= MAX_SECRET_NAME_LENGTH;
            secret(spec).filter(is_short).is_some_and(|name| !syntax::is_dns_name(name))
        },
    },
];

fn auth(spec: &EtcdClusterSpec) -> Option<&Auth> {
    spec.security.auth.as_ref()
}

fn secret(spec: &EtcdClusterSpec) -> Option<&str> {
    auth(spec)?.root_password_secret.as_deref()
}
