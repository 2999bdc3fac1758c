//! A relay between the program and a store, which holds every connection back after a number of bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(60);

pub struct Relay {
    pub address: SocketAddr,
    holds: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Relay {
    pub async fn start(to: SocketAddr, hold_after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let holds = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&holds);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, to, hold_after, Arc::clone(&held)));
            }
        });
        Self { address, holds, task }
    }

    /// Returns when a connection is held back.
    pub async fn holds(&self) {
        let began = Instant::now();
        while !self.holds.load(Ordering::Relaxed) {
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

async fn relay(client: TcpStream, to: SocketAddr, hold_after: usize, holds: Arc<AtomicBool>) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let forth = async {
        let (mut sent, mut buffer) = (0, vec![0; 64 << 10]);
        while let Ok(length) = from_client.read(&mut buffer).await {
            if length == 0 || to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
            sent += length;
            if sent > hold_after {
                holds.store(true, Ordering::Relaxed);
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
