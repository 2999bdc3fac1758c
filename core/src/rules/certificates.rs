//! Rules about the certificates that the operator issues.

use std::net::IpAddr;

use super::{Rule, Server, syntax};
use crate::api::{
    Certificates, EtcdClusterSpec, MAX_ADDRESS_LENGTH, MAX_NAME_LENGTH, MAX_NAMES, MAX_VALIDITY_SECONDS,
    MIN_VALIDITY_SECONDS,
};

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    Rule {
        at: "security.tls.certificates.validitySeconds",
        server: Server::Schema,
        message: "must be 60 to 157680000, which is five years: 7776000 (90 days) is the default",
        broken: |spec| {
            let range = MIN_VALIDITY_SECONDS..=MAX_VALIDITY_SECONDS;
            chosen(spec).is_some_and(|it| !range.contains(&it.validity_seconds))
        },
    },
    Rule {
        at: "security.tls.certificates.dnsNames",
        server: Server::Schema,
        message: "must be at most 32 names of at most 253 characters",
        broken: |spec| {
            names(spec).count() > MAX_NAMES || names(spec).any(|name| name.len() > MAX_NAME_LENGTH)
        },
    },
    Rule {
        at: "security.tls.certificates.dnsNames",
        server: Server::Cel(
            "self.all(it, it.matches('^([*][.])?[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$'))",
        ),
        message: "each must be a host name such as etcd.example.com, or a wildcard such as *.example.com, in lower case",
        broken: |spec| {
            let is_name = |name: &str| syntax::is_dns_name(name.strip_prefix("*.").unwrap_or(name));
            names(spec).any(|name| name.len() <= MAX_NAME_LENGTH && !is_name(name))
        },
    },
    Rule {
        at: "security.tls.certificates.ipAddresses",
        server: Server::Schema,
        message: "must be at most 32 addresses of at most 45 characters",
        broken: |spec| {
            addresses(spec).count() > MAX_NAMES || addresses(spec).any(|it| it.len() > MAX_ADDRESS_LENGTH)
        },
    },
    Rule {
        at: "security.tls.certificates.ipAddresses",
        server: Server::Nothing,
        message: "each must be an address such as 192.0.2.1 or 2001:db8::1",
        broken: |spec| {
            addresses(spec).any(|it| it.len() <= MAX_ADDRESS_LENGTH && it.parse::<IpAddr>().is_err())
        },
    },
];

fn chosen(spec: &EtcdClusterSpec) -> Option<&Certificates> {
    spec.security.tls.certificates.as_ref()
}

fn names(spec: &EtcdClusterSpec) -> impl Iterator<Item = &String> {
    chosen(spec).into_iter().flat_map(|it| &it.dns_names)
}

fn addresses(spec: &EtcdClusterSpec) -> impl Iterator<Item = &String> {
    chosen(spec).into_iter().flat_map(|it| &it.ip_addresses)
}
