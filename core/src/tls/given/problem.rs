//! Everything that is wrong with what a user gives, in words.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::{Chain, Key, Lack, Leaf, Root, Source};
use crate::names::reason;
use crate::observed::{Observed, Seen};
use crate::tls::{
    AUTHORITY_KEY, Authority, CERTIFICATE_KEY, Certificate, Flaw, Issuance, PRIVATE_KEY, Profile, Purpose,
    Trust,
};

/// Why what a user gives is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// cert-manager has not issued it.
    NotIssued(Issuance),
    Certificate(Lack),
    Authorities(Lack),
    MissingNames(Vec<String>),
    Expired(Timestamp),
    NotYetValid(Timestamp),
    OtherKey,
    UnreadableKey,
    MissingUsages(Vec<&'static str>),
    IsAuthority,
    Chain(String),
    ExpiredAuthority(String, Timestamp),
    NoAuthority(String),
    /// Ports show the names of what they trust, and nothing else.
    SameName(String),
}

/// What keeps the certificate from being used, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Rejection {
    /// Users have to correct something.
    Rejected,
    /// cert-manager has not issued it yet.
    NotIssued,
    /// There is no cert-manager.
    NoCertManager,
}

impl Rejection {
    pub fn of(problems: &[Problem]) -> Option<Self> {
        let first = problems.first()?;
        Some(if *first == Problem::NotIssued(Issuance::NoApi) {
            Self::NoCertManager
        } else if matches!(first, Problem::NotIssued(_)) {
            Self::NotIssued
        } else {
            Self::Rejected
        })
    }

    pub fn reason(self) -> &'static str {
        match self {
            Self::Rejected => reason::CERTIFICATE_REJECTED,
            Self::NotIssued => reason::CERTIFICATE_NOT_ISSUED,
            Self::NoCertManager => reason::CERT_MANAGER_MISSING,
        }
    }
}

