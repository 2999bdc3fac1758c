//! What a kubelet reports of a pod.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HTTPGetAction, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// There is no object of this name: nothing that runs here looks for one.
pub const NODE: &str = "stand-in";
const CREATING: &str = "ContainerCreating";
const DEADLINE: Duration = Duration::from_secs(1);

pub struct Container {
    pub restarts: u32,
    pub last: Option<Exit>,
    pub started: Timestamp,
    pub ready: bool,
}

#[derive(Clone)]
pub struct Exit {
    pub code: i32,
    pub message: String,
}

impl Exit {
    fn state(&self) -> Value {
        let reason = if self.code == 0 { "Completed" } else { "Error" };
        json!({"terminated": {"exitCode": self.code, "message": self.message, "reason": reason}})
    }
}

impl Container {
    pub fn running(&self) -> Value {
        self.status(json!({"running": {"startedAt": shown(self.started)}}))
    }

    /// It is not started again.
    pub fn finished(&self, exit: &Exit) -> Value {
        self.status(exit.state())
    }

    /// Its volumes are not mounted yet.
    pub fn creating(&self) -> Value {
        self.status(json!({"waiting": {"reason": CREATING}}))
    }

    pub fn without_image(&self) -> Value {
        self.status(json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}))
    }

    pub fn backing_off(&self) -> Value {
        self.status(json!({"waiting": {"reason": "CrashLoopBackOff"}}))
    }

    fn status(&self, state: Value) -> Value {
        json!({
            "image": "", "imageID": "", "ready": self.ready, "started": true, "restartCount": self.restarts,
            "state": state, "lastState": self.last.as_ref().map_or(json!({}), Exit::state),
        })
    }
}

/// A container that never runs twice.
pub enum Once {
    /// For a reason, with a message.
    Waiting(&'static str, String),
    Running(Timestamp),
    Ended(Exit),
}

impl Once {
    fn has_succeeded(&self) -> bool {
        matches!(self, Self::Ended(exit) if exit.code == 0)
    }

    fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }

    fn status(&self, name: &str, is_init: bool) -> Value {
        let is_running = matches!(self, Self::Running(_));
        let ready = if is_init { self.has_succeeded() } else { is_running };
        let state = match self {
            Self::Waiting(reason, message) => json!({"waiting": {"reason": reason, "message": message}}),
            Self::Running(since) => json!({"running": {"startedAt": shown(*since)}}),
            Self::Ended(exit) => exit.state(),
        };
        json!({
            "name": name, "image": "", "imageID": "", "ready": ready, "started": is_running, "restartCount": 0,
            "state": state, "lastState": {},
        })
    }
}

fn shown(time: Timestamp) -> String {
    time.strftime("%FT%TZ").to_string()
}

/// The same for a pod whose containers run once: those that come first, and the others.
pub fn of_containers(
    pod: &Pod,
    address: IpAddr,
    init: &[(&str, &Once)],
    containers: &[(&str, &Once)],
) -> Value {
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    let is_initialized = init.iter().all(|(_, it)| it.has_succeeded());
    let has_begun = containers.iter().any(|(_, it)| !matches!(it, Once::Waiting(..)));
    let runs = init.iter().chain(containers).any(|(_, it)| matches!(it, Once::Running(_)));
    let has_failed = init.iter().any(|(_, it)| it.has_ended() && !it.has_succeeded());
    let phase = match () {
        () if containers.iter().all(|(_, it)| it.has_succeeded()) => "Succeeded",
        () if has_failed || containers.iter().all(|(_, it)| it.has_ended()) => "Failed",
        () if is_deleted && !runs => "Failed",
        () if is_initialized && has_begun => "Running",
        () => "Pending",
    };
    let condition =
        |name: &str, holds: bool| json!({"type": name, "status": if holds { "True" } else { "False" }});
    let are_ready = containers.iter().all(|(_, it)| matches!(it, Once::Running(_)));
    let statuses = |all: &[(&str, &Once)], is_init: bool| -> Vec<Value> {
        all.iter().map(|(name, it)| it.status(name, is_init)).collect()
    };
    json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                condition("PodScheduled", true),
                condition("Initialized", is_initialized),
                condition("ContainersReady", are_ready),
                condition("Ready", are_ready),
            ],
            "initContainerStatuses": statuses(init, true),
            "containerStatuses": statuses(containers, false),
        },
    })
}

/// A merge patch that fails if another pod has the name by now.
pub fn of_pod(pod: &Pod, address: IpAddr, container: &Value) -> Value {
    let name = pod.spec.as_ref().and_then(|spec| spec.containers.first()).map(|it| it.name.clone());
    let mut container = container.clone();
    container["name"] = json!(name);
    let ready = if container["ready"] == json!(true) { "True" } else { "False" };
    // Without its volumes a pod has no network either.
    let is_created = container["state"]["waiting"]["reason"] != CREATING;
    let addresses: Vec<String> = is_created.then(|| address.to_string()).into_iter().collect();
    let phase = match container["state"]["terminated"]["exitCode"].as_i64() {
        None if !is_created => "Pending",
        None => "Running",
        Some(0) => "Succeeded",
        Some(_) => "Failed",
    };
    json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": phase,
            "podIP": addresses.first(),
            "podIPs": addresses.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>(),
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Initialized", "status": "True"},
                {"type": "ContainersReady", "status": ready},
                {"type": "Ready", "status": ready},
            ],
            "containerStatuses": [container],
        },
    })
}

/// Whether the first container's readiness probe succeeds, which has to be an HTTP request.
pub async fn probe(pod: &Pod, address: IpAddr) -> bool {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let probe = container.and_then(|container| container.readiness_probe.as_ref()?.http_get.as_ref());
    let Some(HTTPGetAction { path, port: IntOrString::Int(port), .. }) = probe else { return false };
    let path = path.as_deref().unwrap_or("/");
    let Ok(port) = u16::try_from(*port) else { return false };
    matches!(get((address, port), path).await, Ok((status, _)) if (200..400).contains(&status))
}

/// What somebody answers to an HTTP request: a status and the rest. One that takes longer than a second is none.
pub async fn get(at: impl Into<SocketAddr>, path: &str) -> io::Result<(u16, String)> {
    let at = at.into();
    tokio::time::timeout(DEADLINE, answer(at, path))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn answer(at: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    exchange(TcpStream::connect(at).await?, &at.to_string(), path).await
}

/// One HTTP request over a connection, and what is answered.
pub async fn exchange<S>(stream: S, host: &str, path: &str) -> io::Result<(u16, String)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::get(path).header(HOST, host).body(Empty::<Bytes>::new());
    let answer = async {
        let response =
            sender.send_request(request.map_err(io::Error::other)?).await.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    // The connection does the work. Its end is not waited for: etcd keeps some open although it is asked not to.
    tokio::select! {
        biased;
        answer = answer => answer,
        Err(error) = connection => Err(io::Error::other(error)),
    }
}
