use std::net::{Ipv4Addr, TcpListener};

use super::*;

pub const SOON: Duration = Duration::from_millis(300);

pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

pub fn answering(text: &'static str) -> SocketAddr {
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
    let in_pieces = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n[1, \r\n2\r\n2]\r\n0\r\n\r\n";
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
    for text in ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 two hundred\r\n\r\n"] {
        assert_eq!(get(answering(text), "/", SOON), Err(Failure::Nonsense), "{text}");
    }
    assert!(matches!(get(answering(""), "/", SOON), Err(Failure::Rejected(_))));
}

#[test]
fn a_closed_port_refuses_and_an_open_one_may_stay_silent() {
    let (silent, address) = listener();
    assert_eq!(get(address, "/", SOON), Err(Failure::Silent));
    drop(silent);
    assert_eq!(get(address, "/", SOON), Err(Failure::Refused));
}
