//! What the agent says on the metrics port while it waits. Once etcd runs, etcd answers there.
//!
//! The kubelet's probes go to the same port: a waiting agent is alive and not ready.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_core::agent::{News, PAGE, Report, metrics};

const PATIENCE: Duration = Duration::from_secs(1);
const LONGEST_REQUEST: usize = 64 * 1024;
/// Probes, the operator and eight other agents are far fewer.
const MOST_AT_ONCE: usize = 64;
const AFTER_ERROR: Duration = Duration::from_millis(100);

pub struct Page {
    shared: Arc<Shared>,
    woken: Receiver<()>,
}

struct Shared {
    report: Mutex<Report>,
    checks: AtomicU64,
    told: Mutex<Option<BTreeSet<IpAddr>>>,
    wake: SyncSender<()>,
    busy: AtomicUsize,
}

impl Page {
    pub fn open(address: SocketAddr, report: Report) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let (wake, woken) = sync_channel(1);
        let shared = Arc::new(Shared {
            report: Mutex::new(report),
            checks: AtomicU64::new(0),
            told: Mutex::new(None),
            wake,
            busy: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => serve_beside(&serving, stream),
                    Err(_) => std::thread::sleep(AFTER_ERROR),
                }
            }
        });
        Ok(Self { shared, woken })
    }

    /// After each check.
    pub fn show(&self, report: Report) {
        self.shared.checks.fetch_add(1, Ordering::Relaxed);
        *self.shared.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// The addresses that the operator told last; none if it has not.
    pub fn told(&self) -> Option<BTreeSet<IpAddr>> {
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Until there is news, but no longer than this.
    pub fn wait(&self, at_most: Duration) {
        let _ = self.woken.recv_timeout(at_most);
    }
}

/// In a thread of its own, so that nobody waits for a slow one. Who breaks off gets no answer; that is all.
fn serve_beside(shared: &Arc<Shared>, stream: TcpStream) {
    if shared.busy.fetch_add(1, Ordering::Relaxed) < MOST_AT_ONCE {
        let this = Arc::clone(shared);
        let serving = move || {
            let _ = this.serve(stream);
            this.busy.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().spawn(serving).is_ok() {
            return;
        }
    }
    shared.busy.fetch_sub(1, Ordering::Relaxed);
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (line, body) = read(&mut stream)?;
        let (status, kind, text) = self.answer(&line, &body);
        let length = text.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n");
        stream.write_all(format!("{head}Connection: close\r\n\r\n{text}").as_bytes())
    }

    fn answer(&self, line: &str, body: &str) -> (&'static str, &'static str, String) {
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let waiting = "etcd has not started yet\n".to_owned();
        match (method, path) {
            ("GET", PAGE) => self.report(),
            ("POST", PAGE) => match serde_json::from_str(body) {
                Ok(news) => {
                    self.hear(news);
                    self.report()
                }
                Err(error) => ("400 Bad Request", "text/plain", format!("{error}\n")),
            },
            ("GET", "/metrics") => ("200 OK", "text/plain; version=0.0.4", self.metrics()),
            ("GET", "/livez") => ("200 OK", "text/plain", "ok\n".into()),
            ("GET", "/readyz") => ("503 Service Unavailable", "text/plain", waiting),
            // Before 3.5.19 this is the probe for being alive, if asked so.
            ("GET", "/health") if query.contains("serializable=true") => {
                ("200 OK", "application/json", r#"{"health":"true"}"#.into())
            }
            ("GET", "/health") => {
                ("503 Service Unavailable", "application/json", r#"{"health":"false"}"#.into())
            }
            _ => ("404 Not Found", "text/plain", waiting),
        }
    }

    fn report(&self) -> (&'static str, &'static str, String) {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        ("200 OK", "application/json", serde_json::to_string(&*report).expect("text is always JSON"))
    }

    fn metrics(&self) -> String {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        metrics::page(&report, self.checks.load(Ordering::Relaxed))
    }

    fn hear(&self, news: News) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(news.addresses.into_iter().collect());
        // If a wake-up is pending already, it will do.
        let _ = self.wake.try_send(());
    }
}

/// The first line and the body of a request.
fn read(stream: &mut TcpStream) -> io::Result<(String, String)> {
    let mut text = Vec::new();
    let mut buffer = [0; 2048];
    loop {
        let head = text.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = head {
            let head = String::from_utf8_lossy(&text[..end]).into_owned();
            if text.len() >= end + 4 + content_length(&head) {
                let line = head.lines().next().unwrap_or_default().to_owned();
                return Ok((line, String::from_utf8_lossy(&text[end + 4..]).into_owned()));
            }
        }
        let count = stream.read(&mut buffer)?;
        text.extend_from_slice(&buffer[..count]);
        if count == 0 || text.len() > LONGEST_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

fn content_length(head: &str) -> usize {
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}
