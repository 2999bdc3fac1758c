//! What the certificate in a Secret says. Private keys are never read in here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::{
    AUTHORITY_KEY, CERTIFICATE_KEY, GIVEN_AUTHORITIES_KEY, NEXT_CERTIFICATE_KEY, NEXT_PRIVATE_KEY,
    PRIVATE_KEY,
};

/// Far more than two certificates of one cluster need to differ.
const FINGERPRINT_BYTES: usize = 16;
/// Clocks differ, so a certificate is valid from before it was issued: by so much, or by less if it does not last long.
pub(super) const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    pub common_name: String,
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// The key identifier of what signed it.
    pub signed_by: Option<String>,
    /// What is trusted beside it.
    pub trusts: BTreeSet<Authority>,
    /// By which it is recognized when a port shows it: of the certificate and of all that come with it.
    #[serde(default)]
    pub fingerprint: String,
}

/// An authority as others know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Authority {
    /// Its key identifier, which certificates name that it signed.
    pub key: String,
    /// Its name, by which a port names what it trusts.
    pub subject: String,
    /// Users renew an authority and keep its key and its name.
    #[serde(default)]
    pub fingerprint: String,
}

impl Certificate {
    pub fn trusts(&self, key: &str) -> bool {
        self.trusts.iter().any(|it| it.key == key)
    }

    /// When the operator issued it: the inverse of [`super::Profile::validity_within`].
    pub fn issued(&self) -> Timestamp {
        let backdated = BACKDATED.min(self.not_after.duration_since(self.not_before) / 11);
        self.not_before.checked_add(backdated).unwrap_or(self.not_before)
    }
}

/// Why a Secret is of no use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flaw {
    Missing(String),
    Malformed(String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(key) => write!(f, "it has no {key}"),
            Self::Malformed(key) => write!(f, "its {key} is no certificate in PEM format"),
        }
    }
}

pub type Content = BTreeMap<String, ByteString>;

/// The first certificate of the chain is the one that counts.
pub fn read(data: Option<&Content>) -> Result<Certificate, Flaw> {
    part(data, PRIVATE_KEY)?;
    let (own, trusted) = (part(data, CERTIFICATE_KEY)?, part(data, AUTHORITY_KEY)?);
    let malformed = |key: &str| Flaw::Malformed(key.into());
    let chain = chain(own).ok_or_else(|| malformed(CERTIFICATE_KEY))?;
    let trusts = authorities(trusted).ok_or_else(|| malformed(AUTHORITY_KEY))?;
    chain_of(&chain, trusts).ok_or_else(|| malformed(CERTIFICATE_KEY))
}

/// What a Secret has under this key.
pub(super) fn part<'a>(data: Option<&'a Content>, key: &str) -> Result<&'a [u8], Flaw> {
    let there = data.and_then(|data| data.get(key)).filter(|it| !it.0.is_empty());
    there.map(|it| it.0.as_slice()).ok_or_else(|| Flaw::Missing(key.into()))
}

/// All certificates in there; none if one of them cannot be read, or if there is none.
pub(super) fn chain(pem: &[u8]) -> Option<Vec<Pem>> {
    let found: Option<Vec<_>> = Pem::iter_from_buffer(pem).map(Result::ok).collect();
    found.filter(|found| !found.is_empty())
}

pub(super) fn chain_of(chain: &[Pem], trusts: BTreeSet<Authority>) -> Option<Certificate> {
    let fingerprint = fingerprint(chain.iter().map(|it| it.contents.as_slice()));
    understand(&chain.first()?.parse_x509().ok()?, trusts, fingerprint)
}

/// The authority that is to sign next, if one is there with its key.
pub fn read_next(data: Option<&Content>) -> Option<Authority> {
    let data = data?;
    data.get(NEXT_PRIVATE_KEY).filter(|it| !it.0.is_empty())?;
    authority(chain(&data.get(NEXT_CERTIFICATE_KEY)?.0)?.first()?)
}

/// The authorities of a user that are in use.
pub fn read_given(data: Option<&Content>) -> BTreeSet<Authority> {
    part(data, GIVEN_AUTHORITIES_KEY).ok().and_then(authorities).unwrap_or_default()
}

/// Of certificates in DER: one, and those that come with it.
pub fn fingerprint<'a>(chain: impl IntoIterator<Item = &'a [u8]>) -> String {
    let digest = chain.into_iter().fold(Sha256::new(), Sha256::chain_update).finalize();
    hexadecimal(&digest[..FINGERPRINT_BYTES])
}

/// A name in DER, as text. One that cannot be read is as good as any other.
pub fn subject(der: &[u8]) -> String {
    X509Name::from_der(der).map_or_else(|_| hexadecimal(der), |(_, name)| name.to_string())
}

pub(super) fn authority(pem: &Pem) -> Option<Authority> {
    let certificate = pem.parse_x509().ok()?;
    // Not every authority says how it calls its key.
    let of_key = || fingerprint([certificate.public_key().raw]);
    Some(Authority {
        key: key_identifier(&certificate).unwrap_or_else(of_key),
        subject: subject(certificate.subject().as_raw()),
        fingerprint: fingerprint([pem.contents.as_slice()]),
    })
}

/// None if one of them cannot be read, or if there is none.
fn authorities(pem: &[u8]) -> Option<BTreeSet<Authority>> {
    chain(pem)?.iter().map(authority).collect()
}

