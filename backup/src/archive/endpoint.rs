//! Serves the progress of an archiver over HTTP to those who show its token. It has revisions, times and the
//! words of an error, without keys and values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use etcd_operator_core::backup::progress::{ADDRESS_VARIABLE, PAGE, PORT, TOKEN_VARIABLE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::progress::{Shared, lock};
use crate::error::Error;

const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST_REQUEST: usize = 8 * 1024;
const MOST_AT_ONCE: usize = 8;

/// As the operator gives it; None without a token.
pub struct Endpoint {
    address: IpAddr,
    token: String,
}

impl Endpoint {
    pub fn from_environment() -> Result<Option<Self>, Error> {
        let Ok(token) = std::env::var(TOKEN_VARIABLE) else { return Ok(None) };
        if token.is_empty() {
            return Err(Error::Configuration(format!("{TOKEN_VARIABLE} is empty: give a token")));
        }
        let address = std::env::var(ADDRESS_VARIABLE).unwrap_or_default();
        let address = address.parse().map_err(|_| {
            Error::Configuration(format!("{ADDRESS_VARIABLE} {address:?} is not an IP address"))
        })?;
        Ok(Some(Self { address, token }))
    }

    /// As long as the set lives. The loopback address is for the port-forward of the API server.
    pub fn serve(self, shared: &Shared, tasks: &mut JoinSet<()>) {
        let token = Arc::new(format!("Bearer {}", self.token));
        for address in [self.address, Ipv4Addr::LOCALHOST.into()] {
            tasks.spawn(run(SocketAddr::new(address, PORT), Arc::clone(&token), Arc::clone(shared)));
        }
    }
}

/// An archiver works without its endpoint, so a port that is in use does not end it.
async fn run(address: SocketAddr, token: Arc<String>, shared: Shared) {
    let places = Arc::new(Semaphore::new(MOST_AT_ONCE));
    loop {
        let Ok(listener) = TcpListener::bind(address).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let (token, shared) = (Arc::clone(&token), Arc::clone(&shared));
            tokio::spawn(async move {
                let _ = tokio::time::timeout(PATIENCE, serve(stream, &token, &shared)).await;
                drop(place);
            });
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn serve(mut stream: TcpStream, token: &str, shared: &Shared) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|it| it == b"\r\n\r\n") {
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).await?;
        request.extend_from_slice(&buffer[..count]);
        if count == 0 || request.len() > LONGEST_REQUEST {
            return Ok(());
        }
    }
    let (status, body) = answer(&String::from_utf8_lossy(&request), token, shared);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await
}

fn answer(request: &str, token: &str, shared: &Shared) -> (&'static str, String) {
    let mut lines = request.lines();
    let first = lines.next().unwrap_or_default();
    let shown = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().to_owned())
    });
    let shown = shown.unwrap_or_default();
    if verify_slices_are_equal(shown.as_bytes(), token.as_bytes()).is_err() {
        return ("401 Unauthorized", String::new());
    }
    if first.split(' ').take(2).ne(["GET", PAGE]) {
        return ("404 Not Found", String::new());
    }
    ("200 OK", serde_json::to_string(&*lock(shared)).expect("text and numbers are always JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(request: &str) -> (&'static str, String) {
        let shared = Shared::default();
        lock(&shared).archived_revision = Some(7);
        answer(request, "Bearer secret", &shared)
    }

    #[test]
    fn only_a_request_with_the_token_gets_the_progress() {
        let page = |header: &str| to(&format!("GET {PAGE} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n"));
        assert_eq!(
            page("authorization: Bearer secret"),
            ("200 OK", r#"{"archivedRevision":7,"copyDue":false}"#.into())
        );
        for header in [
            "",
            "Authorization: Bearer secre",
            "Authorization: Bearer secret2",
            "Authorization: secret",
            "X: Bearer secret",
        ] {
            assert_eq!(page(header), ("401 Unauthorized", String::new()), "{header}");
        }
    }

    #[test]
    fn there_is_one_page() {
        for line in ["POST /progress", "GET /", "GET /progress/", ""] {
            let request = format!("{line} HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n");
            assert_eq!(to(&request).0, "404 Not Found", "{line}");
        }
    }
}
