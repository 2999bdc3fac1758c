//! The agent in a pod, while it waits to start etcd: it is told what we know, and says what it waits for.

use std::time::Duration;

use etcd_operator_core::agent::{News, PAGE, Report};
use etcd_operator_core::etcd_config::METRICS_PORT;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Builder;
use hyper::{Request, StatusCode};

use crate::page;
use crate::reach::{self, PodAddress, Reach};

/// Both answer from memory.
const DEADLINE: Duration = Duration::from_secs(1);
const LONGEST_REPORT: usize = 64 * 1024;
/// etcd's page has less than 200 kB, and more with many gRPC methods in use.
const LONGEST_METRICS: usize = 4 * 1024 * 1024;
const METRICS: &str = "/metrics";

/// Every text is made to be shown to users: who, what, why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reach(#[from] reach::Error),
    #[error("the agent in {pod} did not respond within {} s", DEADLINE.as_secs())]
    NoAnswer { pod: String },
    #[error("the connection to the agent in {pod} failed: {reason}")]
    Broken { pod: String, reason: String },
    #[error("the agent in {pod} responded with HTTP status {status}")]
    Status { pod: String, status: StatusCode },
    #[error("the agent in {pod} sent an invalid response: {reason}")]
    Nonsense { pod: String, reason: String },
}

/// What answered on the port that the agent and, after it, etcd listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentReply {
    Report(Report),
    /// It knows no such page, so it is no agent: etcd itself.
    SomethingElse,
}

/// What it waits for. It goes on waiting.
pub async fn ask(reach: &Reach, pod: &PodAddress) -> Result<AgentReply, Error> {
    in_time(reach, pod, Request::get(PAGE), Bytes::new()).await
}

/// What we know; the agent checks again at once.
pub async fn tell(reach: &Reach, pod: &PodAddress, news: &News) -> Result<AgentReply, Error> {
    let news = serde_json::to_vec(news).expect("addresses are always JSON");
    let request = Request::post(PAGE).header(CONTENT_TYPE, "application/json");
    in_time(reach, pod, request, Bytes::from(news)).await
}

/// What etcd itself reports on this port, once it runs.
pub async fn metrics(reach: &Reach, pod: &PodAddress) -> Result<String, Error> {
    let (status, page) = send(reach, pod, Request::get(METRICS), Bytes::new(), LONGEST_METRICS).await?;
    let nonsense = |error: std::string::FromUtf8Error| Error::Nonsense {
        pod: pod.pod.clone(),
        reason: error.to_string(),
    };
    match status {
        StatusCode::OK => String::from_utf8(page.into()).map_err(nonsense),
        status => Err(Error::Status { pod: pod.pod.clone(), status }),
    }
}

async fn in_time(
    reach: &Reach,
    pod: &PodAddress,
    request: Builder,
    body: Bytes,
) -> Result<AgentReply, Error> {
    let (status, body) = send(reach, pod, request, body, LONGEST_REPORT).await?;
    understand(&pod.pod, status, &body)
}

async fn send(
    reach: &Reach,
    pod: &PodAddress,
    request: Builder,
    body: Bytes,
    longest: usize,
) -> Result<(StatusCode, Bytes), Error> {
    let sent = tokio::time::timeout(DEADLINE, exchange(reach, pod, request, body, longest)).await;
    sent.unwrap_or_else(|_| Err(Error::NoAnswer { pod: pod.pod.clone() }))
}

async fn exchange(
    reach: &Reach,
    pod: &PodAddress,
    request: Builder,
    body: Bytes,
    longest: usize,
) -> Result<(StatusCode, Bytes), Error> {
    page::get(reach, pod, METRICS_PORT, request, body, longest).await.map_err(|error| match error {
        page::Error::Reach(error) => error.into(),
        page::Error::Broken(reason) => Error::Broken { pod: pod.pod.clone(), reason },
    })
}

fn understand(pod: &str, status: StatusCode, body: &[u8]) -> Result<AgentReply, Error> {
    let pod = || pod.to_owned();
    match status {
        StatusCode::OK => serde_json::from_slice(body)
            .map(AgentReply::Report)
            .map_err(|error| Error::Nonsense { pod: pod(), reason: error.to_string() }),
        StatusCode::NOT_FOUND => Ok(AgentReply::SomethingElse),
        status => Err(Error::Status { pod: pod(), status }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const REPORT: &str = r#"{"clusterUid":"uid-1","name":"kv-1","peerUrl":"http://kv-1:2380","everStarted":false,"reason":"NoOrder","message":"an order","since":"1970-01-01T00:00:00Z"}"#;

    /// An address of this process and test alone, because the port is always the same.
    fn pod(test: u8) -> PodAddress {
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(127, high | 1, low, test));
        PodAddress { namespace: "ns".into(), pod: "kv-1".into(), uid: "uid".into(), address }
    }

    /// Answers one request, and returns it.
    async fn answer(listener: TcpListener, answer: String) -> String {
        let (mut stream, _) = listener.accept().await.expect("somebody comes");
        let mut request = String::new();
        while !request.ends_with('}') {
            let mut buffer = [0; 1024];
            let count = stream.read(&mut buffer).await.expect("it asks");
            request.push_str(std::str::from_utf8(&buffer[..count]).expect("it is text"));
        }
        stream.write_all(answer.as_bytes()).await.expect("it listens");
        request
    }

    #[tokio::test]
    async fn an_agent_is_told_the_addresses_and_its_report_is_read() {
        let pod = pod(1);
        let listener = TcpListener::bind((pod.address, METRICS_PORT)).await.expect("a free address");
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
        let page = format!("{head}\r\nContent-Length: {}\r\n\r\n{REPORT}", REPORT.len());
        let news = News { addresses: vec![pod.address], ..News::default() };
        let (asked, heard) = futures::join!(answer(listener, page), tell(&Reach::Direct, &pod, &news));
        assert!(asked.starts_with("POST /agent HTTP/1.1\r\n"), "{asked}");
        assert!(asked.ends_with(&serde_json::to_string(&news).expect("plain data")), "{asked}");
        let report = serde_json::from_str(REPORT).expect("a report");
        assert_eq!(heard.expect("it answered"), AgentReply::Report(report));
    }

    #[tokio::test]
    async fn who_accepts_and_says_nothing_is_not_waited_for() {
        let pod = pod(2);
        let _listener = TcpListener::bind((pod.address, METRICS_PORT)).await.expect("a free address");
        let error = tell(&Reach::Direct, &pod, &News::default()).await.expect_err("nobody answers");
        assert_eq!(error.to_string(), "the agent in kv-1 did not respond within 1 s");
    }

    #[test]
    fn only_a_report_is_taken_for_an_agent_and_only_a_missing_page_for_something_else() {
        let heard = |status, body: &str| understand("kv-1", status, body.as_bytes());
        assert!(matches!(heard(StatusCode::OK, REPORT), Ok(AgentReply::Report(_))));
        assert!(matches!(heard(StatusCode::NOT_FOUND, ""), Ok(AgentReply::SomethingElse)));
        assert!(matches!(heard(StatusCode::OK, "{}"), Err(Error::Nonsense { .. })));
        assert!(matches!(heard(StatusCode::BAD_REQUEST, ""), Err(Error::Status { .. })));
    }
}
