//! How the harness itself connects to members: with the certificates in the Secrets of the cluster, or in plain text where a
//! pod serves that alone.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use etcd_operator_core::etcd_config::{CLIENT_PORT, PEER_PORT};
use etcd_operator_core::form::member_config;
use etcd_operator_core::names::Names;
use etcd_operator_core::observed::Ordinal;
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, Purpose, Transport};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{PodSpec, Secret};
use testbed::stand_in::exchange;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::either::Either;
use tonic::transport::Endpoint;

use crate::recorder::Recorder;
use crate::world::{self, address_in};

/// To connect, and for each request.
const DEADLINE: Duration = Duration::from_millis(500);

pub type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// Whoever connects: in plain text, or with a Secret to trust and perhaps one to show.
#[derive(Clone)]
pub struct Identity {
    trusts: Option<Arc<Secret>>,
    shows: Option<Arc<Secret>>,
}

/// Without keys.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |secret: &Option<Arc<Secret>>| secret.as_ref().and_then(|it| it.metadata.name.clone());
        write!(f, "shows {:?}, trusts {:?}", name(&self.shows), name(&self.trusts))
    }
}

impl Identity {
    pub const PLAIN_TEXT: Self = Self { trusts: None, shows: None };

    /// The one that this Secret is for; plain text if there never was one.
    pub fn of(recorder: &Recorder, purpose: Purpose) -> Self {
        let secret = recorder.secret(purpose).map(Arc::new);
        Self { trusts: secret.clone(), shows: secret }
    }

    /// With what somebody else has issued.
    pub fn with(secret: Secret) -> Self {
        let secret = Some(Arc::new(secret));
        Self { trusts: secret.clone(), shows: secret }
    }

    pub fn without_certificate(&self) -> Self {
        Self { shows: None, ..self.clone() }
    }

    /// The same, for a server that another one trusts.
    pub fn trusting_as(&self, other: &Self) -> Self {
        Self { trusts: other.trusts.clone(), ..self.clone() }
    }

    async fn connect(&self, to: SocketAddr, server: String, protocol: &[u8]) -> io::Result<Stream> {
        let stream = TcpStream::connect(to).await?;
        let Some(trusts) = &self.trusts else { return Ok(Either::Left(stream)) };
        let mut trusted = RootCertStore::empty();
        for authority in certificates(trusts, AUTHORITY_KEY) {
            trusted.add(authority).map_err(io::Error::other)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(trusted);
        let mut config = match &self.shows {
            None => config.with_no_client_auth(),
            Some(secret) => {
                let key = PrivateKeyDer::from_pem_slice(part(secret, PRIVATE_KEY)).expect("it is a key");
                let own = certificates(secret, CERTIFICATE_KEY);
                config.with_client_auth_cert(own, key).map_err(io::Error::other)?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let server = ServerName::try_from(server).map_err(io::Error::other)?;
        Ok(Either::Right(TlsConnector::from(Arc::new(config)).connect(server, stream).await?))
    }
}

/// A pod of a run.
#[derive(Clone, Debug)]
pub struct Member {
    names: Names,
    pub ordinal: Ordinal,
    pub address: IpAddr,
}

impl Member {
    pub fn new(namespace: &str, ordinal: u8) -> Self {
        let address = address_in(namespace, ordinal).expect("it is a run");
        Self { names: world::names(namespace), ordinal: Ordinal(ordinal), address }
    }

    /// What its pod is made with; none if there is no pod.
    pub fn transport(&self, recorder: &Recorder) -> Option<Transport> {
        let pod = recorder.object("Pod", &self.names.pod(self.ordinal))?;
        let spec: PodSpec = serde_json::from_value(pod["spec"].clone()).ok()?;
        Some(member_config(&spec)?.transport)
    }

    /// How this Secret is used for it, if its port needs one.
    pub fn identity(&self, recorder: &Recorder, purpose: Purpose) -> Identity {
        let transport = self.transport(recorder).unwrap_or_default();
        let is_peer = purpose.issuer() == Some(Purpose::PeerAuthority);
        let tls = if is_peer { transport.peers.scheme().is_tls() } else { transport.clients.is_tls() };
        if tls { Identity::of(recorder, purpose) } else { Identity::PLAIN_TEXT }
    }

    /// A connection that nothing was sent over yet. etcd reports only then that it does not accept a certificate.
    pub async fn open(&self, port: u16, identity: &Identity, protocol: &[u8]) -> io::Result<Stream> {
        let server = match port {
            PEER_PORT => self.names.peer_host(),
            _ => self.names.pod_host(self.ordinal),
        };
        let connecting = identity.connect((self.address, port).into(), server, protocol);
        tokio::time::timeout(DEADLINE, connecting).await?
    }

    /// Status and body.
    pub async fn get(&self, port: u16, identity: &Identity, path: &str) -> io::Result<(u16, String)> {
        let stream = self.open(port, identity, b"http/1.1").await?;
        tokio::time::timeout(DEADLINE, exchange(stream, &format!("{}:{port}", self.address), path)).await?
    }

    /// As an application.
    pub async fn client(&self, recorder: &Recorder) -> io::Result<Client> {
        self.client_as(&self.identity(recorder, Purpose::Client), None).await
    }

    pub async fn client_as(
        &self,
        identity: &Identity,
        options: Option<ConnectOptions>,
    ) -> io::Result<Client> {
        let stream = self.open(CLIENT_PORT, identity, b"h2").await?;
        let mut stream = Some(TokioIo::new(stream));
        let once = tower::service_fn(move |_| {
            std::future::ready(stream.take().ok_or_else(|| io::Error::other("the connection is closed")))
        });
        let endpoint = Endpoint::from_shared(format!("http://{}:{CLIENT_PORT}", self.address));
        let endpoint = endpoint.map_err(io::Error::other)?.timeout(DEADLINE);
        let connecting = tokio::time::timeout(DEADLINE, endpoint.connect_with_connector(once));
        let channel = connecting.await?.map_err(io::Error::other)?;
        Client::from_channel(Channel::Tonic(channel), options).await.map_err(io::Error::other)
    }

    /// The certificate that it shows on a port.
    pub async fn shows(&self, port: u16, identity: &Identity) -> io::Result<CertificateDer<'static>> {
        match self.open(port, identity, b"http/1.1").await? {
            Either::Left(_) => Err(io::Error::other("it is plain text")),
            Either::Right(stream) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                shown
                    .cloned()
                    .map(CertificateDer::into_owned)
                    .ok_or_else(|| io::Error::other("it shows none"))
            }
        }
    }
}

/// In the order of the file.
pub fn certificates(secret: &Secret, key: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(part(secret, key)).map(|it| it.expect("a certificate")).collect()
}

fn part<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    secret.data.as_ref().and_then(|data| data.get(key)).map(|it| it.0.as_slice()).unwrap_or_default()
}