/// All of them at once; none if the operator issues the certificate.
pub fn problems(profile: &Profile, seen: &Observed) -> Vec<Problem> {
    let Some(given) = seen.given.as_ref().filter(|_| !profile.source.is_operator()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let issuance = given.issuance.as_ref().filter(|_| profile.source.issuer().is_some());
    match &given.certificate {
        // Nobody but cert-manager writes it.
        Seen::Unknown(Lack::NoSecret) if issuance.is_some() => {}
        Seen::Unknown(lack) => found.push(Problem::Certificate(lack.clone())),
        Seen::Known(leaf) => {
            found.extend(of_leaf(leaf, profile, seen.now));
            found.extend(given.verified.key.problem());
        }
    }
    if let Chain::Broken(words) = &given.verified.chain {
        found.push(Problem::Chain(words.clone()));
    }
    match &given.authorities {
        Seen::Unknown(Lack::NoSecret) if issuance.is_some() && profile.source.is_in_one_secret() => {}
        Seen::Unknown(lack) => found.push(Problem::Authorities(lack.clone())),
        Seen::Known(roots) => {
            let trust = Trust::of(Purpose::ClientAuthority, seen);
            let trusted = trust.iter().flat_map(|trust| trust.bundle);
            let all: Vec<_> = trusted.chain(roots.iter().map(|it| &it.authority)).collect();
            found.extend(roots.iter().flat_map(|root| of_root(root, &all, seen.now)));
        }
    }
    let is_there = given.certificate.known().is_some();
    let unissued = issuance.filter(|it| match it {
        Issuance::NoApi => true,
        // What is there is as good as any other, unless something is wrong with it.
        Issuance::Unreadable(_) | Issuance::Requested | Issuance::NotReady(_) => {
            !is_there || !found.is_empty()
        }
        Issuance::Ready => !is_there,
    });
    unissued.map(|it| Problem::NotIssued(it.clone())).into_iter().chain(found).collect()
}

fn of_leaf(leaf: &Leaf, profile: &Profile, now: Timestamp) -> Vec<Problem> {
    let Leaf { certificate, serves, connects, is_authority } = leaf;
    let (names, addresses) = (&certificate.dns_names, &certificate.ip_addresses);
    // A wildcard is not enough: etcd looks up exact names to compare the address of a client.
    let missing_names = profile.dns_names.iter().filter(|it| !names.contains(it));
    let missing = missing_names.chain(profile.ip_addresses.iter().filter(|it| !addresses.contains(it)));
    let missing: Vec<String> = missing.cloned().collect();
    let usages = [("serverAuth", *serves), ("clientAuth", *connects)].into_iter();
    let usages: Vec<_> = usages.filter(|(_, there)| !there).map(|(name, _)| name).collect();
    let Certificate { not_before, not_after, .. } = *certificate;
    let all = [
        (!missing.is_empty()).then_some(Problem::MissingNames(missing)),
        (not_after <= now).then_some(Problem::Expired(not_after)),
        (not_before > now).then_some(Problem::NotYetValid(not_before)),
        (!usages.is_empty()).then_some(Problem::MissingUsages(usages)),
        is_authority.then_some(Problem::IsAuthority),
    ];
    all.into_iter().flatten().collect()
}

fn of_root(root: &Root, all: &[&Authority], now: Timestamp) -> Vec<Problem> {
    let Root { authority, not_after, is_authority } = root;
    let subject = || authority.subject.clone();
    let is_another = |it: &&&Authority| it.subject == authority.subject && it.key != authority.key;
    let all = [
        (*not_after <= now).then(|| Problem::ExpiredAuthority(subject(), *not_after)),
        (!is_authority).then(|| Problem::NoAuthority(subject())),
        all.iter().find(is_another).map(|_| Problem::SameName(subject())),
    ];
    all.into_iter().flatten().collect()
}

impl Problem {
    /// With the names of the Secrets, and the way out.
    pub fn words(&self, source: &Source) -> String {
        let (certificate, authorities) = source.secrets().unwrap_or_default();
        let own = |text: fmt::Arguments<'_>| format!("{CERTIFICATE_KEY} of Secret {certificate} {text}");
        let theirs = |subject: &str, text: fmt::Arguments<'_>| {
            format!("{subject} in {AUTHORITY_KEY} of Secret {authorities} {text}")
        };
        match self {
            Self::NotIssued(issuance) => issuance.words(source),
            Self::Certificate(lack) => lack.words(certificate),
            Self::Authorities(Lack::Flaw(Flaw::Missing(key))) if certificate == authorities => format!(
                "Secret {authorities} has no {key}: add the certificates of your authority, or name the Secret that has \
                 them in spec.security.tls.caSecret"
            ),
            Self::Authorities(lack) => lack.words(authorities),
            Self::MissingNames(names) => {
                own(format_args!("is not for {}: issue it for these names, too", names.join(", ")))
            }
            Self::Expired(at) => own(format_args!("expired at {at:.0}: renew it")),
            Self::NotYetValid(at) => own(format_args!(
                "is not valid before {at:.0}: wait, or check the clock of the machine that issued it"
            )),
            Self::OtherKey => format!(
                "{PRIVATE_KEY} of Secret {certificate} does not belong to its {CERTIFICATE_KEY}: store the key that the \
                 certificate was issued for"
            ),
            Self::UnreadableKey => format!(
                "{PRIVATE_KEY} of Secret {certificate} cannot be read: store an RSA, ECDSA or Ed25519 key in PEM format, \
                 without a passphrase"
            ),
            Self::MissingUsages(usages) => own(format_args!(
                "is not for {}: issue it with the extended key usages serverAuth and clientAuth, because etcd's gateway \
                 connects with it, too",
                usages.join(" and ")
            )),
            Self::IsAuthority => {
                own(format_args!("is an authority: issue a certificate with basicConstraints CA:FALSE by it"))
            }
            Self::Chain(words) => own(format_args!(
                "does not lead to an authority in {AUTHORITY_KEY} of Secret {authorities}: {words}; add intermediate \
                 certificates to {CERTIFICATE_KEY}, or the authority that issued it to {AUTHORITY_KEY}"
            )),
            Self::ExpiredAuthority(subject, at) => {
                theirs(subject, format_args!("expired at {at:.0}: replace or remove it"))
            }
            Self::NoAuthority(subject) => theirs(
                subject,
                format_args!("is no authority, which has basicConstraints CA:TRUE: remove it"),
            ),
            Self::SameName(subject) => theirs(
                subject,
                format_args!(
                    "has the name of another authority that members trust, and they show only names: create it with \
                     another subject"
                ),
            ),
        }
    }
}

impl Issuance {
    fn words(&self, source: &Source) -> String {
        let (secret, _) = source.secrets().unwrap_or_default();
        let issuer = source.issuer().map(|it| format!("{} {}", it.kind, it.name)).unwrap_or_default();
        match self {
            Self::NoApi => {
                "the API server does not serve cert-manager.io/v1: install cert-manager, or remove \
                            spec.security.tls.issuerRef; the operator checks again every minute"
                    .into()
            }
            Self::Unreadable(error) => format!(
                "Certificate {secret} cannot be read: {error}; apply the operator's roles again if a right is missing"
            ),
            Self::Requested => {
                format!(
                    "cert-manager has not reported on Certificate {secret} yet: check that cert-manager runs"
                )
            }
            Self::NotReady(message) => {
                format!(
                    "Certificate {secret} is not ready: {message}; check {issuer} and the CertificateRequests"
                )
            }
            Self::Ready => format!(
                "Certificate {secret} is ready, but Secret {secret} does not exist: check that cert-manager runs"
            ),
        }
    }
}

impl Lack {
    fn words(&self, secret: &str) -> String {
        match self {
            Self::NoSecret => format!("Secret {secret} does not exist: create it"),
            Self::OfTheOperator => {
                format!("Secret {secret} belongs to the operator: store your certificates in another one")
            }
            Self::Flaw(Flaw::Missing(key)) => format!("Secret {secret} has no {key}: add it"),
            Self::Flaw(Flaw::Malformed(key)) => {
                format!("{key} of Secret {secret} is no certificate in PEM format: store one")
            }
        }
    }
}

impl Key {
    fn problem(self) -> Option<Problem> {
        match self {
            Self::Matches => None,
            Self::Differs => Some(Problem::OtherKey),
            Self::Unreadable => Some(Problem::UnreadableKey),
        }
    }
}
