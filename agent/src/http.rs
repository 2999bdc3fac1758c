//! As much HTTP as it takes to ask a peer one question.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::tls::Tls;

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
    /// It listens and accepts no request from here, or is not what may be asked: this is why.
    Rejected(String),
}

/// Asks and reads the answer within the deadline.
///
/// The answer ends where it says so. etcd's peer port may take five seconds to close a connection after that.
pub fn get(address: SocketAddr, path: &str, deadline: Duration) -> Result<Response, Failure> {
    ask(connect(address, deadline)?, address, path)
}

/// The same over TLS. The handshake is part of it.
pub fn get_over_tls(
    tls: &Tls,
    address: SocketAddr,
    path: &str,
    deadline: Duration,
) -> Result<Response, Failure> {
    ask(tls.over(connect(address, deadline)?).map_err(failure)?, address, path)
}

/// Whether anything listens there; nothing is sent.
pub fn knock(address: SocketAddr, deadline: Duration) -> Result<(), Failure> {
    connect(address, deadline).map(drop)
}

fn connect(address: SocketAddr, deadline: Duration) -> Result<Timed, Failure> {
    let until = Instant::now() + deadline;
    let stream = TcpStream::connect_timeout(&address, deadline.min(CONNECT)).map_err(|error| {
        let refused = error.kind() == io::ErrorKind::ConnectionRefused;
        if refused { Failure::Refused } else { failure(error) }
    })?;
    Ok(Timed { stream, until })
}

fn ask(mut stream: impl Read + Write, address: SocketAddr, path: &str) -> Result<Response, Failure> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failure)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).map_err(failure)?;
        bytes.extend_from_slice(&buffer[..count]);
        if bytes.len() > LONGEST_ANSWER {
            return Err(Failure::Silent);
        }
        match parse(&String::from_utf8_lossy(&bytes), count == 0) {
            Some(response) => return Ok(response),
            // So etcd treats one that is not at an address of the names in its certificate.
            None if bytes.is_empty() => {
                return Err(Failure::Rejected("it closed the connection without a response".into()));
            }
            None if count == 0 => return Err(Failure::Nonsense),
            None => (),
        }
    }
}

/// TLS reports what the other side does wrong, or holds against this one, as invalid data.
fn failure(error: io::Error) -> Failure {
    let invalid = error.kind() == io::ErrorKind::InvalidData;
    if invalid { Failure::Rejected(error.to_string()) } else { Failure::Silent }
}

/// A connection that fails from the deadline on, however little it transfers at a time.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
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
mod over_tls;
#[cfg(test)]
mod tests;
