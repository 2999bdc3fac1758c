//! What a kubelet reports of a pod.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HTTPGetAction, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// There is no object of this name: nothing that runs here looks for one.
pub const NODE: &str = "stand-in";
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
        self.status(json!({"running": {"startedAt": self.started.strftime("%FT%TZ").to_string()}}))
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

/// A merge patch that fails if another pod has the name by now.
pub fn of_pod(pod: &Pod, address: IpAddr, container: &Value) -> Value {
    let name = pod.spec.as_ref().and_then(|spec| spec.containers.first()).map(|it| it.name.clone());
    let mut container = container.clone();
    container["name"] = json!(name);
    let ready = if container["ready"] == json!(true) { "True" } else { "False" };
    json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": "Running",
            "podIP": address.to_string(),
            "podIPs": [{"ip": address.to_string()}],
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
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}
