//! TLS to the client port of a member: what the operator proves its identity with, and what it trusts.
//!
//! Texts of errors are for users, and none has a part of a key.

use std::fmt;
use std::sync::{Arc, LazyLock};

use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

pub use self::secured::{Secured, failed_handshake};

mod secured;

/// etcd's gRPC.
const PROTOCOL: &[u8] = b"h2";

pub(crate) static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

/// How to connect to a member.
#[derive(Clone, Debug)]
pub enum Security {
    Plain,
    /// Its certificate has to be for this host.
    Tls {
        credentials: Result<Credentials, Unusable>,
        host: String,
    },
}

/// The content of a Secret, ready to be used.
#[derive(Clone)]
pub struct Credentials(pub(crate) TlsConnector);

/// Why there are no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("TLS: the operator has no certificate yet: Secret {0} does not exist")]
    Missing(String),
    #[error("TLS: the operator cannot use its certificate: Secret {secret} has no valid {key}")]
    Malformed { secret: String, key: &'static str },
    #[error(
        "TLS: the operator cannot use its certificate: {PRIVATE_KEY} of Secret {0} does not belong to its {CERTIFICATE_KEY}"
    )]
    OtherKey(String),
}

impl Credentials {
    pub fn read(secret: &Secret) -> Result<Self, Unusable> {
        let malformed = |key| Unusable::Malformed { secret: secret.name_any(), key };
        let part = |key: &'static str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            bytes.map(|it| it.0.as_slice()).ok_or_else(|| malformed(key))
        };
        let trusted = authorities(part(AUTHORITY_KEY)?).ok_or_else(|| malformed(AUTHORITY_KEY))?;
        let chain = certificates(part(CERTIFICATE_KEY)?).ok_or_else(|| malformed(CERTIFICATE_KEY))?;
        let key = PrivateKeyDer::from_pem_slice(part(PRIVATE_KEY)?).map_err(|_| malformed(PRIVATE_KEY))?;
        let config = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_safe_default_protocol_versions()
            .expect("the provider has ciphers for them")
            .with_root_certificates(trusted)
            .with_client_auth_cert(chain, key);
        let mut config = config.map_err(|_| Unusable::OtherKey(secret.name_any()))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Connections last. What a faster second one needs would take memory for each cluster.
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config).into()))
    }

    /// The other end has to prove that it is this host.
    pub async fn secure<S>(&self, stream: S, host: &str) -> Result<Secured<S>, String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("TLS: no host is called {host}"))?;
        let secured = self.0.connect(name, stream).await;
        secured.map(Secured::from).map_err(|error| failed_handshake(&error))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// A certificate with its key: an error if one is not of the other.
pub fn certified_key(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, rustls::Error> {
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| rustls::Error::General("no key".into()))?;
    CertifiedKey::from_der(certificates(chain).unwrap_or_default(), key, &PROVIDER)
}

/// None if one of them cannot be used, or if there is none.
pub(crate) fn authorities(pem: &[u8]) -> Option<RootCertStore> {
    let mut trusted = RootCertStore::empty();
    certificates(pem)?.into_iter().try_for_each(|it| trusted.add(it)).ok()?;
    Some(trusted)
}

/// None if one of them cannot be read, or if there is none.
pub(crate) fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Option<Vec<_>> = CertificateDer::pem_slice_iter(pem).map(Result::ok).collect();
    found.filter(|found| !found.is_empty())
}
