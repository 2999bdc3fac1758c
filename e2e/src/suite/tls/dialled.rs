//! What a port does with a connection, below gRPC.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, Purpose};
use k8s_openapi::api::core::v1::Secret;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::access::{Access, Tls, certificates};
use crate::operated::Operated;

const DEADLINE: Duration = Duration::from_secs(10);
/// A server that refuses a certificate says so at once. What is sent before that arrives could hide it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Both ports of etcd answer it.
const REQUEST: &[u8] = b"GET /version HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n";

/// One of the Secrets of a cluster.
pub async fn secret(cluster: &Operated, purpose: Purpose) -> Result<Secret> {
    let name = cluster.names().secret(purpose);
    cluster.api::<Secret>().get(&name).await.with_context(|| format!("no Secret {name}"))
}

/// A client with the certificate of one Secret that trusts what another one trusts.
pub fn with_certificate(own: &Secret, trusted: &Secret, server: &str) -> Result<Tls> {
    let authority = trusted.data.as_ref().and_then(|data| data.get(AUTHORITY_KEY));
    let authority = authority.context("a Secret without an authority")?.clone();
    let mut combined = own.clone();
    combined.data.get_or_insert_default().insert(AUTHORITY_KEY.into(), authority);
    match Access::tls(combined, server) {
        Access::Tls(tls) => Ok(tls),
        Access::Plain => bail!("not TLS"),
    }
}

/// The server proves who it is, and does not let this client in.
pub async fn refuses(tls: &Tls, address: SocketAddr) -> Result<()> {
    let asking = async {
        let stream = tls.open(address, &[]).await?;
        ask(stream).await
    };
    let asked = timeout(DEADLINE, asking).await.with_context(|| format!("no answer of {address}"))?;
    match asked {
        Ok(answer) => bail!("{address} answers {tls:?}: {answer}"),
        Err(error) if is_refusal(&error) => Ok(()),
        Err(error) => Err(anyhow!(error).context(format!("{address} does not refuse {tls:?}, but fails"))),
    }
}

/// Whether the other side ended it: an error of our own side would prove nothing.
fn is_refusal(error: &io::Error) -> bool {
    let alert = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
    match alert {
        Some(error) => matches!(error, rustls::Error::AlertReceived(_)),
        None => matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof),
    }
}

pub async fn serves_plain_text(address: SocketAddr) -> Result<()> {
    let asking = async { ask(TcpStream::connect(address).await?).await };
    let asked = timeout(DEADLINE, asking).await.with_context(|| format!("no answer of {address}"))?;
    let answer = asked.with_context(|| format!("{address} does not serve plain text"))?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{address} answers {answer:?}");
    Ok(())
}

/// The certificate that a port shows to every client.
pub async fn served(tls: &Tls, address: SocketAddr) -> Result<CertificateDer<'static>> {
    let opened = timeout(DEADLINE, tls.open(address, &[])).await;
    let stream = opened.with_context(|| format!("no handshake with {address}"))?;
    let stream = stream.with_context(|| format!("no handshake with {address}"))?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|it| it.first());
    Ok(shown.context("it shows no certificate")?.clone().into_owned())
}

/// The one that a Secret holds.
pub fn held(secret: &Secret) -> Result<CertificateDer<'static>> {
    certificates(secret, CERTIFICATE_KEY)?.into_iter().next().context("a Secret without a certificate")
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
    let mut answer = vec![0; 1024];
    let length = match timeout(PATIENCE, stream.read(&mut answer)).await {
        Ok(read) => read?,
        Err(_) => {
            stream.write_all(REQUEST).await?;
            stream.read(&mut answer).await?
        }
    };
    match length {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(String::from_utf8_lossy(&answer[..length]).into_owned()),
    }
}
