//! Sends spans to the collector, many at once. A collector that is slow or away costs traces and nothing else.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::mpsc;

use super::otlp::{Ended, request};
use super::{LONGEST_QUEUE, Traces};
use crate::reach::root_cause;

const PATH: &str = "v1/traces";
const DEADLINE: Duration = Duration::from_secs(5);
/// So long spans are collected for one request.
const GATHER: Duration = Duration::from_secs(1);
const MOST_AT_ONCE: usize = 512;
const LONGEST_RESPONSE: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid OTLP endpoint {0}: it has to be like http://localhost:4318, without TLS")]
    Endpoint(String),
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the collector did not respond within {} s", DEADLINE.as_secs())]
    NoResponse,
    #[error("the connection failed: {0}")]
    Broken(String),
    #[error("the collector responded with {0}")]
    Status(StatusCode),
}

/// What `/v1/traces` of this endpoint receives, from the process with this name.
pub fn to(endpoint: &str, instance: String) -> Result<(Traces, Exporter), Error> {
    let invalid = || Error::Endpoint(endpoint.to_owned());
    let base: Uri = endpoint.parse().map_err(|_| invalid())?;
    let is_usable = base.scheme_str() == Some("http") && base.host().is_some() && base.query().is_none();
    let uri = format!("{}/{PATH}", endpoint.trim_end_matches('/')).parse().ok().filter(|_| is_usable);
    let (sender, ended) = mpsc::channel(LONGEST_QUEUE);
    let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let exporter = Exporter { uri: uri.ok_or_else(invalid)?, client, instance, ended, failing: false };
    Ok((Traces::new(sender), exporter))
}

pub struct Exporter {
    uri: Uri,
    client: Client<HttpConnector, Full<Bytes>>,
    instance: String,
    ended: mpsc::Receiver<Ended>,
    failing: bool,
}

impl Exporter {
    /// Ends with what makes the spans. What cannot be delivered is dropped.
    pub async fn run(mut self) {
        while self.deliver().await {}
    }

    /// False when there is nothing more to come.
    pub(super) async fn deliver(&mut self) -> bool {
        let Some(first) = self.ended.recv().await else { return false };
        let mut spans = vec![first];
        let gathered = async {
            while spans.len() < MOST_AT_ONCE
                && let Some(next) = self.ended.recv().await
            {
                spans.push(next);
            }
        };
        let _ = tokio::time::timeout(GATHER, gathered).await;
        let sent = self.send(request(&self.instance, &spans).to_string()).await;
        self.report(sent);
        true
    }

    /// Once when it fails, and once when it is over.
    fn report(&mut self, sent: Result<(), Failure>) {
        match (sent, self.failing) {
            (Err(error), false) => tracing::warn!(error = %error, "cannot deliver traces, dropping them"),
            (Ok(()), true) => tracing::info!("delivering traces again"),
            (Err(_), true) | (Ok(()), false) => return,
        }
        self.failing = !self.failing;
    }

    async fn send(&self, body: String) -> Result<(), Failure> {
        let request =
            Request::post(&self.uri).header(CONTENT_TYPE, "application/json").body(Full::new(body.into()));
        let request = request.expect("an address and constants");
        let exchanged = async {
            let response = self.client.request(request).await;
            let response = response.map_err(|error| Failure::Broken(root_cause(&error)))?;
            let status = response.status();
            // A connection is used again only after the end of its response.
            let body = Limited::new(response.into_body(), LONGEST_RESPONSE).collect().await;
            body.map_err(|error| Failure::Broken(root_cause(&*error)))?;
            if status.is_success() { Ok(()) } else { Err(Failure::Status(status)) }
        };
        tokio::time::timeout(DEADLINE, exchanged).await.unwrap_or(Err(Failure::NoResponse))
    }
}
