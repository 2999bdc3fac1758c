//! A TLS handshake with a port of a member, to see which certificate it serves and which authorities it trusts. Connections
//! that last do not show a renewed certificate, so each of these is new and closed at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_core::observed::{Handshake, Ordinal, Seen};
use etcd_operator_core::round::{Handshakes, Memory};
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, Purpose, fingerprint, subject};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::credentials::{PROVIDER, authorities, certified_key, failed_handshake};
use crate::reach::{PodAddress, Reach};

const DEADLINE: Duration = Duration::from_secs(2);

pub struct Port {
    pub ordinal: Ordinal,
    /// What it serves.
    pub purpose: Purpose,
    pub pod: PodAddress,
    pub number: u16,
    pub host: String,
    /// With the authorities that its certificate can be of.
    pub trusted: Arc<Secret>,
    /// What the operator shows, if anything.
    pub own: Option<Arc<Secret>>,
}

/// With all of these ports at the same time.
pub async fn all(reach: &Reach, ports: &[Port], memory: &Memory) -> BTreeMap<Ordinal, Handshakes> {
    let asking = ports.iter().map(async |port| {
        let patience = memory.patience(&port.pod.uid, false).min(DEADLINE);
        let late = |_| Err("no response in time".to_owned());
        let shown = tokio::time::timeout(patience, with(reach, port)).await.unwrap_or_else(late);
        (port.ordinal, port.purpose, shown.map_or_else(Seen::Unknown, Seen::Known))
    });
    let mut all = BTreeMap::<Ordinal, Handshakes>::new();
    for (ordinal, purpose, shown) in join_all(asking).await {
        all.entry(ordinal).or_default().insert(purpose, shown);
    }
    all
}

async fn with(reach: &Reach, port: &Port) -> Result<Handshake, String> {
    let stream = reach.open(&port.pod, port.number).await.map_err(|error| error.to_string())?;
    shown(stream, port).await
}

/// That the port refuses the operator in the end does not matter: it has shown everything by then.
async fn shown(stream: impl AsyncRead + AsyncWrite + Unpin, port: &Port) -> Result<Handshake, String> {
    let name = ServerName::try_from(port.host.clone()).map_err(|error| error.to_string())?;
    let witness = Arc::new(Witness::new(port)?);
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()
        .expect("the provider has ciphers for them")
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&witness) as Arc<dyn ServerCertVerifier>)
        .with_client_cert_resolver(Arc::clone(&witness) as Arc<dyn ResolvesClientCert>);
    config.resumption = Resumption::disabled();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let seen = witness.seen();
    seen.ok_or_else(|| match connected {
        Ok(_) => "TLS: it asks for no certificate".to_owned(),
        Err(error) => failed_handshake(&error),
    })
}

/// Notes what the other side shows, after that was verified.
struct Witness {
    verifier: Arc<WebPkiServerVerifier>,
    own: Option<Arc<CertifiedKey>>,
    /// What was presented, by its fingerprint. Nobody has signed with its key yet.
    presented: Mutex<Option<String>>,
    certificate: Mutex<Option<String>>,
    trusts: Mutex<Option<BTreeSet<String>>>,
}

impl Witness {
    fn new(port: &Port) -> Result<Self, String> {
        let part = |secret: &Secret, key: &str| {
            secret.data.as_ref().and_then(|data| data.get(key)).map(|it| it.0.clone()).unwrap_or_default()
        };
        let unusable = || format!("{AUTHORITY_KEY} of the Secret cannot be used");
        let trusted = authorities(&part(&port.trusted, AUTHORITY_KEY)).ok_or_else(unusable)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(&PROVIDER));
        let key =
            |own: &Arc<Secret>| certified_key(&part(own, CERTIFICATE_KEY), &part(own, PRIVATE_KEY)).ok();
        Ok(Self {
            verifier: verifier.build().map_err(|_| unusable())?,
            own: port.own.as_ref().and_then(key).map(Arc::new),
            presented: Mutex::default(),
            certificate: Mutex::default(),
            trusts: Mutex::default(),
        })
    }

    /// Its owner has just signed with its key.
    fn note(&self) {
        let presented = self.presented.lock().unwrap_or_else(PoisonError::into_inner).take();
        *self.certificate.lock().unwrap_or_else(PoisonError::into_inner) = presented;
    }

    fn seen(&self) -> Option<Handshake> {
        let certificate = self.certificate.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let trusts = self.trusts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(Handshake { certificate: certificate?, trusts: trusts? })
    }
}

/// Without the key.
impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verifier.verify_server_cert(own, chain, name, stapled, now)?;
        let presented = fingerprint(std::iter::once(own).chain(chain).map(|it| it.as_ref()));
        *self.presented.lock().unwrap_or_else(PoisonError::into_inner) = Some(presented);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = self.verifier.verify_tls12_signature(message, certificate, signature)?;
        self.note();
        Ok(valid)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = self.verifier.verify_tls13_signature(message, certificate, signature)?;
        self.note();
        Ok(valid)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

impl ResolvesClientCert for Witness {
    fn resolve(&self, authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let trusts = authorities.iter().map(|der| subject(der)).collect();
        *self.trusts.lock().unwrap_or_else(PoisonError::into_inner) = Some(trusts);
        self.own.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
