//! How a member in etcd's list is recognised, and how far it has come.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest size of a cluster, so every ordinal is lower.
pub const MAX_SIZE: u8 = 9;

/// Host and port of a peer URL. They identify a member; the scheme does not, because it changes with TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress {
    pub host: String,
    pub port: u16,
}

impl PeerAddress {
    /// None without a host or a port; etcd lists no such URL.
    pub fn parse(url: &str) -> Option<Self> {
        let (_scheme, authority) = url.split_once("://")?;
        let (host, port) = authority.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.strip_suffix(']')?,
            None => Some(host).filter(|host| !host.contains(':'))?,
        };
        let port = port.parse().ok()?;
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// How far a listed member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberProgress {
    /// Added to the cluster and never started.
    Added,
    /// Listed by the bootstrap order. It has not published itself, but it might have voted.
    Listed,
    /// It has published its client URLs.
    Published,
}

impl MemberProgress {
    /// Client URLs prove that a member has run, whatever its name is.
    pub fn of(name: &str, client_urls: &[String]) -> Self {
        match (name.is_empty(), client_urls.is_empty()) {
            (_, false) => Self::Published,
            (false, true) => Self::Listed,
            (true, true) => Self::Added,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> PeerAddress {
        PeerAddress { host: host.into(), port }
    }

    #[test]
    fn the_scheme_is_not_part_of_an_address() {
        for scheme in ["http", "https", "unix"] {
            let parsed = PeerAddress::parse(&format!("{scheme}://kv-0.kv-peer.ns.svc:2380"));
            assert_eq!(parsed, Some(address("kv-0.kv-peer.ns.svc", 2380)));
        }
        assert_ne!(PeerAddress::parse("http://kv-0:2380"), PeerAddress::parse("http://kv-0:2379"));
        assert_ne!(PeerAddress::parse("http://kv-0:2380"), PeerAddress::parse("http://kv-1:2380"));
    }

    #[test]
    fn an_ipv6_address_is_in_brackets_in_a_url_and_nowhere_else() {
        let parsed = PeerAddress::parse("http://[fd00::1]:2380").expect("an address");
        assert_eq!(parsed, address("fd00::1", 2380));
        assert_eq!(parsed.to_string(), "[fd00::1]:2380");
        assert_eq!(address("kv-0", 2380).to_string(), "kv-0:2380");
    }

    #[test]
    fn a_text_without_host_or_port_is_no_address() {
        for text in
            ["", "kv-0", "kv-0:2380", "http://kv-0", "http://:2380", "http://kv-0:etcd", "http://fd00::1"]
        {
            assert_eq!(PeerAddress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_member_that_has_published_client_urls_has_run_even_without_a_name() {
        let urls = ["http://kv-0:2379".to_owned()];
        assert_eq!(MemberProgress::of("kv-0", &urls), MemberProgress::Published);
        assert_eq!(MemberProgress::of("", &urls), MemberProgress::Published);
        assert_eq!(MemberProgress::of("kv-0", &[]), MemberProgress::Listed);
        assert_eq!(MemberProgress::of("", &[]), MemberProgress::Added);
    }
}
