//! Issues the certificates of a cluster: the only place with randomness. What a certificate says is decided in `core`.
//!
//! Errors have fixed texts, so that no part of a key gets into one.

mod given;

use std::net::IpAddr;
use std::time::SystemTime;

pub use etcd_operator_core::tls::Content;
use etcd_operator_core::tls::{
    self, AUTHORITY_KEY, CERTIFICATE_KEY, KeyAlgorithm, NEXT_CERTIFICATE_KEY, NEXT_PRIVATE_KEY, PRIVATE_KEY,
    Profile, Stage, Usage,
};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, SanType,
};

use crate::credentials::certified_key;
pub use given::{copied, verify};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the authority's Secret is missing")]
    NoAuthority,
    #[error("Secret {secret} cannot be used to sign: its {key} is missing or malformed")]
    Authority { secret: String, key: &'static str },
    /// Nothing would accept what it signs.
    #[error(
        "Secret {secret} cannot be used to sign: its {PRIVATE_KEY} does not belong to its {CERTIFICATE_KEY}"
    )]
    OtherKey { secret: String },
    #[error("{0:?} cannot be a name in a certificate")]
    Name(String),
    #[error("no key or signature could be made")]
    Cryptography,
}

/// A new key and its certificate: signed by this authority, or an authority that signs itself.
pub fn issue(profile: &Profile, authority: Option<&Secret>, now: Timestamp) -> Result<Content, Error> {
    let algorithm = match profile.key_algorithm {
        KeyAlgorithm::ECDSAP256 => &PKCS_ECDSA_P256_SHA256,
        KeyAlgorithm::ECDSAP384 => &PKCS_ECDSA_P384_SHA384,
    };
    let key = KeyPair::generate_for(algorithm).map_err(|_| Error::Cryptography)?;
    let (certificate, trusted) = match profile.usage {
        Usage::Authority => (parameters(profile, now, Timestamp::MAX)?.self_signed(&key), None),
        Usage::Both | Usage::Client => {
            let Signer { issuer, expires, trusted } = signer(authority.ok_or(Error::NoAuthority)?)?;
            (parameters(profile, now, expires)?.signed_by(&key, &issuer), Some(trusted))
        }
    };
    let certificate = certificate.map_err(|_| Error::Cryptography)?.pem();
    let trusted = trusted.unwrap_or_else(|| certificate.clone());
    let content =
        [(CERTIFICATE_KEY, certificate), (PRIVATE_KEY, key.serialize_pem()), (AUTHORITY_KEY, trusted)];
    Ok(content.map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).into())
}

/// The serial number comes of the key, which is new, so it is random and used once.
fn parameters(profile: &Profile, now: Timestamp, end: Timestamp) -> Result<CertificateParams, Error> {
    let mut parameters = CertificateParams::default();
    let (since, until) = profile.validity_within(now, end);
    parameters.not_before = SystemTime::from(since).into();
    parameters.not_after = SystemTime::from(until).into();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, profile.common_name.as_str());
    let invalid = |name: &String| Error::Name(name.clone());
    for name in &profile.dns_names {
        let dns_name = name.as_str().try_into().map_err(|_| invalid(name))?;
        parameters.subject_alt_names.push(SanType::DnsName(dns_name));
    }
    for name in &profile.ip_addresses {
        let address: IpAddr = name.parse().map_err(|_| invalid(name))?;
        parameters.subject_alt_names.push(SanType::IpAddress(address));
    }
    match profile.usage {
        Usage::Authority => {
            parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        }
        Usage::Both | Usage::Client => {
            parameters.use_authority_key_identifier_extension = true;
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
    }
    if profile.usage == Usage::Both {
        parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(parameters)
}

/// The Secret of an authority after a step to its successor. All but [`Stage::Introduce`] only move what is there, or what a user
/// gives.
pub fn rotate(
    profile: &Profile,
    secret: &Secret,
    stage: Stage,
    given: Option<&Secret>,
    now: Timestamp,
) -> Result<Content, Error> {
    let mut content = secret.data.clone().ok_or(Error::NoAuthority)?;
    let malformed = |key| Error::Authority { secret: secret.name_any(), key };
    match stage {
        Stage::Introduce => {
            let mut next = issue(&profile.successor(now), None, now)?;
            let certificate = next.remove(CERTIFICATE_KEY).ok_or(Error::Cryptography)?;
            let key = next.remove(PRIVATE_KEY).ok_or(Error::Cryptography)?;
            let trusted = content.get_mut(AUTHORITY_KEY).ok_or_else(|| malformed(AUTHORITY_KEY))?;
            trusted.0.extend_from_slice(&certificate.0);
            content
                .extend([(NEXT_CERTIFICATE_KEY.to_owned(), certificate), (NEXT_PRIVATE_KEY.to_owned(), key)]);
        }
        Stage::Promote => {
            for (from, to) in [(NEXT_CERTIFICATE_KEY, CERTIFICATE_KEY), (NEXT_PRIVATE_KEY, PRIVATE_KEY)] {
                let next = content.remove(from).ok_or_else(|| malformed(from))?;
                content.insert(to.to_owned(), next);
            }
        }
        Stage::Withdraw => {
            content.get(CERTIFICATE_KEY).ok_or_else(|| malformed(CERTIFICATE_KEY))?;
            let needed = given::needed(&content);
            content.insert(AUTHORITY_KEY.to_owned(), needed);
        }
        Stage::Accept => given::accept(&mut content, given),
    }
    Ok(content)
}

struct Signer {
    issuer: Issuer<'static, KeyPair>,
    expires: Timestamp,
    /// All authorities that its port trusts.
    trusted: String,
}

fn signer(secret: &Secret) -> Result<Signer, Error> {
    let unusable = |key| Error::Authority { secret: secret.name_any(), key };
    let part = |key: &'static str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.and_then(|it| std::str::from_utf8(&it.0).ok()).ok_or_else(|| unusable(key))
    };
    let (certificate, key) = (part(CERTIFICATE_KEY)?, part(PRIVATE_KEY)?);
    let pair = KeyPair::from_pem(key).map_err(|_| unusable(PRIVATE_KEY))?;
    let issuer = Issuer::from_ca_cert_pem(certificate, pair).map_err(|_| unusable(CERTIFICATE_KEY))?;
    let held = tls::read(secret.data.as_ref()).map_err(|_| unusable(AUTHORITY_KEY))?;
    match certified_key(certificate.as_bytes(), key.as_bytes()) {
        Ok(_) => Ok(Signer { issuer, expires: held.not_after, trusted: part(AUTHORITY_KEY)?.to_owned() }),
        Err(_) => Err(Error::OtherKey { secret: secret.name_any() }),
    }
}

#[cfg(test)]
mod tests;
