//! Issues the certificates of a cluster: the only place with randomness. What a certificate says is decided in `core`.
//!
//! Errors have fixed texts, so that no part of a key gets into one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, KeyAlgorithm, PRIVATE_KEY, Profile, Usage};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, SanType,
};

use crate::credentials::certified_key;

/// What a Secret holds.
pub type Content = BTreeMap<String, ByteString>;

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
    let parameters = parameters(profile, now)?;
    let (certificate, trusted) = match profile.usage {
        Usage::Authority => (parameters.self_signed(&key), None),
        Usage::Both | Usage::Client => {
            let (issuer, certificate) = issuer(authority.ok_or(Error::NoAuthority)?)?;
            (parameters.signed_by(&key, &issuer), Some(certificate))
        }
    };
    let certificate = certificate.map_err(|_| Error::Cryptography)?.pem();
    let trusted = trusted.unwrap_or_else(|| certificate.clone());
    let content =
        [(CERTIFICATE_KEY, certificate), (PRIVATE_KEY, key.serialize_pem()), (AUTHORITY_KEY, trusted)];
    Ok(content.map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).into())
}

/// The serial number comes of the key, which is new, so it is random and used once.
fn parameters(profile: &Profile, now: Timestamp) -> Result<CertificateParams, Error> {
    let mut parameters = CertificateParams::default();
    let (since, until) = profile.validity(now);
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

/// With its own certificate.
fn issuer(secret: &Secret) -> Result<(Issuer<'static, KeyPair>, String), Error> {
    let unusable = |key| Error::Authority { secret: secret.name_any(), key };
    let part = |key: &'static str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.and_then(|it| std::str::from_utf8(&it.0).ok()).ok_or_else(|| unusable(key))
    };
    let (certificate, key) = (part(CERTIFICATE_KEY)?, part(PRIVATE_KEY)?);
    let pair = KeyPair::from_pem(key).map_err(|_| unusable(PRIVATE_KEY))?;
    let issuer = Issuer::from_ca_cert_pem(certificate, pair).map_err(|_| unusable(CERTIFICATE_KEY))?;
    match certified_key(certificate.as_bytes(), key.as_bytes()) {
        Ok(_) => Ok((issuer, certificate.to_owned())),
        Err(_) => Err(Error::OtherKey { secret: secret.name_any() }),
    }
}

#[cfg(test)]
mod tests;
