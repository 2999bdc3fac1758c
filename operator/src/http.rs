//! What the kubelet asks: `/healthz` (the process works) and `/readyz` (it has seen the clusters).

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("the health server stopped")]
    Serve(#[source] std::io::Error),
}

/// Whether the process may be called ready. Once it is, it stays so.
#[derive(Clone, Debug, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Answers until `stop` comes.
pub async fn serve(
    listener: TcpListener,
    ready: Ready,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let router =
        Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(readyz)).with_state(ready);
    axum::serve(listener, router).with_graceful_shutdown(stop).await.map_err(Error::Serve)
}

async fn readyz(State(ready): State<Ready>) -> (StatusCode, &'static str) {
    if ready.get() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the operator has not listed the clusters yet\n")
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Status and body.
    async fn answer_to(address: SocketAddr, method: &str, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned())
    }

    async fn status_of(address: SocketAddr, path: &str) -> String {
        answer_to(address, "GET", path).await.0
    }

    /// Anybody who reaches the port can ask, so there is nothing to learn but what a kubelet needs.
    #[tokio::test]
    async fn the_port_that_anybody_can_ask_serves_two_constants_and_nothing_else() {
        let listener = listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let ready = Ready::default();
        ready.set();
        let server = tokio::spawn(serve(listener, ready, std::future::pending()));
        for path in ["/healthz", "/readyz"] {
            assert_eq!(answer_to(address, "GET", path).await, ("200".into(), "ok\n".into()), "{path}");
            for method in ["POST", "PUT", "DELETE"] {
                assert_eq!(
                    answer_to(address, method, path).await,
                    ("405".into(), String::new()),
                    "{method} {path}"
                );
            }
        }
        for path in ["/", "/metrics", "/debug/pprof", "/configz", "/agent", "/healthz/..", "/readyz/clusters"]
        {
            assert_eq!(answer_to(address, "GET", path).await, ("404".into(), String::new()), "{path}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn alive_at_once_but_ready_only_when_the_clusters_are_known() {
        let listener = listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let ready = Ready::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, ready.clone(), async {
            let _ = stopped.await;
        }));

        assert_eq!(status_of(address, "/healthz").await, "200");
        assert_eq!(status_of(address, "/readyz").await, "503");
        ready.set();
        assert_eq!(status_of(address, "/readyz").await, "200");

        stop.send(()).expect("it still runs");
        server.await.expect("no panic").expect("it ended well");
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let first = listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = first.local_addr().expect("it is bound");
        let error = listen(address).await.expect_err("it is taken");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
