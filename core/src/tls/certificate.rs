//! What the certificate in a Secret says. Private keys are never read in here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;

use super::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    pub common_name: String,
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// The key identifier of what signed it.
    pub signed_by: Option<String>,
    /// The key identifiers of what is trusted beside it.
    pub trusts: BTreeSet<String>,
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

/// The first certificate of the chain is the one that counts.
pub fn read(data: Option<&BTreeMap<String, ByteString>>) -> Result<Certificate, Flaw> {
    let part = |key: &str| {
        let there = data.and_then(|data| data.get(key)).filter(|it| !it.0.is_empty());
        there.map(|it| it.0.as_slice()).ok_or_else(|| Flaw::Missing(key.into()))
    };
    part(PRIVATE_KEY)?;
    let (own, trusted) = (part(CERTIFICATE_KEY)?, part(AUTHORITY_KEY)?);
    let malformed = |key: &str| Flaw::Malformed(key.into());
    let own = first(own).ok_or_else(|| malformed(CERTIFICATE_KEY))?;
    let trusts = authorities(trusted).ok_or_else(|| malformed(AUTHORITY_KEY))?;
    let certificate = own.parse_x509().ok().and_then(|it| understand(&it, trusts));
    certificate.ok_or_else(|| malformed(CERTIFICATE_KEY))
}

fn first(pem: &[u8]) -> Option<Pem> {
    Pem::iter_from_buffer(pem).next()?.ok()
}

/// None if one of them cannot be read, or if there is none.
fn authorities(pem: &[u8]) -> Option<BTreeSet<String>> {
    let identifier = |pem: Pem| key_identifier(&pem.parse_x509().ok()?);
    let found: Option<BTreeSet<_>> = Pem::iter_from_buffer(pem).map(|it| identifier(it.ok()?)).collect();
    found.filter(|found| !found.is_empty())
}

fn understand(certificate: &X509Certificate<'_>, trusts: BTreeSet<String>) -> Option<Certificate> {
    let time = |seconds| Timestamp::from_second(seconds).ok();
    let common_name = certificate.subject().iter_common_name().next();
    let (mut dns_names, mut ip_addresses) = (Vec::new(), Vec::new());
    let alternatives = certificate.subject_alternative_name().ok()?;
    for name in alternatives.iter().flat_map(|it| &it.value.general_names) {
        match name {
            GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => ip_addresses.push(address(bytes)?.to_string()),
            _ => {}
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
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn key_identifier(certificate: &X509Certificate<'_>) -> Option<String> {
    certificate.extensions().iter().find_map(|it| match it.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(hexadecimal(identifier.0)),
        _ => None,
    })
}

fn signer(certificate: &X509Certificate<'_>) -> Option<String> {
    let named = certificate.extensions().iter().find_map(|it| match it.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(it) => it.key_identifier.as_ref().map(|it| hexadecimal(it.0)),
        _ => None,
    });
    // An authority that signs itself need not say so.
    let signs_itself = || certificate.subject() == certificate.issuer();
    named.or_else(|| key_identifier(certificate).filter(|_| signs_itself()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
