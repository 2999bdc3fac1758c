//! TLS to the peer ports of other members, with the certificates that etcd itself uses there.

use std::io::{self, Read, Write};
use std::sync::Arc;

use etcd_operator_core::etcd_config::tls_file;
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, Purpose};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}")]
    Read { path: String, source: io::Error },
    /// Without the parser's words: they can quote the file, which can be a private key.
    #[error("{path} is not in PEM format or lacks what its name promises")]
    Parse { path: String },
    #[error("cannot use {path}")]
    Use { path: String, source: rustls::Error },
    #[error("{0} is not a server name")]
    ServerName(String),
}

/// Connects as this member, and only to a member of the same cluster.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl Tls {
    /// With what is on disk now: certificates are renewed in place.
    pub fn read(tls_dir: &str, purpose: Purpose, server_name: &str) -> Result<Self, Error> {
        let path = |key| tls_file(tls_dir, purpose, key);
        let unusable = |key| move |source| Error::Use { path: path(key), source };
        let mut authorities = RootCertStore::empty();
        for authority in certificates(path(AUTHORITY_KEY))? {
            authorities.add(authority).map_err(unusable(AUTHORITY_KEY))?;
        }
        let key = PrivateKeyDer::from_pem_slice(&content(&path(PRIVATE_KEY))?)
            .map_err(|_| Error::Parse { path: path(PRIVATE_KEY) })?;
        let provider = default_provider();
        // The first random number of a process takes 50 ms of computing, so it is not left to a question with a deadline.
        // If there is none, the handshake fails and reports it.
        let _ = provider.secure_random.fill(&mut [0]);
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable(CERTIFICATE_KEY))?
            .with_root_certificates(authorities)
            .with_client_auth_cert(certificates(path(CERTIFICATE_KEY))?, key)
            .map_err(unusable(CERTIFICATE_KEY))?;
        // All members have the same server name, but none can resume a session of another.
        config.resumption = Resumption::disabled();
        let server_name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| Error::ServerName(server_name.to_owned()))?;
        Ok(Self { config: Arc::new(config), server_name })
    }

    /// The first write does the handshake.
    pub fn over<S: Read + Write>(&self, stream: S) -> io::Result<StreamOwned<ClientConnection, S>> {
        let connection = ClientConnection::new(self.config.clone(), self.server_name.clone());
        Ok(StreamOwned::new(connection.map_err(io::Error::other)?, stream))
    }
}

fn certificates(path: String) -> Result<Vec<CertificateDer<'static>>, Error> {
    let content = content(&path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    read.ok().filter(|certificates| !certificates.is_empty()).ok_or(Error::Parse { path })
}

fn content(path: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

#[cfg(test)]
pub mod tests;
