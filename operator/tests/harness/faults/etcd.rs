//! The layer under the channel to a member.

use std::io;
use std::sync::Arc;

use etcd_client::Channel;
use etcd_operator::reach::{PodAddress, Reach};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt, service_fn};

use super::{Fault, Faults};

/// Calls that change the members, which of them leads, or users.
const EFFECTS: [&str; 10] = [
    "MemberAdd",
    "MemberPromote",
    "MemberRemove",
    "MoveLeader",
    "RoleAdd",
    "UserAdd",
    "UserGrantRole",
    "UserChangePassword",
    "AuthEnable",
    "AuthDisable",
];

const STATUS: &str = "grpc-status";

/// Pods by their addresses, with the faults of a run.
pub fn reach(faults: &Faults) -> Reach {
    let faults = faults.clone();
    Reach::Around(Arc::new(move |pod, channel| around(&faults, pod, channel)))
}

fn around(faults: &Faults, pod: &PodAddress, channel: Channel) -> Channel {
    let (faults, namespace) = (faults.clone(), pod.namespace.clone());
    Channel::Custom(BoxCloneSyncService::new(service_fn(move |request| {
        call(faults.clone(), namespace.clone(), channel.clone(), request)
    })))
}

async fn call(
    faults: Faults,
    namespace: String,
    mut channel: Channel,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    if !EFFECTS.contains(&method.as_str()) {
        return channel.ready().await?.call(request).await;
    }
    let (head, body) = request.into_parts();
    let message = body.collect().await?.to_bytes();
    let what = format!("{method} {}", argument(&message));
    let request = Request::from_parts(head, Body::new(Full::new(message)));
    let channel = channel.ready().await?;
    let Some(attempt) = faults.attempt(Some(&namespace), what) else { return channel.call(request).await };
    match attempt.fault {
        Some(Fault::DropBefore) => {
            attempt.suffers();
            return Err(broken());
        }
        Some(Fault::Answer(_)) => {
            attempt.suffers();
            return Ok(timed_out());
        }
        Some(Fault::Hang) => {
            attempt.suffers();
            return std::future::pending().await;
        }
        Some(Fault::KillBefore) => {
            attempt.suffers();
            return faults.kill().await;
        }
        Some(Fault::Delay(time)) => {
            attempt.suffers();
            tokio::time::sleep(time).await;
        }
        Some(Fault::Freeze { .. } | Fault::Expire { .. } | Fault::OldList) => {
            panic!("{method} is neither a watch nor a list")
        }
        None | Some(Fault::LoseAnswer | Fault::KillAfter) => {}
    }
    let (answer, refused) = whole(channel.call(request).await?).await?;
    if refused {
        return Ok(answer);
    }
    attempt.is_carried_out();
    match attempt.fault {
        Some(Fault::LoseAnswer) => {
            attempt.suffers();
            Err(broken())
        }
        Some(Fault::KillAfter) => {
            attempt.suffers();
            faults.kill().await
        }
        _ => Ok(answer),
    }
}

/// An answer with all of its messages, and whether it is a refusal. The status of one is in the head, because no message
/// follows; over TLS etcd serves gRPC in another way, and it is behind the messages.
async fn whole(answer: Response<Body>) -> Result<(Response<Body>, bool), BoxError> {
    let (head, body) = answer.into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    let status = head.headers.get(STATUS).or_else(|| trailers.as_ref()?.get(STATUS));
    let refused = status.is_some_and(|status| status != "0");
    let trailers = std::future::ready(trailers.map(Ok));
    let body = Body::new(Full::new(body.to_bytes()).with_trailers(trailers));
    Ok((Response::from_parts(head, body), refused))
}

/// The URL in the message, or the message itself, behind the five bytes that gRPC puts in front of it.
fn argument(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    match text.find("http") {
        Some(begin) => text[begin..].chars().take_while(|it| it.is_ascii_graphic()).collect(),
        None => message.iter().skip(5).map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn broken() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset (injected)").into()
}

/// As etcd answers when it does not know whether the change was agreed upon.
fn timed_out() -> Response<Body> {
    let response = Response::builder()
        .header("content-type", "application/grpc")
        .header(STATUS, "14")
        .header("grpc-message", "etcdserver: request timed out");
    response.body(Body::empty()).expect("the headers are valid")
}
