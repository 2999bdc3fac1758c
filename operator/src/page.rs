//! One request over HTTP to a port of a pod, by a connection of its own.

use http_body_util::{BodyExt, Full, Limited};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::http::request::Builder;
use hyper_util::rt::TokioIo;

use crate::reach::{self, PodAddress, Reach, root_cause};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reach(#[from] reach::Error),
    #[error("the connection failed: {0}")]
    Broken(String),
}

/// The caller has the deadline.
pub async fn get(
    reach: &Reach,
    pod: &PodAddress,
    port: u16,
    request: Builder,
    body: Bytes,
    longest: usize,
) -> Result<(StatusCode, Bytes), Error> {
    let broken = |error: &(dyn std::error::Error + 'static)| Error::Broken(root_cause(error));
    let request = request.header(HOST, &pod.pod).body(Full::new(body)).expect("a pod's name is a header");
    let stream = reach.open(pod, port).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    let asked = async {
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), longest).collect().await;
        Ok::<_, Error>((status, body.map_err(|error| broken(&*error))?.to_bytes()))
    };
    // The connection does the work, and its end is no error once the answer is there.
    tokio::select! {
        biased;
        answer = asked => answer,
        Err(error) = connection => Err(broken(&error)),
    }
}
