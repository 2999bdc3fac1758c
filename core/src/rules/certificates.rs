//! Rules about certificates: those that the operator issues, and where others come from.

use std::net::IpAddr;

use super::{Rule, Server, syntax};
use crate::api::{
    Certificates, EtcdClusterSpec, IssuerRef, MAX_ADDRESS_LENGTH, MAX_KIND_LENGTH, MAX_NAME_LENGTH,
    MAX_NAMES, MAX_SECRET_NAME_LENGTH, MAX_VALIDITY_SECONDS, MIN_VALIDITY_SECONDS,
};

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    too_long("security.tls.certificateSecret", |spec| is_too_long(&spec.security.tls.certificate_secret)),
    no_name("security.tls.certificateSecret", |spec| is_no_name(&spec.security.tls.certificate_secret)),
    too_long("security.tls.caSecret", |spec| is_too_long(&spec.security.tls.ca_secret)),
    no_name("security.tls.caSecret", |spec| is_no_name(&spec.security.tls.ca_secret)),
    Rule {
        at: "security.tls",
        server: Server::Cel(
            "!has(self.issuerRef) || !has(self.certificateSecret) || self.certificateSecret == ''",
        ),
        message: "issuerRef and certificateSecret are two sources of one certificate: remove issuerRef if you issue it, or \
            certificateSecret if cert-manager does",
        broken: |spec| {
            let tls = &spec.security.tls;
            tls.issuer_ref.is_some() && tls.certificate_secret.as_ref().is_some_and(|it| !it.is_empty())
        },
    },
    Rule {
        at: "security.tls.issuerRef.name",
        server: Server::Schema,
        message: "must be the name of an issuer of cert-manager, with at most 253 characters",
        broken: |spec| issuer(spec).is_some_and(|it| !is_short(&it.name, MAX_NAME_LENGTH)),
    },
    Rule {
        at: "security.tls.issuerRef.kind",
        server: Server::Schema,
        message: "must be Issuer, ClusterIssuer, or the kind of an issuer of another group, with at most 63 characters",
        broken: |spec| issuer(spec).is_some_and(|it| !is_short(&it.kind, MAX_KIND_LENGTH)),
    },
    Rule {
        at: "security.tls.issuerRef.group",
        server: Server::Schema,
        message: "must be the API group of the issuer, such as cert-manager.io, with at most 253 characters",
        broken: |spec| issuer(spec).is_some_and(|it| !is_short(&it.group, MAX_NAME_LENGTH)),
    },
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

/// An empty name is as good as none.
const SECRET_NAME: &str =
    "self == '' || self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$')";
const TOO_LONG: &str = "must be the name of a Secret, with at most 253 characters";
const NO_NAME: &str =
    "must be the name of a Secret, such as etcd-certificate: lower-case letters, digits, dashes and dots";

const fn too_long(at: &'static str, broken: fn(&EtcdClusterSpec) -> bool) -> Rule<EtcdClusterSpec> {
    Rule { at, server: Server::Schema, message: TOO_LONG, broken }
}

const fn no_name(at: &'static str, broken: fn(&EtcdClusterSpec) -> bool) -> Rule<EtcdClusterSpec> {
    Rule { at, server: Server::Cel(SECRET_NAME), message: NO_NAME, broken }
}

fn is_too_long(secret: &Option<String>) -> bool {
    secret.as_ref().is_some_and(|name| name.len() > MAX_SECRET_NAME_LENGTH)
}

fn is_no_name(secret: &Option<String>) -> bool {
    let named = secret.as_ref().filter(|it| !it.is_empty() && it.len() <= MAX_SECRET_NAME_LENGTH);
    named.is_some_and(|name| !syntax::is_dns_name(name))
}

fn issuer(spec: &EtcdClusterSpec) -> Option<&IssuerRef> {
    spec.security.tls.issuer_ref.as_ref()
}

fn is_short(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len())
}

fn chosen(spec: &EtcdClusterSpec) -> Option<&Certificates> {
    spec.security.tls.certificates.as_ref()
}

fn names(spec: &EtcdClusterSpec) -> impl Iterator<Item = &String> {
    chosen(spec).into_iter().flat_map(|it| &it.dns_names)
}

fn addresses(spec: &EtcdClusterSpec) -> impl Iterator<Item = &String> {
    chosen(spec).into_iter().flat_map(|it| &it.ip_addresses)
}
