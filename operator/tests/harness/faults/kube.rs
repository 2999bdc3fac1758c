//! The layer under the client for the API server.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use etcd_operator::client::{Asked, Connection, Verb};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Frame};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use kube::client::{Body, DynBody};
use serde_json::{Value, json};
use tower::{BoxError, Layer, Service};

use super::{Attempt, Fault, Faults};

type Answer = Result<Response<Box<DynBody>>, BoxError>;

/// Follows the name of what is written when only its pod template is.
pub const TEMPLATE: &str = " template";

/// In the selector of the watch of preflight pods.
const PREFLIGHTS: &str = "preflight-of";

pub struct FaultLayer(pub Faults);

impl Layer<Connection> for FaultLayer {
    type Service = Faulty;

    fn layer(&self, inner: Connection) -> Faulty {
        Faulty { inner, faults: self.0.clone() }
    }
}

pub struct Faulty {
    inner: Connection,
    faults: Faults,
}

impl Service<Request<Body>> for Faulty {
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Answer>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut asked = Asked::by(&request);
        let uri = request.uri().to_string();
        // There are two watches of pods, and a rule means that of members.
        if uri.contains(PREFLIGHTS) {
            asked.resource = "preflights".into();
        }
        let (head, body) = request.into_parts();
        // Bodies of requests are in memory, so they are complete at once.
        let body =
            body.collect().now_or_never().expect("it is complete").expect("it is in memory").to_bytes();
        let content = head.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let effect = effect(&asked, content, &body);
        let attempt = effect.and_then(|what| self.faults.attempt(asked.namespace.as_deref(), what));
        let sent = self.inner.call(Request::from_parts(head, Body::from(body.to_vec())));
        let faults = self.faults.clone();
        let sent = match self.faults.overtakes(&asked) {
            Some(client) => overtaken(client, sent, faults.clone(), asked.clone(), uri.clone()).boxed(),
            None => sent,
        };
        match (self.faults.request(&asked), attempt) {
            (Some(fault), _) => suffer(fault, sent, faults, uri).boxed(),
            (None, Some(attempt)) => make(attempt, sent, faults).boxed(),
            (None, None) if asked.verb == Verb::List && faults.wants_old_lists() => {
                old_list(sent, faults, uri).boxed()
            }
            (None, None) => sent,
        }
    }
}

/// A fault at one request, whatever it is.
async fn suffer(fault: Fault, sent: BoxFuture<'static, Answer>, faults: Faults, uri: String) -> Answer {
    match fault {
        Fault::Delay(time) => {
            tokio::time::sleep(time).await;
            sent.await
        }
        Fault::DropBefore => Err(broken()),
        Fault::LoseAnswer => {
            sent.await?;
            Err(broken())
        }
        Fault::Answer(code) => Ok(refusal(code)),
        Fault::Hang => std::future::pending().await,
        Fault::Freeze { after } => Ok(sent.await?.map(|inner| cut(inner, after, None))),
        Fault::Expire { after } => Ok(sent.await?.map(|inner| cut(inner, after, Some(expired())))),
        Fault::OldList => old_list(sent, faults, uri).await,
        Fault::KillBefore => faults.kill().await,
        Fault::KillAfter => {
            let _ = sent.await;
            faults.kill().await
        }
    }
}

/// The object is changed before the request is sent, as somebody else could.
async fn overtaken(
    client: kube::Client,
    sent: BoxFuture<'static, Answer>,
    faults: Faults,
    asked: Asked,
    uri: String,
) -> Answer {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed).to_string();
    let path = uri.split('?').next().unwrap_or_default().trim_end_matches("/status");
    let path = path.find("/api").map_or(path, |begin| &path[begin..]);
    let change = json!({"metadata": {"annotations": {"harness": count}}}).to_string();
    let request = Request::patch(path).header(CONTENT_TYPE, "application/merge-patch+json");
    let request = request.body(change.into_bytes()).expect("it is a request");
    client.request::<Value>(request).await?;
    let answer = sent.await?;
    faults.was_overtaken(&asked, answer.status().as_u16());
    Ok(answer)
}

/// An attempt at an effect. What is to happen after the effect happens only if the API server carried it out.
async fn make(attempt: Attempt, sent: BoxFuture<'static, Answer>, faults: Faults) -> Answer {
    let after = matches!(attempt.fault, None | Some(Fault::LoseAnswer | Fault::KillAfter));
    if !after && let Some(fault) = attempt.fault {
        attempt.suffers();
        return suffer(fault, sent, faults, String::new()).await;
    }
    let answer = sent.await;
    if !answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
        return answer;
    }
    attempt.is_carried_out();
    match attempt.fault {
        Some(fault) => {
            attempt.suffers();
            suffer(fault, std::future::ready(answer).boxed(), faults, String::new()).await
        }
        None => answer,
    }
}

/// What changes a cluster: not its status as it is reported, which is applied, but what is recorded there about its
/// bootstrap, which is merged.
fn effect(asked: &Asked, content: &str, body: &[u8]) -> Option<String> {
    let reads = matches!(asked.verb, Verb::Get | Verb::List | Verb::Watch);
    let reports = asked.resource.ends_with("/status") && !content.starts_with("application/merge-patch");
    if reads || reports || matches!(asked.resource.as_str(), "events" | "leases") {
        return None;
    }
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let name = asked.name.as_deref().or(object["metadata"]["name"].as_str()).unwrap_or_default();
    let part =
        if asked.verb == Verb::Patch && object["spec"]["template"].is_object() { TEMPLATE } else { "" };
    Some(format!("{} {} {name}{part}", asked.verb, asked.resource))
}

fn broken() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset (injected)").into()
}

fn refusal(code: u16) -> Response<Box<DynBody>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Injected",
        "code": code, "message": format!("{code} (injected)"),
    });
    let mut response = Response::new(whole(Bytes::from(status.to_string())));
    *response.status_mut() = hyper::StatusCode::from_u16(code).expect("it is a code");
    response
}

fn whole(bytes: Bytes) -> Box<DynBody> {
    Box::new(Full::new(bytes).map_err(|never| match never {}))
}

/// The first answer to this list, whatever the API server would answer now.
async fn old_list(sent: BoxFuture<'static, Answer>, faults: Faults, uri: String) -> Answer {
    let (head, body) = sent.await?.into_parts();
    let bytes = body.collect().await?.to_bytes();
    Ok(Response::from_parts(head, whole(faults.first_answer(&uri, bytes))))
}

fn cut(inner: Box<DynBody>, left: usize, end: Option<Bytes>) -> Box<DynBody> {
    Box::new(Cut { inner, left, expires: end.is_some(), end })
}

/// As the API server tells in a watch that it has to begin with a list again.
fn expired() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired",
        "code": 410, "message": "too old resource version (injected)",
    });
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": status})))
}

/// The body of a watch that tells only so much, and then hangs or ends.
struct Cut {
    inner: Box<DynBody>,
    left: usize,
    expires: bool,
    end: Option<Bytes>,
}

impl hyper::body::Body for Cut {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match (self.left, self.end.take(), self.expires) {
            (0, Some(end), _) => Poll::Ready(Some(Ok(Frame::data(end)))),
            (0, None, true) => Poll::Ready(None),
            (0, None, false) => Poll::Pending,
            (_, end, _) => {
                self.end = end;
                let frame = Pin::new(&mut self.inner).poll_frame(context);
                self.left -= usize::from(frame.is_ready());
                frame
            }
        }
    }
}
