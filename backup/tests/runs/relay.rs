//! A relay between the program and a store. After a number of bytes it holds back every connection that sends data; small
//! requests pass.

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
}

impl Relay {
    pub async fn start(to: SocketAddr, hold_after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let state = State { to, hold_after, sent: AtomicUsize::new(0), holds: AtomicBool::new(false) };
        let state = Arc::new(state);
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

async fn relay(client: TcpStream, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(state.to).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let forth = async {
        let (mut sent, mut buffer) = (0, vec![0; 64 << 10]);
        while let Ok(length) = from_client.read(&mut buffer).await {
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
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
    };
    tokio::select! {
        () = forth => {}
        () = back => {}
    }
}
