//! No request to the API server waits for ever, and none is sent twice. The servers here are sockets, without Kubernetes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use etcd_operator::caches::{AllWakes, Caches};
use etcd_operator::client::{
    self, DEADLINE, EVICTION_DEADLINE, LIST_DEADLINE, Timeout, WATCH_GRACE, is_ambiguous,
};
use etcd_operator::credentials::Security;
use etcd_operator::etcd::Member;
use etcd_operator::reach::{PodAddress, Reach};
use etcd_operator::scope::Scope;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Far more than a response on loopback takes.
const SLACK: Duration = Duration::from_secs(3);

/// From the first line of a request.
type Answer = fn(&str) -> String;

/// Answers every request with what the function makes of its first line, and never ends a connection by itself.
struct Server {
    address: std::net::SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer, Arc::clone(&seen)));
            }
        });
        Self { address, requests, task }
    }

    fn client(&self) -> Client {
        let url = format!("http://{}", self.address).parse().expect("an address");
        client::build(Config::new(url)).expect("a client")
    }

    fn objects(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client(), "ns")
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("nobody panicked").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: Answer, seen: Arc<Mutex<Vec<String>>>) {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if !text.contains("\r\n\r\n") {
            continue;
        }
        let line = text.lines().next().unwrap_or_default().to_owned();
        let answer = answer(&line);
        seen.lock().expect("nobody panicked").push(line);
        text.clear();
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn is_timeout(error: &kube::Error) -> bool {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |error| error.source()).any(|error| error.is::<Timeout>())
}

fn silence(_: &str) -> String {
    String::new()
}

