//! The only place that makes connections to pods: a byte stream to a port of one pod, or why there is none.
//!
//! Inside the cluster we dial the pod's address, which our own watch tells; no name is looked up. Outside of it the
//! API server forwards to the pod.

use std::error::Error as Cause;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client::Channel;
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Portforwarder;
use kube::{Api, Client};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::either::Either;

/// In the pod network a connection takes a millisecond, through the API server some tens of them.
const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to {pod}: {reason}")]
    Connect { pod: String, reason: String },
    #[error("cannot connect to {pod}: no response within {} s", DEADLINE.as_secs())]
    NoAnswer { pod: String },
    /// The API server knows pods by their names, and names come back.
    #[error("cannot connect to {pod}: the pod was replaced")]
    Replaced { pod: String },
}

/// How pods are reached from where we are.
#[derive(Clone)]
pub enum Reach {
    /// Inside the cluster: by their addresses.
    Direct,
    /// Outside: through the API server's port-forward.
    PortForward(Client),
    /// By their addresses, with something around each channel to etcd: for tests that inject faults.
    Around(Arc<Around>),
}

pub type Around = dyn Fn(&PodAddress, Channel) -> Channel + Send + Sync;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    pub address: IpAddr,
}

pub type Stream = Either<TcpStream, Forwarded>;

impl Reach {
    /// An address may belong to another pod by now: whoever answers has to say who it is.
    pub async fn open(&self, pod: &PodAddress, port: u16) -> Result<Stream, Error> {
        let opening = match self {
            Self::Direct | Self::Around(_) => dial(pod, port).map_ok(Either::Left).boxed(),
            Self::PortForward(client) => forward(client, pod, port).map_ok(Either::Right).boxed(),
        };
        let opened = tokio::time::timeout(DEADLINE, opening).await;
        opened.unwrap_or_else(|_| Err(Error::NoAnswer { pod: pod.pod.clone() }))
    }

    /// The channel to the etcd of a pod, as calls use it.
    pub fn around(&self, pod: &PodAddress, channel: Channel) -> Channel {
        match self {
            Self::Around(around) => around(pod, channel),
            Self::Direct | Self::PortForward(_) => channel,
        }
    }
}

async fn dial(pod: &PodAddress, port: u16) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(SocketAddr::new(pod.address, port)).await;
    // Requests are small, and nobody is helped by waiting for more of them.
    let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    stream.map_err(|error| cannot_connect(pod, &error))
}

async fn forward(client: &Client, pod: &PodAddress, port: u16) -> Result<Forwarded, Error> {
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace);
    let mut forwarder =
        pods.portforward(&pod.pod, &[port]).await.map_err(|error| cannot_connect(pod, &error))?;
    let (Some(stream), Some(refusal)) = (forwarder.take_stream(port), forwarder.take_error(port)) else {
        return Err(Error::Connect {
            pod: pod.pod.clone(),
            reason: "the API server did not forward the port".into(),
        });
    };
    let forwarded = Forwarded { stream, refusal: Some(refusal.boxed()), forwarder };
    // Asked afterwards: a pod that was there before and is there now was there in between, too.
    let there = pods.get_metadata(&pod.pod).await.map_err(|error| cannot_connect(pod, &error))?;
    match there.metadata.uid.as_ref() == Some(&pod.uid) {
        true => Ok(forwarded),
        false => Err(Error::Replaced { pod: pod.pod.clone() }),
    }
}

fn cannot_connect(pod: &PodAddress, error: &(dyn Cause + 'static)) -> Error {
    Error::Connect { pod: pod.pod.clone(), reason: root_cause(error) }
}

/// What lies at the bottom of an error, in few words: "connection refused".
pub(crate) fn root_cause(error: &(dyn Cause + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    match cause.downcast_ref::<io::Error>() {
        Some(error) if error.raw_os_error().is_some() => {
            let words = error.to_string();
            words.split(" (os error").next().unwrap_or(&words).to_lowercase()
        }
        _ => cause.to_string(),
    }
}

/// A stream through the API server. That nobody listens in the pod is told on the side, a moment after it opened.
pub struct Forwarded {
    stream: DuplexStream,
    refusal: Option<BoxFuture<'static, Option<String>>>,
    forwarder: Portforwarder,
}

impl Drop for Forwarded {
    /// What is not read any more need not be forwarded.
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl AsyncRead for Forwarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(refusal) = &mut self.refusal
            && let Poll::Ready(said) = refusal.poll_unpin(context)
        {
            self.refusal = None;
            if let Some(reason) = said {
                return Poll::Ready(Err(io::Error::other(reason)));
            }
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Forwarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn where_nobody_listens_the_pod_and_the_reason_are_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let pod = PodAddress {
            namespace: "ns".into(),
            pod: "kv-2".into(),
            uid: "uid-2".into(),
            address: address.ip(),
        };
        let error = Reach::Direct.open(&pod, address.port()).await.err().expect("nobody listens");
        assert_eq!(error.to_string(), "cannot connect to kv-2: connection refused");
    }
}
