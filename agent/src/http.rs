//! As much HTTP as it takes to ask a peer one question.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A list of nine members has two kilobytes.
const LONGEST_ANSWER: usize = 1 << 20;
const CONNECT: Duration = Duration::from_millis(300);

#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    headers: String,
    pub body: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing listens there.
    Refused,
    /// Nothing came back in time, or the connection broke.
    Silent,
    /// What came back is no HTTP.
    Nonsense,
}

/// Asks and reads the answer within the deadline.
///
/// The answer ends where it says so. etcd's peer port may take five seconds to close a connection after that.
pub fn get(address: SocketAddr, path: &str, deadline: Duration) -> Result<Response, Failure> {
    let until = Instant::now() + deadline;
    let mut stream = connect(address, path, deadline).map_err(|error| {
        let refused = error.kind() == io::ErrorKind::ConnectionRefused;
        if refused { Failure::Refused } else { Failure::Silent }
    })?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || bytes.len() > LONGEST_ANSWER {
            return Err(Failure::Silent);
        }
        let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer));
        let count = read.map_err(|_| Failure::Silent)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        match parse(&text, count == 0) {
            Some(response) => return Ok(response),
            None if count == 0 => return Err(Failure::Nonsense),
            None => (),
        }
    }
}

fn connect(address: SocketAddr, path: &str, deadline: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, deadline.min(CONNECT))?;
    stream.set_write_timeout(Some(deadline))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// None if it is not all there yet, or never will be.
fn parse(text: &str, closed: bool) -> Option<Response> {
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let mut words = first.split(' ');
    words.next().filter(|protocol| protocol.starts_with("HTTP/1."))?;
    let status = words.next()?.parse().ok()?;
    let mut response = Response { status, headers: headers.to_owned(), body: String::new() };
    let length = response.header("Content-Length").and_then(|length| length.parse().ok());
    let chunked = response.header("Transfer-Encoding") == Some("chunked");
    response.body = match length {
        _ if chunked => whole(rest)?,
        Some(length) => rest.get(..length)?.to_owned(),
        None => closed.then(|| rest.to_owned())?,
    };
    Some(response)
}

/// Puts a body together that was sent in pieces, each behind its length.
fn whole(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, after) = rest.split_once("\r\n")?;
        match usize::from_str_radix(length.trim(), 16).ok()? {
            0 => return Some(body),
            length => {
                body.push_str(after.get(..length)?);
                rest = after.get(length..)?.strip_prefix("\r\n")?;
            }
        }
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const SOON: Duration = Duration::from_millis(300);

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        (listener, address)
    }

    fn answering(text: &'static str) -> SocketAddr {
        let (listener, address) = listener();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody asks");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(text.as_bytes());
        });
        address
    }

    #[test]
    fn an_answer_has_a_status_headers_and_a_body() {
        let address = answering("HTTP/1.0 200 OK\r\nx-etcd-cluster-id: cdf8\r\n\r\n[]\n");
        let response = get(address, "/members", SOON).expect("it answers");
        assert_eq!((response.status, response.body.as_str()), (200, "[]\n"));
        assert_eq!(response.header("X-Etcd-Cluster-ID"), Some("cdf8"));
        assert_eq!(response.header("X-Other"), None);
    }

    #[test]
    fn an_answer_ends_where_it_says_so_even_if_the_connection_stays_open() {
        let in_pieces =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n[1, \r\n2\r\n2]\r\n0\r\n\r\n";
        for text in ["HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n[1, 2]", in_pieces] {
            let (listener, address) = listener();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("somebody asks");
                stream.write_all(text.as_bytes()).expect("it listens");
                stream
            });
            assert_eq!(get(address, "/", SOON).expect("it answers").body, "[1, 2]");
            drop(server.join());
        }
    }

    #[test]
    fn half_an_answer_is_none() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n[1, 2]",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n[1, \r\n",
        ] {
            assert_eq!(get(answering(text), "/", SOON), Err(Failure::Nonsense), "{text}");
        }
    }

    #[test]
    fn what_is_no_http_is_nonsense() {
        for text in ["", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 two hundred\r\n\r\n"] {
            assert_eq!(get(answering(text), "/", SOON), Err(Failure::Nonsense), "{text}");
        }
    }

    #[test]
    fn a_closed_port_refuses_and_an_open_one_may_stay_silent() {
        let (silent, address) = listener();
        assert_eq!(get(address, "/", SOON), Err(Failure::Silent));
        drop(silent);
        assert_eq!(get(address, "/", SOON), Err(Failure::Refused));
    }
}
