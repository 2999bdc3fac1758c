//! The certificate of the metrics port: from files, or made by this process and known to nobody else.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use etcd_operator_core::tls::{CERTIFICATE_KEY, PRIVATE_KEY};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ServerConfig};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::credentials::{PROVIDER, certified_key};
use crate::telemetry::chain;

/// It is replaced after half of this time.
const VALID_FOR: Duration = Duration::from_secs(365 * 24 * 3600);
const CLOCKS_DIFFER_BY: Duration = Duration::from_secs(3600);
const PROTOCOL: &[u8] = b"http/1.1";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: --metrics-certificate needs a directory with {CERTIFICATE_KEY} and {PRIVATE_KEY}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("cannot use {CERTIFICATE_KEY} and {PRIVATE_KEY} in {}", directory.display())]
    Unusable { directory: PathBuf, source: tokio_rustls::rustls::Error },
    #[error("cannot create a certificate for the metrics port")]
    Create(#[source] rcgen::Error),
    #[error("cannot use the certificate that was created for the metrics port")]
    Created(#[source] tokio_rustls::rustls::Error),
}

pub struct Certificate {
    source: Source,
    current: Mutex<Current>,
}

pub enum Source {
    /// A directory with the files of a Secret, which can change at any time.
    Files(PathBuf),
    /// Signed by itself, for this host.
    SelfSigned(String),
}

struct Current {
    config: Arc<ServerConfig>,
    /// What it was read from.
    content: Vec<u8>,
    made: SystemTime,
}

impl Certificate {
    pub fn new(source: Source) -> Result<Self, Error> {
        let current = Mutex::new(source.load(SystemTime::now())?);
        Ok(Self { source, current })
    }

    /// For one connection. Files that cannot be used any more leave the certificate that was read last.
    pub fn config(&self) -> Arc<ServerConfig> {
        let now = SystemTime::now();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if self.source.has_changed(&current, now) {
            match self.source.load(now) {
                Ok(next) => *current = next,
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "keeping the previous certificate for metrics");
                }
            }
        }
        Arc::clone(&current.config)
    }
}

impl Source {
    fn has_changed(&self, current: &Current, now: SystemTime) -> bool {
        match self {
            Self::Files(directory) => {
                content(directory).is_ok_and(|(chain, key)| [chain, key].concat() != current.content)
            }
            Self::SelfSigned(_) => now.duration_since(current.made).is_ok_and(|age| age > VALID_FOR / 2),
        }
    }

    fn load(&self, now: SystemTime) -> Result<Current, Error> {
        let (key, content) = match self {
            Self::Files(directory) => {
                let (chain, key) = content(directory)?;
                let unusable = |source| Error::Unusable { directory: directory.clone(), source };
                (certified_key(&chain, &key).map_err(unusable)?, [chain, key].concat())
            }
            Self::SelfSigned(host) => (self_signed(host, now)?, Vec::new()),
        };
        Ok(Current { config: config(key), content, made: now })
    }
}

fn content(directory: &Path) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let read = |name: &str| {
        let file = directory.join(name);
        fs::read(&file).map_err(|source| Error::Read { file, source })
    };
    Ok((read(CERTIFICATE_KEY)?, read(PRIVATE_KEY)?))
}

fn self_signed(host: &str, now: SystemTime) -> Result<CertifiedKey, Error> {
    let mut parameters = CertificateParams::new(vec![host.to_owned()]).map_err(Error::Create)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "etcd-operator-metrics");
    parameters.not_before = (now - CLOCKS_DIFFER_BY).into();
    parameters.not_after = (now + VALID_FOR).into();
    let key = KeyPair::generate().map_err(Error::Create)?;
    let certificate = parameters.self_signed(&key).map_err(Error::Create)?;
    certified_key(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).map_err(Error::Created)
}

fn config(key: CertifiedKey) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()
        .expect("the provider has ciphers for them")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A connection is for one scrape, and scrapes are rare.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}