fn understand(
    certificate: &X509Certificate<'_>,
    trusts: BTreeSet<Authority>,
    fingerprint: String,
) -> Option<Certificate> {
    let time = |seconds| Timestamp::from_second(seconds).ok();
    let common_name = certificate.subject().iter_common_name().next();
    let (mut dns_names, mut ip_addresses) = (Vec::new(), Vec::new());
    let alternatives = certificate.subject_alternative_name().ok()?;
    for name in alternatives.iter().flat_map(|it| &it.value.general_names) {
        if let GeneralName::DNSName(name) = name {
            dns_names.push((*name).to_owned());
        } else if let GeneralName::IPAddress(bytes) = name {
            ip_addresses.push(address(bytes)?.to_string());
        }
    }
    Some(Certificate {
        common_name: common_name.and_then(|it| it.as_str().ok()).unwrap_or_default().to_owned(),
        dns_names,
        ip_addresses,
        not_before: time(certificate.validity().not_before.timestamp())?,
        not_after: time(certificate.validity().not_after.timestamp())?,
        signed_by: signer(certificate),
        trusts,
        fingerprint,
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn key_identifier(certificate: &X509Certificate<'_>) -> Option<String> {
    certificate.extensions().iter().find_map(|it| {
        let ParsedExtension::SubjectKeyIdentifier(identifier) = it.parsed_extension() else { return None };
        Some(hexadecimal(identifier.0))
    })
}

fn signer(certificate: &X509Certificate<'_>) -> Option<String> {
    let named = certificate.extensions().iter().find_map(|it| {
        let ParsedExtension::AuthorityKeyIdentifier(it) = it.parsed_extension() else { return None };
        it.key_identifier.as_ref().map(|it| hexadecimal(it.0))
    });
    // An authority that signs itself need not say so.
    let signs_itself = || certificate.subject() == certificate.issuer();
    named.or_else(|| key_identifier(certificate).filter(|_| signs_itself()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with openssl, so that nothing of ours wrote what is read here.
    const OWN: &str = include_str!("testdata/leaf.crt");
    const AUTHORITY: &str = include_str!("testdata/ca.crt");
    const FINGERPRINT: &str = "bc66bc0c449136b33caa8267b032baf2";
    const AUTHORITY_FINGERPRINT: &str = "d64ee93f4b4bbb7400e2f5a4537fb1de";
    const KEY_IDENTIFIER: &str = "6d3bed930d1f96576c716bbc56768c26a9e8ba70";

    fn data(parts: [(&str, &str); 3]) -> BTreeMap<String, ByteString> {
        parts.into_iter().map(|(key, text)| (key.into(), ByteString(text.into()))).collect()
    }

    fn secret(own: &str, authority: &str) -> Result<Certificate, Flaw> {
        read(Some(&data([(CERTIFICATE_KEY, own), (PRIVATE_KEY, "a key"), (AUTHORITY_KEY, authority)])))
    }

    #[test]
    fn a_certificate_says_whose_it_is_until_when_and_by_which_authority() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        let expected = Certificate {
            common_name: "kv-client".into(),
            dns_names: vec!["kv-peer.ns.svc.cluster.local".into(), "localhost".into()],
            ip_addresses: vec!["127.0.0.1".into(), "fd00::1".into()],
            not_before: time("2026-11-18T04:51:33Z"),
            not_after: time("2126-10-25T04:51:33Z"),
            signed_by: Some(KEY_IDENTIFIER.into()),
            trusts: BTreeSet::from([Authority {
                key: KEY_IDENTIFIER.into(),
                subject: "CN=ns/kv client-ca".into(),
                fingerprint: AUTHORITY_FINGERPRINT.into(),
            }]),
            fingerprint: FINGERPRINT.into(),
        };
        assert_eq!(secret(OWN, AUTHORITY), Ok(expected.clone()));
        let chain = secret(&format!("{OWN}{AUTHORITY}"), AUTHORITY).expect("it can be read");
        assert_ne!(chain.fingerprint, expected.fingerprint, "a port shows both");
        let first = Certificate { fingerprint: expected.fingerprint.clone(), ..chain };
        assert_eq!(first, expected, "the first of a chain counts");
    }

    #[test]
    fn an_authority_signs_itself() {
        let authority = secret(AUTHORITY, AUTHORITY).expect("it is one");
        assert_eq!(authority.signed_by.as_deref(), Some(KEY_IDENTIFIER));
        assert!(authority.dns_names.is_empty());
    }

    #[test]
    fn what_is_missing_or_unreadable_is_named() {
        assert_eq!(read(None), Err(Flaw::Missing(PRIVATE_KEY.into())));
        assert_eq!(secret("", AUTHORITY), Err(Flaw::Missing(CERTIFICATE_KEY.into())));
        assert_eq!(secret(OWN, ""), Err(Flaw::Missing(AUTHORITY_KEY.into())));
        assert_eq!(secret("text", AUTHORITY), Err(Flaw::Malformed(CERTIFICATE_KEY.into())));
        assert_eq!(secret(OWN, "text"), Err(Flaw::Malformed(AUTHORITY_KEY.into())));
        let cut = &OWN[..OWN.len() / 2];
        assert_eq!(secret(cut, AUTHORITY), Err(Flaw::Malformed(CERTIFICATE_KEY.into())));
        let another = secret(OWN, OWN).expect("it can be read");
        assert!(!another.trusts(KEY_IDENTIFIER), "trusts another key than the one that signed it");
    }
}
