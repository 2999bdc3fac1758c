//! The only place that builds the operator's client for the API server: every request has a deadline, a watch that lasts
//! longer than the API server lets it last is given up, and a response is never retried.
//!
//! kube's own client waits without limit and sends every request up to 16 times while the response is 429, 503 or 504.
//! When to try again depends on what was asked for, so it is decided where the request was made.

use std::error::Error as _;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::{Request, Response};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt, DynBody};
use kube::runtime::watcher;
use kube::{Client, Config};
use tower::layer::util::Identity;
use tower::util::BoxService;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};
use tracing::Instrument;

use self::body::Limited;
pub use self::request::{Asked, Verb};
use crate::{metrics, traces};

mod body;
mod request;

/// For a write, for a read of one object, and until a watch or a forwarded port begins.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// If the pod was replaced and the new one is Pending or terminating, the API server repeats the eviction for ten seconds before
/// it responds that the UID differs. An eviction that takes effect takes milliseconds.
pub const EVICTION_DEADLINE: Duration = Duration::from_secs(2);
/// The API server reads up to 500 objects for it.
pub const LIST_DEADLINE: Duration = Duration::from_secs(15);
/// After this many seconds the API server ends a watch, which then goes on where it was: a connection that is silently dead
/// is noticed soon afterwards.
const WATCH_SECONDS: u32 = 60;
/// How long after the API server should have ended a watch.
pub const WATCH_GRACE: Duration = Duration::from_secs(5);
/// The kernel gives a connection up whose other end has not acknowledged anything for about twice this time.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// Load balancers forget connections that are idle for longer.
const IDLE: Duration = Duration::from_secs(30);

/// The API server did not respond in time. A write might have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not respond within {} s", .0.as_secs())]
pub struct Timeout(pub Duration);

/// What sends requests and nothing more.
pub type Connection = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

pub fn build(config: Config) -> kube::Result<Client> {
    build_over(config, &Identity::new())
}

/// With a layer between the deadlines and the connections, for tests that inject faults.
pub fn build_over<L>(config: Config, layer: &L) -> kube::Result<Client>
where
    L: Layer<Connection>,
    L::Service: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError> + Send + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send + 'static,
{
    let namespace = config.default_namespace.clone();
    let service = Deadlines { inner: layer.layer(connection(config)?) };
    Ok(Client::new(service, namespace))
}

/// For a watch that is opened again before long.
pub fn watch_config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS)
}

/// Whether a write that failed like this might have been carried out.
pub fn is_ambiguous(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        // What is wrong with the request itself is found before anything is stored. A response that is not the API
        // server's can come without a code.
        return !(400..500).contains(&status.code);
    }
    let cause = error.source().and_then(|cause| cause.downcast_ref::<legacy::Error>());
    !cause.is_some_and(legacy::Error::is_connect)
}

pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn connection(config: Config) -> kube::Result<Connection> {
    if let Some(proxy) = config.proxy_url {
        return Err(kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy) });
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(DEADLINE));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE / KEEPALIVE_RETRIES));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    // It sends a request again only if the connection was closed before the first byte of it was written.
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|response: Response<hyper::body::Incoming>| {
            response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
        });
    Ok(service.boxed())
}

struct Deadlines<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Deadlines<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Limited>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = Asked::by(&request);
        let deadline = match (asked.verb, asked.resource.as_str()) {
            (Verb::List, _) => LIST_DEADLINE,
            (Verb::Create, "pods/eviction") => EVICTION_DEADLINE,
            _ => DEADLINE,
        };
        let begun = tokio::time::Instant::now();
        let limit = match asked.watched_for {
            Some(time) => time + WATCH_GRACE,
            None => deadline,
        };
        let (response, span) = (self.inner.call(request), traces::api(&asked));
        let traced = span.clone();
        async move {
            let call = metrics::API.begin(asked.verb.word());
            let response = tokio::time::timeout_at(begun + deadline, response)
                .await
                .map_err(|_| Timeout(deadline))??;
            call.responded(response.status());
            let (status, milliseconds) = (response.status().as_u16(), begun.elapsed().as_millis() as u64);
            traced.record("status", status);
            tracing::debug!(request = %asked, status, milliseconds, "responded");
            Ok(response.map(|body| Limited::new(body, begun + limit, Timeout(limit))))
        }
        .instrument(span)
        .boxed()
    }
}
