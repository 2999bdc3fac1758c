//! The certificate that a user gives: whether its key is its own, and whether its authorities issued it. What it says is read
//! in `core`.
//!
//! No part of a key gets out of here.

use std::sync::Arc;

use etcd_operator_core::tls::{
    self, AUTHORITY_KEY, CERTIFICATE_KEY, Chain, GIVEN_AUTHORITIES_KEY, Key, Leaf, NEXT_CERTIFICATE_KEY,
    PRIVATE_KEY, Verified,
};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use pem::{EncodeConfig, LineEnding, Pem};
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore};

use super::Content;
use crate::credentials::{PROVIDER, authorities, certificates};

const CERTIFICATE: &str = "CERTIFICATE";

/// What signatures and keys show of a certificate in the one Secret and its authorities in the other.
pub fn verify(certificate: Option<&Secret>, authorities: Option<&Secret>, now: Timestamp) -> Verified {
    Verified { key: key(certificate), chain: chain(certificate, authorities, now) }
}

fn part<'a>(secret: Option<&'a Secret>, key: &str) -> &'a [u8] {
    let found = secret.and_then(|secret| secret.data.as_ref()?.get(key));
    found.map(|it| it.0.as_slice()).unwrap_or_default()
}

fn key(secret: Option<&Secret>) -> Key {
    let Ok(key) = PrivateKeyDer::from_pem_slice(part(secret, PRIVATE_KEY)) else { return Key::Unreadable };
    let Ok(key) = PROVIDER.key_provider.load_private_key(key) else { return Key::Unreadable };
    let chain = certificates(part(secret, CERTIFICATE_KEY)).unwrap_or_default();
    match CertifiedKey::new(chain, key).keys_match() {
        Ok(()) => Key::Matches,
        Err(_) => Key::Differs,
    }
}

fn chain(certificate: Option<&Secret>, authority: Option<&Secret>, now: Timestamp) -> Chain {
    let chain = certificates(part(certificate, CERTIFICATE_KEY));
    let (Some(leaf), Some(roots), Some(chain)) =
        (certificate.and_then(tls::read_leaf), authorities(part(authority, AUTHORITY_KEY)), chain)
    else {
        return Chain::Unknown;
    };
    // That it has expired is one problem, and that its authority is another one a second.
    let Leaf { certificate: tls::Certificate { not_before, not_after, .. }, is_authority, .. } = leaf;
    let valid = if now < not_before { not_before } else { now.min(not_after) };
    match leads(&chain, roots, valid) {
        _ if is_authority => Chain::Unknown,
        Ok(()) => Chain::Complete,
        // That has its own words.
        Err(Error::InvalidCertificate(CertificateError::InvalidPurpose)) => Chain::Unknown,
        Err(Error::InvalidCertificate(CertificateError::InvalidPurposeContext { .. })) => Chain::Unknown,
        Err(error) => Chain::Broken(words(&error)),
    }
}

/// It can be for servers or for clients, or for both.
fn leads(chain: &[CertificateDer<'_>], roots: RootCertStore, at: Timestamp) -> Result<(), Error> {
    let (leaf, others) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at.as_second().unsigned_abs()));
    let algorithms = PROVIDER.signature_verification_algorithms.all;
    let parsed = ParsedCertificate::try_from(leaf)?;
    let as_server = verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, at, algorithms);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&PROVIDER)).build();
    let as_client =
        |_| verifier.map_err(|error| Error::General(error.to_string()))?.verify_client_cert(leaf, others, at);
    as_server.or_else(|error| as_client(error).map(drop))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all else is reported as the library words it")]
fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(flaw) => match flaw {
            CertificateError::UnknownIssuer => "none of them issued it".into(),
            CertificateError::BadSignature => "its signature is of another authority of that name".into(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "a certificate between them has expired".into()
            }
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// The Secret of the client port with this certificate of a user, and with all authorities that the port trusts.
pub fn copied(certificate: &Secret, authority: &Secret) -> Option<Content> {
    let part = |secret: &Secret, key: &str| secret.data.as_ref()?.get(key).cloned();
    let parts = [(certificate, CERTIFICATE_KEY), (certificate, PRIVATE_KEY), (authority, AUTHORITY_KEY)];
    parts.map(|(secret, key)| Some((key.to_owned(), part(secret, key)?))).into_iter().collect()
}

/// The Secret of the authority of clients, which trusts these of a user from now on, and nothing less than before.
pub(super) fn accept(content: &mut Content, given: Option<&Secret>) {
    let given = blocks(part(given, AUTHORITY_KEY));
    let trusted = content.get(AUTHORITY_KEY).map(|it| it.0.clone()).unwrap_or_default();
    content.insert(AUTHORITY_KEY.into(), encoded(blocks(&trusted).into_iter().chain(given.clone())));
    match given.is_empty() {
        true => drop(content.remove(GIVEN_AUTHORITIES_KEY)),
        false => drop(content.insert(GIVEN_AUTHORITIES_KEY.into(), encoded(given))),
    }
}

/// What its port trusts when nothing of before is in use any more.
pub(super) fn needed(content: &Content) -> ByteString {
    let keys = [CERTIFICATE_KEY, NEXT_CERTIFICATE_KEY, GIVEN_AUTHORITIES_KEY];
    encoded(keys.into_iter().filter_map(|key| content.get(key)).flat_map(|it| blocks(&it.0)))
}

/// The certificates in there, without what users write between them.
fn blocks(pem: &[u8]) -> Vec<Pem> {
    let found = pem::parse_many(pem).unwrap_or_default();
    found.into_iter().filter(|it| it.tag() == CERTIFICATE).collect()
}

/// Each of them once.
fn encoded(blocks: impl IntoIterator<Item = Pem>) -> ByteString {
    let mut once: Vec<Pem> = Vec::new();
    for block in blocks {
        if !once.iter().any(|it| it.contents() == block.contents()) {
            once.push(Pem::new(CERTIFICATE, block.contents()));
        }
    }
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    ByteString(once.iter().flat_map(|it| pem::encode_config(it, config).into_bytes()).collect())
}

#[cfg(test)]
mod tests;
