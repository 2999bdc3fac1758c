//! Servers on loopback with real certificates.

use std::net::Shutdown;
use std::sync::Arc;

use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

use super::tests::{SOON, answering, listener};
use super::*;
use crate::tls::tests::{Authority, Member, PEERS};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nX-Etcd-Cluster-ID: cdf8\r\nContent-Length: 2\r\n\r\n[]";

/// As etcd with `--peer-client-cert-auth`: with the certificates of a member, and only for clients that have one of its
/// authority. It sends this to each, and closes.
fn serving(member: &Member, version: &'static SupportedProtocolVersion, answer: &'static str) -> SocketAddr {
    let provider = Arc::new(default_provider());
    let mut authorities = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(member.file(AUTHORITY_KEY)).expect("a certificate");
    authorities.add(authority).expect("an authority");
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version that there is")
        .with_client_cert_verifier(clients.build().expect("a verifier"))
        .with_single_cert(
            vec![CertificateDer::from_pem_file(member.file(CERTIFICATE_KEY)).expect("a certificate")],
            PrivateKeyDer::from_pem_file(member.file(PRIVATE_KEY)).expect("a key"),
        )
        .expect("a certificate with its key");
    let (listener, address) = listener();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody asks");
        let connection = ServerConnection::new(Arc::new(config)).expect("a connection");
        let mut stream = StreamOwned::new(connection, stream);
        let mut request = [0; 1024];
        if stream.read(&mut request).is_ok() {
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        // What was sent arrives only if nothing is left unread.
        let _ = stream.sock.shutdown(Shutdown::Write);
        let _ = io::copy(&mut stream.sock, &mut io::sink());
    });
    address
}

fn ask(member: &Member, address: SocketAddr) -> Result<Response, Failure> {
    get_over_tls(&member.tls().expect("certificates"), address, "/members", SOON)
}

fn rejected(asked: Result<Response, Failure>) -> String {
    match asked {
        Err(Failure::Rejected(why)) => why,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn a_member_of_the_same_cluster_answers() {
    let authority = Authority::generate();
    let (server, client) = (Member::new(&authority, PEERS), Member::new(&authority, PEERS));
    for version in [&TLS12, &TLS13] {
        let response = ask(&client, serving(&server, version, ANSWER)).expect("it answers");
        assert_eq!((response.status, response.body.as_str()), (200, "[]"));
        assert_eq!(response.header("X-Etcd-Cluster-ID"), Some("cdf8"));
    }
}

#[test]
fn nobody_else_is_asked() {
    let authority = Authority::generate();
    let (member, other) = (Member::new(&authority, PEERS), Member::new(&authority, "other-peer.ns.svc"));
    let foreign = Member::new(&Authority::generate(), PEERS);
    for version in [&TLS12, &TLS13] {
        let why = rejected(ask(&member, serving(&foreign, version, ANSWER)));
        assert_eq!(why, "invalid peer certificate: BadSignature");
        let why = rejected(ask(&member, serving(&other, version, ANSWER)));
        assert!(why.contains("not valid for name"), "{why}");
    }
}

/// In TLS 1.3 the client only learns of it when it reads.
#[test]
fn what_does_not_accept_our_certificate_is_not_absent() {
    let authority = Authority::generate();
    let (server, client) = (Member::new(&authority, PEERS), Member::new(&Authority::generate(), PEERS));
    std::fs::copy(server.file(AUTHORITY_KEY), client.file(AUTHORITY_KEY)).expect("it is there");
    for version in [&TLS12, &TLS13] {
        let why = rejected(ask(&client, serving(&server, version, ANSWER)));
        assert!(why.contains("received fatal alert"), "{why}");
    }
}

/// etcd does that to a client that is not at an address of the names in its certificate.
#[test]
fn what_closes_the_connection_after_the_handshake_is_not_absent() {
    let authority = Authority::generate();
    let (server, client) = (Member::new(&authority, PEERS), Member::new(&authority, PEERS));
    let why = rejected(ask(&client, serving(&server, &TLS13, "")));
    assert_eq!(why, "it closed the connection without a response");
}

#[test]
fn what_speaks_no_tls_is_not_absent() {
    let member = Member::new(&Authority::generate(), PEERS);
    for text in [ANSWER, "SSH-2.0-OpenSSH\r\n"] {
        let why = rejected(ask(&member, answering(text)));
        assert!(why.contains("corrupt message"), "{why}");
    }
}

#[test]
fn nothing_is_waited_for_longer_than_the_deadline() {
    let authority = Authority::generate();
    let (server, client) = (Member::new(&authority, PEERS), Member::new(&authority, PEERS));
    let (silent, never_answers) = listener();
    let (drips, bit_by_bit) = listener();
    std::thread::spawn(move || {
        let (mut stream, _) = drips.accept().expect("somebody asks");
        // The beginning of a long record, and then as little as possible of it.
        let record = [&[22, 3, 3, 0x40, 0], [0; 100].as_slice()].concat();
        for byte in record {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(SOON / 10);
        }
    });
    let half = serving(&server, &TLS13, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n[1, 2]");
    assert_eq!(ask(&client, half), Err(Failure::Nonsense));
    for address in [never_answers, bit_by_bit] {
        let began = Instant::now();
        assert_eq!(ask(&client, address), Err(Failure::Silent));
        assert!(began.elapsed() < SOON * 2, "{:?}", began.elapsed());
    }
    drop(silent);
    assert_eq!(ask(&client, never_answers), Err(Failure::Refused));
}
