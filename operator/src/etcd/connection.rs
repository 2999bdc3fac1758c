//! A channel to one member: a byte stream to its pod, TLS if the member serves it, and gRPC.

use std::net::SocketAddr;
use std::time::Duration;

use etcd_client::Channel;
use etcd_operator_core::etcd_config::{CLIENT_PORT, client_url};
use etcd_operator_core::tls::Scheme;
use hyper_util::rt::TokioIo;
use tokio_util::either::Either;
use tonic::transport::{Endpoint, Uri};

use super::{DEADLINE, Error};
use crate::credentials::{Credentials, Secured, Security};
use crate::reach::{self, PodAddress, Reach, Stream, root_cause};

/// etcd hangs up on who pings more often than every five seconds, or without a stream.
const PING_EVERY: Duration = Duration::from_secs(6);
const PING_DEADLINE: Duration = Duration::from_secs(3);
pub(super) const CALL: &str = "accept a connection";

type Connected = Either<Stream, Secured<Stream>>;

/// Fails at once if nobody listens, or if there is nothing to prove our identity with.
pub(super) async fn open(reach: &Reach, pod: &PodAddress, security: &Security) -> Result<Channel, Error> {
    let refused = |reason| Error::from(reach::Error::Connect { pod: pod.pod.clone(), reason });
    let secret = match security {
        Security::Plain => None,
        Security::Tls { credentials: Ok(credentials), host } => Some((credentials, host.as_str())),
        Security::Tls { credentials: Err(error), .. } => return Err(refused(error.to_string())),
    };
    let stream = reach.open(pod, CLIENT_PORT).await?;
    let opened = tokio::time::timeout(DEADLINE, async {
        let (stream, origin) = secure(stream, pod, secret).await.map_err(refused)?;
        let broken = |error| Error::Broken { pod: pod.pod.clone(), call: CALL, reason: root_cause(&error) };
        over(stream, pod, origin).await.map_err(broken)
    });
    let silent = |_| Error::NoAnswer { pod: pod.pod.clone(), call: CALL, seconds: DEADLINE.as_secs() };
    opened.await.map_err(silent)?
}

/// With the URL that the member is called by.
async fn secure(
    stream: Stream,
    pod: &PodAddress,
    secret: Option<(&Credentials, &str)>,
) -> Result<(Connected, String), String> {
    let Some((credentials, host)) = secret else {
        return Ok((Either::Left(stream), url(pod)));
    };
    let secured = credentials.secure(stream, host).await?;
    Ok((Either::Right(secured), client_url(Scheme::Https, host)))
}

fn url(pod: &PodAddress) -> String {
    format!("http://{}", SocketAddr::new(pod.address, CLIENT_PORT))
}

/// gRPC over this stream and no other: when it breaks, there is nothing to connect with again.
async fn over(
    stream: Connected,
    pod: &PodAddress,
    origin: String,
) -> Result<Channel, tonic::transport::Error> {
    let mut stream = Some(TokioIo::new(stream));
    let once = tower::service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("the connection is closed"));
        std::future::ready(stream)
    });
    // Plain text, as far as gRPC has to know: what is below encrypts.
    Endpoint::from_shared(url(pod))?
        .origin(Uri::from_maybe_shared(origin).expect("names of hosts make a URL"))
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_DEADLINE)
        .connect_with_connector(once)
        .await
        .map(Channel::Tonic)
}