fn response(status: &str, body: &str) -> String {
    let head = "Content-Type: application/json\r\nRetry-After: 0";
    format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// It takes the deadline and no longer, and says so.
async fn times_out<T>(deadline: Duration, call: impl Future<Output = kube::Result<T>>) {
    let begun = Instant::now();
    let answer = tokio::time::timeout(deadline + SLACK, call).await.expect("it ends by itself");
    let error = answer.err().expect("nobody answers");
    assert!(begun.elapsed() >= deadline, "{:?}", begun.elapsed());
    assert!(is_timeout(&error) && is_ambiguous(&error), "{error:?}");
    let words = format!("the API server did not respond within {} s", deadline.as_secs());
    assert!(error.to_string().contains(&words), "{error}");
}

#[tokio::test]
async fn every_kind_of_request_has_a_deadline() {
    let server = Server::start(silence).await;
    let objects = server.objects();
    let pods: Api<Pod> = Api::namespaced(server.client(), "ns");
    let (post, object) = (PostParams::default(), ConfigMap::default());
    let evict = EvictParams::default();
    let (parameters, change) = (PatchParams::default(), Patch::Merge(json!({})));
    let (delete, list, watch) = (DeleteParams::default(), ListParams::default(), WatchParams::default());
    futures::join!(
        times_out(DEADLINE, objects.create(&post, &object)),
        times_out(DEADLINE, objects.patch("it", &parameters, &change)),
        times_out(DEADLINE, objects.delete("it", &delete)),
        times_out(DEADLINE, objects.get("it")),
        times_out(EVICTION_DEADLINE, pods.evict("it", &evict)),
        times_out(LIST_DEADLINE, objects.list(&list)),
        times_out(DEADLINE, objects.watch(&watch, "0").map(|it| it.map(drop))),
    );
    assert_eq!(server.requests().len(), 7);
}

#[tokio::test]
async fn a_response_that_stops_half_way_has_a_deadline() {
    let server = Server::start(|_| response("200 OK", "{}").replace("Length: 2", "Length: 200")).await;
    times_out(DEADLINE, server.objects().get("it")).await;
}

#[tokio::test]
async fn a_server_that_has_no_time_gets_one_request_and_no_more() {
    let overloaded: [(u16, Answer); 3] = [
        (429, |_| response("429 Too Many Requests", "later")),
        (503, |_| response("503 Service Unavailable", "later")),
        (504, |_| response("504 Gateway Timeout", "too late")),
    ];
    for (code, answer) in overloaded {
        let server = Server::start(answer).await;
        for count in 1..3 {
            let error = server.objects().create(&PostParams::default(), &ConfigMap::default()).await;
            let error = error.expect_err("it refuses");
            assert!(matches!(&error, kube::Error::Api(status) if status.code == code), "{error:?}");
            assert!(!is_timeout(&error));
            assert_eq!(is_ambiguous(&error), code >= 500, "{error:?}");
            assert_eq!(server.requests().len(), count);
        }
    }
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_carried_out() {
    let server = Server::start(silence).await;
    let objects = server.objects();
    server.task.abort();
    tokio::task::yield_now().await;
    drop(server);
    let error = objects.create(&PostParams::default(), &ConfigMap::default()).await.expect_err("no server");
    assert!(!is_timeout(&error) && !is_ambiguous(&error), "{error:?}");
}

/// When the kernel looks next whether the other end of the connection to this port is still there.
fn next_keepalive(port: u16) -> Option<Duration> {
    let connections = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux has it");
    let remote = format!(":{port:04X}");
    let columns = connections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let connection = columns.into_iter().find(|it| it.get(2).is_some_and(|it| it.ends_with(&remote)))?;
    // The kind of timer, 02 for this one, and the time until it fires in hundredths of a second.
    let hundredths = u64::from_str_radix(connection.get(5)?.strip_prefix("02:")?, 16).ok()?;
    Some(Duration::from_millis(hundredths * 10))
}

#[tokio::test]
async fn the_kernel_looks_after_idle_connections() {
    let server = Server::start(|_| response("404 Not Found", "{}")).await;
    let objects = server.objects();
    objects.get("it").await.expect_err("it is not there");
    let begun = Instant::now();
    let next = loop {
        // Until the request is acknowledged, another timer runs.
        match next_keepalive(server.address.port()) {
            Some(next) => break next,
            None => assert!(begun.elapsed() < SLACK, "no keepalive"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(next <= Duration::from_secs(10), "{next:?}");
}

fn chunk(line: &str) -> String {
    format!("{:x}\r\n{line}\n\r\n", line.len() + 1)
}

/// Two events, and then nothing, not even the end.
fn frozen_watch(_: &str) -> String {
    let event = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        chunk(&json!({"type": "ADDED", "object": object}).to_string())
    };
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}{}", event("one"), event("two"))
}

#[tokio::test]
async fn a_watch_that_freezes_is_noticed() {
    let server = Server::start(frozen_watch).await;
    let (begun, seconds) = (Instant::now(), 1);
    let parameters = WatchParams::default().timeout(seconds);
    let mut events = server.objects().watch(&parameters, "0").await.expect("it begins").boxed();
    for _ in 0..2 {
        events.next().await.expect("an event").expect("no error");
    }
    let limit = Duration::from_secs(seconds.into()) + WATCH_GRACE;
    let end = tokio::time::timeout(limit + SLACK, events.next()).await.expect("it is given up");
    let error = end.expect("it does not just end").expect_err("nothing comes");
    assert!(is_timeout(&error), "{error:?}");
    assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_error_that_is_not_from_the_api_server_might_hide_a_success() {
    let server = Server::start(|_| response("502 Bad Gateway", "{}")).await;
    let error = server.objects().create(&PostParams::default(), &ConfigMap::default()).await;
    let error = error.expect_err("it failed");
    assert!(is_ambiguous(&error) && !is_timeout(&error), "{error:?}");
}

/// An empty list, and a watch without events.
fn nothing_there(line: &str) -> String {
    match line.contains("watch=true") {
        true => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
        false => {
            let (kind, version) = ("List", "v1");
            let list = json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": []});
            response("200 OK", &list.to_string())
        }
    }
}

#[tokio::test]
async fn our_watches_end_soon_enough_for_a_dead_one_to_be_noticed() {
    let server = Server::start(nothing_there).await;
    let (_caches, filling) = Caches::fill(&server.client(), &Scope::Everywhere, &AllWakes::default());
    let filling = tokio::spawn(filling);
    let begun = Instant::now();
    let watches = loop {
        let requests = server.requests();
        let watches: Vec<_> = requests.into_iter().filter(|line| line.contains("watch=true")).collect();
        if watches.len() == 15 {
            break watches;
        }
        assert!(begun.elapsed() < SLACK, "only these are watched: {watches:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    filling.abort();
    assert!(watches.iter().all(|line| line.contains("timeoutSeconds=60")), "{watches:?}");
}

#[tokio::test]
async fn a_member_that_accepts_and_says_nothing_is_not_waited_for() {
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = std::net::Ipv4Addr::new(127, high | 1, low, 9);
    let _listener = TcpListener::bind((address, 2379)).await.expect("a free address");
    let pod =
        PodAddress { namespace: "ns".into(), pod: "kv-0".into(), uid: "uid".into(), address: address.into() };
    let asking = async {
        let member = Member::connect(&Reach::Direct, &pod, &Security::Plain).await?;
        member.status().await
    };
    let answer = tokio::time::timeout(Duration::from_secs(8), asking).await.expect("it ends by itself");
    assert!(answer.expect_err("nobody answers").to_string().ends_with(" within 2 s"));
}
