//! With what clients connect to etcd: nothing in plain text, with TLS the certificate in a Secret of the cluster.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use etcd_client::{Channel, Client, ConnectOptions};
use etcd_operator_core::form::member_config;
use etcd_operator_core::names::{CLUSTER_LABEL, Names};
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, Purpose};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::Endpoint;

use crate::wait::{self, Seen};

/// How long the first list of Secrets may take.
const LISTED_LIMIT: Duration = Duration::from_secs(30);
/// Without it, etcd serves gRPC to nobody.
const ALPN: &[u8] = b"h2";

#[derive(Clone, Debug)]
pub enum Access {
    Plain,
    Tls(Tls),
}

/// What a Secret holds, and whose certificate the server must have.
#[derive(Clone)]
pub struct Tls {
    server: String,
    secret: Arc<Secret>,
    /// Without, a server sees none.
    presents_certificate: bool,
}

/// No part of a key belongs into a log.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with Secret {}", self.server, self.secret.name_any())
    }
}

impl Access {
    /// With this Secret, to a server whose certificate is for this name.
    pub fn tls(secret: Secret, server: impl Into<String>) -> Self {
        Self::Tls(Tls { server: server.into(), secret: Arc::new(secret), presents_certificate: true })
    }

    /// The same client, for a server whose certificate is for this name or address.
    pub fn to(self, server: impl Into<String>) -> Self {
        match self {
            Self::Plain => Self::Plain,
            Self::Tls(tls) => Self::Tls(Tls { server: server.into(), ..tls }),
        }
    }

    /// It connects when it is used.
    pub async fn client(&self, address: SocketAddr, options: ConnectOptions) -> Result<Client> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let access = self.clone();
        let dial = tower::service_fn(move |_| {
            let access = access.clone();
            async move { access.open(address).await.map(TokioIo::new) }
        });
        let channel = endpoint.connect_with_connector_lazy(dial);
        Ok(Client::from_channel(Channel::Tonic(channel), Some(options)).await?)
    }

    /// For gRPC.
    async fn open(&self, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Plain => Ok(Box::new(dial(address).await?)),
            Self::Tls(tls) => Ok(Box::new(tls.open(address, &[ALPN]).await?)),
        }
    }
}

impl Tls {
    /// The same client, and it shows no certificate.
    pub fn without_certificate(self) -> Self {
        Self { presents_certificate: false, ..self }
    }

    /// A server that refuses our certificate says so only afterwards.
    pub async fn open(&self, address: SocketAddr, protocols: &[&[u8]]) -> io::Result<TlsStream<TcpStream>> {
        let (config, server) = self.config(protocols).map_err(io::Error::other)?;
        let stream = dial(address).await?;
        TlsConnector::from(Arc::new(config)).connect(server, stream).await
    }

    fn config(&self, protocols: &[&[u8]]) -> Result<(ClientConfig, ServerName<'static>)> {
        let unusable = || format!("Secret {} cannot be used", self.secret.name_any());
        let mut trusted = RootCertStore::empty();
        for authority in certificates(&self.secret, AUTHORITY_KEY).with_context(unusable)? {
            trusted.add(authority).with_context(unusable)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusted);
        let mut config = if self.presents_certificate {
            let own = certificates(&self.secret, CERTIFICATE_KEY).with_context(unusable)?;
            let key = PrivateKeyDer::from_pem_slice(part(&self.secret, PRIVATE_KEY)?);
            // The cause could quote the key.
            let key = key.map_err(|_| anyhow!("no private key")).with_context(unusable)?;
            config.with_client_auth_cert(own, key).with_context(unusable)?
        } else {
            config.with_no_client_auth()
        };
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        Ok((config, ServerName::try_from(self.server.clone())?))
    }
}

/// In the order of the file.
pub fn certificates(secret: &Secret, key: &'static str) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(part(secret, key)?).collect();
    found.map_err(|error| anyhow!("{key}: {error}"))
}

fn part<'a>(secret: &'a Secret, key: &'static str) -> Result<&'a [u8]> {
    let part = secret.data.as_ref().and_then(|data| data.get(key));
    part.map(|it| it.0.as_slice()).with_context(|| format!("it has no {key}"))
}

async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The Secrets for applications, kept current: who connects after a renewal has the new certificate.
#[derive(Clone)]
pub struct ClientSecrets {
    /// None if there are none, for etcd that no operator runs.
    seen: Option<watch::Receiver<Seen<Secret>>>,
}

