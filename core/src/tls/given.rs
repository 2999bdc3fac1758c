//! The certificate of the client port that a user gives, or cert-manager for the user: what it is like, and everything that is
//! wrong with it. It is copied into a Secret of the operator only if nothing is wrong: pods never mount what a user can change at
//! any time.

mod problem;

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use x509_parser::pem::Pem;

use super::certificate::{authority, chain, chain_of, part};
use super::{AUTHORITY_KEY, Authority, CERTIFICATE_KEY, Certificate, Flaw, Issuance, PRIVATE_KEY, Profile};
use crate::api::{self, IssuerRef};
use crate::names::Names;
use crate::observed::{Observed, Seen};
pub use problem::{Problem, Rejection, problems};

/// Where a certificate comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The operator issues it.
    #[default]
    Operator,
    /// These Secrets have it, which are not the operator's.
    Secrets {
        certificate: String,
        /// None if the authorities are in the same Secret.
        authorities: Option<String>,
        /// Of cert-manager, which writes the certificate. Otherwise a user does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issuer: Option<IssuerRef>,
    },
}

impl Source {
    pub fn of(tls: &api::Tls, names: &Names) -> Self {
        let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let issuer = tls.issuer_ref.clone();
        // A spec that names both breaks a rule.
        let issued = || issuer.is_some().then(|| names.issued());
        match named(&tls.certificate_secret).or_else(issued) {
            None => Self::Operator,
            Some(certificate) => {
                let issuer = issuer.filter(|_| certificate == names.issued());
                Self::Secrets { certificate, authorities: named(&tls.ca_secret), issuer }
            }
        }
    }

    pub fn is_operator(&self) -> bool {
        *self == Self::Operator
    }

    /// The Secrets with the certificate and with the authorities.
    pub fn secrets(&self) -> Option<(&str, &str)> {
        match self {
            Self::Operator => None,
            Self::Secrets { certificate, authorities, issuer: _ } => {
                Some((certificate, authorities.as_ref().unwrap_or(certificate)))
            }
        }
    }

    pub(super) fn is_in_one_secret(&self) -> bool {
        self.secrets().is_some_and(|(certificate, authorities)| certificate == authorities)
    }

    /// Which the operator asks for the certificate.
    pub fn issuer(&self) -> Option<&IssuerRef> {
        match self {
            Self::Operator => None,
            Self::Secrets { issuer, .. } => issuer.as_ref(),
        }
    }

    /// Whether a user decides for which names it is.
    pub fn is_user(&self) -> bool {
        !self.is_operator() && self.issuer().is_none()
    }
}

/// What the Secrets of a user have, without the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    pub certificate: Seen<Leaf, Lack>,
    pub authorities: Seen<Vec<Root>, Lack>,
    pub verified: Verified,
    /// What cert-manager reports, if it is asked for the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuance: Option<Issuance>,
}

/// Nothing in here reads keys or checks signatures, so these facts come from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    pub key: Key,
    pub chain: Chain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Key {
    Matches,
    /// It belongs to another certificate.
    Differs,
    Unreadable,
}

/// Whether the signatures lead from the certificate to one of the authorities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chain {
    Complete,
    /// In words.
    Broken(String),
    /// It was not checked, because something else is wrong.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    pub certificate: Certificate,
    pub serves: bool,
    /// etcd's gateway connects to the client port with the certificate of that port.
    pub connects: bool,
    pub is_authority: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    pub authority: Authority,
    pub not_after: Timestamp,
    pub is_authority: bool,
}

/// Why a Secret of a user gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lack {
    NoSecret,
    /// It would be copied into itself.
    OfTheOperator,
    Flaw(Flaw),
}

impl Given {
    /// `is_ours`: whether a Secret with this name belongs to the operator.
    pub fn read(
        certificate: Option<&Secret>,
        authorities: Option<&Secret>,
        verified: Verified,
        issuance: Option<Issuance>,
        is_ours: impl Fn(&str) -> bool,
    ) -> Self {
        let is_ours = |secret: &Secret| secret.metadata.name.as_deref().is_some_and(&is_ours);
        Self {
            certificate: read(certificate, is_ours, leaf),
            authorities: read(authorities, is_ours, roots),
            verified,
            issuance,
        }
    }

    /// None if something is wrong with them.
    pub(super) fn trusted(&self) -> Option<BTreeSet<Authority>> {
        Some(self.authorities.known()?.iter().map(|it| it.authority.clone()).collect())
    }
}

fn read<T>(
    secret: Option<&Secret>,
    is_ours: impl Fn(&Secret) -> bool,
    content: fn(&Secret) -> Result<T, Flaw>,
) -> Seen<T, Lack> {
    let found = match secret {
        None => Err(Lack::NoSecret),
        Some(secret) if is_ours(secret) => Err(Lack::OfTheOperator),
        Some(secret) => content(secret).map_err(Lack::Flaw),
    };
    found.map_or_else(Seen::Unknown, Seen::Known)
}

pub fn read_leaf(secret: &Secret) -> Option<Leaf> {
    leaf(secret).ok()
}

fn leaf(secret: &Secret) -> Result<Leaf, Flaw> {
    let data = secret.data.as_ref();
    let chain = chain(part(data, CERTIFICATE_KEY)?);
    let malformed = || Flaw::Malformed(CERTIFICATE_KEY.into());
    let leaf = chain.as_deref().and_then(leaf_of).ok_or_else(malformed)?;
    part(data, PRIVATE_KEY)?;
    Ok(leaf)
}

fn leaf_of(chain: &[Pem]) -> Option<Leaf> {
    let certificate = chain_of(chain, BTreeSet::new())?;
    let parsed = chain.first()?.parse_x509().ok()?;
    // Without the extension it can be used for everything.
    let usage = parsed.extended_key_usage().ok()?.map(|it| it.value);
    let is = |meant: fn(&x509_parser::extensions::ExtendedKeyUsage<'_>) -> bool| {
        usage.is_none_or(|usage| usage.any || meant(usage))
    };
    let (serves, connects) = (is(|it| it.server_auth), is(|it| it.client_auth));
    Some(Leaf { certificate, serves, connects, is_authority: parsed.is_ca() })
}

fn roots(secret: &Secret) -> Result<Vec<Root>, Flaw> {
    let chain = chain(part(secret.data.as_ref(), AUTHORITY_KEY)?);
    let roots = chain.and_then(|chain| chain.iter().map(root).collect());
    roots.ok_or_else(|| Flaw::Malformed(AUTHORITY_KEY.into()))
}

fn root(pem: &Pem) -> Option<Root> {
    let parsed = pem.parse_x509().ok()?;
    let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?;
    Some(Root { authority: authority(pem)?, not_after, is_authority: parsed.is_ca() })
}

/// What a user gives, if nothing is wrong with it.
pub(super) fn usable<'a>(profile: &Profile, seen: &'a Observed) -> Option<(&'a Leaf, BTreeSet<Authority>)> {
    let given = seen.given.as_ref().filter(|_| !profile.source.is_operator())?;
    let usable = problems(profile, seen).is_empty() && given.verified.chain == Chain::Complete;
    Some((given.certificate.known()?, given.trusted()?)).filter(|_| usable)
}

/// The authorities of a user that should be in use; none if that is not known, and everything stays.
pub(crate) fn wanted_authorities(profile: &Profile, seen: &Observed) -> Option<BTreeSet<Authority>> {
    if profile.source.is_operator() {
        return Some(BTreeSet::new());
    }
    usable(profile, seen).map(|(_, authorities)| authorities)
}

#[cfg(test)]
mod tests;
