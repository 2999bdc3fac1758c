//! Serves `/metrics`: over TLS to users that the API server allows to read it, or to everybody in plain text on request.
//!
//! A connection is for one request and has a deadline, and there are few of them at once: anybody who reaches the port can
//! open one.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::access::{Access, Verdict};
pub use super::certificate::{Certificate, Error, Source};
use super::{FORMAT, Metrics};
use crate::telemetry::chain;

pub const PATH: &str = "/metrics";
/// For handshake, reviews, request and response together.
const DEADLINE: Duration = Duration::from_secs(15);
const CONNECTIONS: usize = 16;
/// After the machine refused another connection.
const REST: Duration = Duration::from_millis(100);

/// Who can read the metrics.
pub enum Protection {
    /// Everybody who reaches the port, in plain text.
    None,
    Tls(Box<Tls>),
}

pub struct Tls {
    certificate: Certificate,
    access: Access,
}

impl Protection {
    pub fn tls(source: Source, client: Client) -> Result<Self, Error> {
        let (certificate, access) = (Certificate::new(source)?, Access::new(client));
        Ok(Self::Tls(Box::new(Tls { certificate, access })))
    }
}

struct Server {
    metrics: Metrics,
    protection: Protection,
}

/// Until `stop` comes.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    protection: Protection,
    stop: impl Future<Output = ()>,
) {
    let server = Arc::new(Server { metrics, protection });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // They end when they are dropped.
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let server = Arc::clone(&server);
                    connections.spawn(async move {
                        let _place = place;
                        let _ = tokio::time::timeout(DEADLINE, server.connection(stream)).await;
                    });
                }
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "connection for metrics not accepted");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    };
    tokio::select! {
        () = stop => {}
        () = accepting => {}
    }
}

impl Server {
    /// What fails here fails for the client, which reports it.
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        match &self.protection {
            Protection::None => self.answer(stream).await,
            Protection::Tls(tls) => {
                let acceptor = TlsAcceptor::from(tls.certificate.config());
                if let Ok(stream) = acceptor.accept(stream).await {
                    self.answer(stream).await;
                }
            }
        }
    }

    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = service_fn(|request| async move { Ok::<_, Infallible>(self.respond(&request).await) });
        let _ = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
    }

    async fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.uri().path() != PATH {
            return text(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
        }
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        }
        if let Err(refusal) = self.check(request).await {
            return refusal;
        }
        response(StatusCode::OK, (CONTENT_TYPE, FORMAT), self.metrics.text())
    }

    async fn check(&self, request: &Request<Incoming>) -> Result<(), Response<Full<Bytes>>> {
        let Protection::Tls(tls) = &self.protection else { return Ok(()) };
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Err(unauthenticated(
                "send the token of a service account: Authorization: Bearer TOKEN\n",
            ));
        };
        match tls.access.review(token).await {
            Ok(Verdict::Allowed) => Ok(()),
            Ok(Verdict::Unauthenticated) => {
                Err(unauthenticated("the API server does not accept this token\n"))
            }
            Ok(Verdict::Forbidden { user }) => {
                let why = format!(
                    "{user} is not allowed to get the URL /metrics: bind it to the ClusterRole etcd-operator-metrics-reader\n"
                );
                Err(text(StatusCode::FORBIDDEN, why))
            }
            Err(error) => {
                tracing::debug!(error = %chain(&error), "access to metrics not reviewed");
                let why = format!(
                    "cannot ask the API server who reads the metrics: {}. The rights for it are in config/metrics\n",
                    chain(&error)
                );
                Err(text(StatusCode::SERVICE_UNAVAILABLE, why))
            }
        }
    }
}

fn unauthenticated(why: &str) -> Response<Full<Bytes>> {
    response(StatusCode::UNAUTHORIZED, (WWW_AUTHENTICATE, "Bearer"), why.to_owned())
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<Full<Bytes>> {
    response(status, (CONTENT_TYPE, "text/plain; charset=utf-8"), text.into())
}

fn response(
    status: StatusCode,
    (name, value): (HeaderName, &'static str),
    body: String,
) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header(name, value);
    response.body(Full::from(body)).expect("constants are valid headers")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn started(protection: Protection) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        tokio::spawn(serve(listener, Metrics::default(), protection, std::future::pending()));
        address
    }

    async fn sent(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream
            .write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
            .await
            .expect("it reads");
        let mut response = Vec::new();
        // A port that speaks TLS can close the connection before it has read everything.
        let _ = stream.read_to_end(&mut response).await;
        String::from_utf8_lossy(&response).into_owned()
    }

    #[tokio::test]
    async fn in_plain_text_everybody_reads_metrics_and_nothing_else() {
        let address = started(Protection::None).await;
        let response = sent(address, "GET /metrics").await;
        assert!(
            response.starts_with("HTTP/1.1 200") && response.contains("etcd_operator_leader 0"),
            "{response}"
        );
        for (request, status) in [("GET /", "404"), ("GET /metrics/x", "404"), ("POST /metrics", "405")] {
            let response = sent(address, request).await;
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {response}");
        }
    }

    #[tokio::test]
    async fn connections_that_send_nothing_keep_nobody_from_reading() {
        let address = started(Protection::None).await;
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS - 1 {
            silent.push(TcpStream::connect(address).await.expect("it listens"));
        }
        assert!(sent(address, "GET /metrics").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn a_protected_port_answers_nothing_in_plain_text() {
        let nobody = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let client = crate::client::build(nobody).expect("a client");
        let protection = Protection::tls(Source::SelfSigned("localhost".into()), client).expect("it is made");
        let response = sent(started(protection).await, "GET /metrics").await;
        assert!(!response.contains("HTTP/1.1") && !response.contains("etcd_operator"), "{response}");
    }

    #[test]
    fn a_certificate_that_is_missing_is_named() {
        let error = Certificate::new(Source::Files("/nowhere".into())).err().expect("nothing is there");
        let text = error.to_string();
        assert!(text.contains("/nowhere/tls.crt") && text.contains("--metrics-certificate"), "{text}");
    }
}