/// No part of a key belongs into a log.
impl fmt::Debug for ClientSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecrets")
    }
}

impl ClientSecrets {
    /// All connections are plain text.
    pub fn none() -> Self {
        Self { seen: None }
    }

    pub fn of_cluster(client: kube::Client, names: &Names) -> Self {
        let named = format!("metadata.name={}", names.secret(Purpose::Client));
        Self::follow(client, &names.namespace, watcher::Config::default().fields(&named))
    }

    /// Of all clusters in there.
    pub fn of_namespace(client: kube::Client, namespace: &str) -> Self {
        Self::follow(client, namespace, watcher::Config::default().labels(CLUSTER_LABEL))
    }

    fn follow(client: kube::Client, namespace: &str, selected: watcher::Config) -> Self {
        Self { seen: Some(wait::follow(Api::namespaced(client, namespace), selected)) }
    }

    /// Waits until it is known which there are.
    pub async fn listed(&self) -> Result<()> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let mut seen = seen.clone();
        let listed = tokio::time::timeout(LISTED_LIMIT, seen.wait_for(Option::is_some)).await;
        listed.context("the Secrets are not listed")?.map(drop).context("the watch of Secrets ended")
    }

    /// A cluster without such a Secret serves its clients in plain text. None until it is known.
    pub fn access(&self, names: &Names) -> Option<Access> {
        let Some(seen) = &self.seen else { return Some(Access::Plain) };
        let seen = seen.borrow();
        Some(match seen.as_ref()?.get(&names.secret(Purpose::Client)) {
            Some(secret) => Access::tls(secret.clone(), server_name(names)),
            None => Access::Plain,
        })
    }

    /// To a member, by the cluster that its pod names.
    pub fn access_to(&self, pod: &Pod) -> Option<Access> {
        let config = pod.spec.as_ref().and_then(member_config);
        match pod.labels().get(CLUSTER_LABEL) {
            // During a switch, pods differ.
            _ if config.is_some_and(|it| !it.transport.clients.is_tls()) => Some(Access::Plain),
            Some(cluster) => self.access(&names(&pod.namespace().unwrap_or_default(), cluster)),
            None => Some(Access::Plain),
        }
    }
}

/// Without the domain, which neither the names of Secrets nor the name of the server have.
pub fn names(namespace: &str, cluster: &str) -> Names {
    Names::new(namespace, cluster, "")
}

/// Every member has it in its certificate, whatever the cluster domain is.
fn server_name(names: &Names) -> String {
    let [_, without_domain, ..] = names.client_hosts();
    without_domain
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret() -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some("kv-client-tls".into());
        let key = ("tls.key".to_owned(), ByteString(b"the key".to_vec()));
        secret.data = Some([key].into());
        secret
    }

    #[test]
    fn no_key_is_printed() {
        let access = Access::tls(secret(), "kv-client.ns.svc");
        assert_eq!(format!("{access:?}"), "Tls(kv-client.ns.svc with Secret kv-client-tls)");
        let (_sender, seen) = watch::channel(Some([("kv-client-tls".to_owned(), secret())].into()));
        assert_eq!(format!("{:?}", ClientSecrets { seen: Some(seen) }), "ClientSecrets");
    }

    #[test]
    fn a_cluster_without_a_secret_serves_plain_text_and_nothing_is_known_before_the_first_list() {
        let names = names("ns", "kv");
        let (sender, seen) = watch::channel(None);
        let secrets = ClientSecrets { seen: Some(seen) };
        assert!(secrets.access(&names).is_none());
        sender.send_replace(Some([].into()));
        assert!(matches!(secrets.access(&names), Some(Access::Plain)));
        sender.send_replace(Some([("kv-client-tls".to_owned(), secret())].into()));
        let Some(Access::Tls(tls)) = secrets.access(&names) else { panic!("it has a Secret") };
        assert_eq!(tls.server, "kv-client.ns.svc");
        assert!(matches!(ClientSecrets::none().access(&names), Some(Access::Plain)));
    }

    #[tokio::test]
    async fn a_secret_that_cannot_be_used_is_named_without_its_content() {
        let Access::Tls(tls) = Access::tls(secret(), "kv-client.ns.svc") else { panic!("it is TLS") };
        let error = tls.open(([127, 0, 0, 1], 1).into(), &[]).await.expect_err("it has no certificate");
        assert_eq!(error.to_string(), "Secret kv-client-tls cannot be used");
    }
}
