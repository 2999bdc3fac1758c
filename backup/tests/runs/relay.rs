//! A relay between the program and a store. After a number of bytes it holds back every connection that sends data; small
//! requests pass. Or it loses one response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(60);
/// What a request without data does not reach.
const SMALL: usize = 1 << 20;

pub struct Relay {
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    to: SocketAddr,
    hold_after: usize,
    sent: AtomicUsize,
    holds: AtomicBool,
    /// How the head of the request begins, and what is in it, whose response is lost.
    loses: Option<(&'static str, &'static str)>,
    has_lost: AtomicBool,
}

impl Relay {
    pub async fn start(to: SocketAddr, hold_after: usize) -> Self {
        Self::with(to, hold_after, None).await
    }

    /// Carries out everything, and ends the connection instead of the first response to such a request.
    pub async fn losing(to: SocketAddr, method: &'static str, word: &'static str) -> Self {
        Self::with(to, usize::MAX, Some((method, word))).await
    }

    pub fn has_lost(&self) -> bool {
        self.state.has_lost.load(Ordering::Relaxed)
    }

    async fn with(to: SocketAddr, hold_after: usize, loses: Option<(&'static str, &'static str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let (holds, has_lost) = (AtomicBool::new(false), AtomicBool::new(false));
        let state = Arc::new(State { to, hold_after, sent: AtomicUsize::new(0), holds, loses, has_lost });
        let of_task = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, Arc::clone(&of_task)));
            }
        });
        Self { address, state, task }
    }

    /// Returns when a connection is held back.
    pub async fn holds(&self) {
        let began = Instant::now();
        while !self.state.holds.load(Ordering::Relaxed) {
            assert!(began.elapsed() < LIMIT, "too little was sent");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    /// Whether the response to it is to be lost, which happens once.
    fn loses(&self, request: &[u8]) -> bool {
        let Some((method, word)) = self.loses else { return false };
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        line.starts_with(method) && line.contains(word) && !self.has_lost.swap(true, Ordering::Relaxed)
    }
}

async fn relay(client: TcpStream, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(state.to).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let loses = AtomicBool::new(false);
    let forth = async {
        let (mut sent, mut buffer) = (0, vec![0; 64 << 10]);
        while let Ok(length) = from_client.read(&mut buffer).await {
            if state.loses(&buffer[..length]) {
                loses.store(true, Ordering::Relaxed);
            }
            if length == 0 || to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
            sent += length;
            let all = state.sent.fetch_add(length, Ordering::Relaxed) + length;
            if sent > SMALL && all > state.hold_after {
                state.holds.store(true, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length) = from_server.read(&mut buffer).await {
            let is_lost = length == 0 || loses.load(Ordering::Relaxed);
            if is_lost || to_client.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = forth => {}
        () = back => {}
    }
}
