//! TLS of a cluster: which ports use it, what each Secret has to hold, and what the certificates in there say.
//!
//! Peers and clients have separate authorities: etcd's peer port accepts every certificate of its authority, so with one for
//! both, the certificate of an application would open it.

mod certificate;
mod expiry;
mod given;
mod issuance;
mod judgement;
mod profile;
mod switch;
mod trust;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::api;
use crate::etcd_config::{CLIENT_PORT, PEER_PORT};

pub use crate::api::KeyAlgorithm;
pub use certificate::{
    Authority, Certificate, Content, Flaw, fingerprint, read, read_given, read_next, subject,
};
pub(crate) use expiry::is_urgent;
pub use expiry::{Expiring, Urgency, expiring, renewals};
pub(crate) use given::wanted_authorities;
pub use given::{
    Chain, Given, Key, Lack, Leaf, Problem, Rejection, Root, Source, Verified, problems, read_leaf,
};
pub use issuance::{Issuance, certificate_resource, certificate_spec};
pub use judgement::{Cause, Copy, State, States, judge, next_renewal};
pub use profile::{Profile, Profiles, Usage, chosen_profiles, profiles};
pub use switch::{Section, Switch, wanted_schemes};
pub(crate) use trust::Rotation;
pub use trust::{KUBELET_REFRESH, Stage, Tally, Trust, is_in_use};

/// The keys of every Secret, as `kubernetes.io/tls` has them.
pub const CERTIFICATE_KEY: &str = "tls.crt";
pub const PRIVATE_KEY: &str = "tls.key";
/// What the other side is checked against. The Secret of an authority has all authorities there that its port trusts: every
/// Secret with a certificate for that port gets the same.
pub const AUTHORITY_KEY: &str = "ca.crt";
/// The successor of an authority, until it signs: only in the Secret of an authority.
pub const NEXT_CERTIFICATE_KEY: &str = "next.crt";
pub const NEXT_PRIVATE_KEY: &str = "next.key";
/// The authorities that a user gives for the certificate of the client port: only in the Secret of the authority of clients.
pub const GIVEN_AUTHORITIES_KEY: &str = "given.crt";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    #[default]
    Http,
    Https,
}

impl Scheme {
    fn of(tls: bool) -> Self {
        if tls { Self::Https } else { Self::Http }
    }

    pub fn is_tls(self) -> bool {
        self == Self::Https
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// How the client port of a member is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientPort {
    #[default]
    Http,
    /// With TLS, and in plain text as well.
    Both,
    Https,
}

impl ClientPort {
    /// What members advertise, and what the operator and etcdctl use.
    pub fn scheme(self) -> Scheme {
        Scheme::of(self.is_tls())
    }

    pub fn is_tls(self) -> bool {
        self != Self::Http
    }
}

impl From<Scheme> for ClientPort {
    fn from(scheme: Scheme) -> Self {
        if scheme.is_tls() { Self::Https } else { Self::Http }
    }
}

/// How the peer port of a member is served, and what it connects to others with. That port serves one scheme only, so members
/// get their certificates before the first of them uses TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerPort {
    #[default]
    Http,
    /// Served in plain text, by a member that has certificates: it can connect to others that use TLS.
    Prepared,
    Https,
}

impl PeerPort {
    /// What it is served with.
    pub fn scheme(self) -> Scheme {
        Scheme::of(self == Self::Https)
    }

    pub fn has_certificates(self) -> bool {
        self != Self::Http
    }
}

impl From<Scheme> for PeerPort {
    fn from(scheme: Scheme) -> Self {
        if scheme.is_tls() { Self::Https } else { Self::Http }
    }
}

/// The schemes of the peer URLs that etcd lists for a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Schemes {
    pub http: bool,
    pub https: bool,
}

impl Schemes {
    pub const BOTH: Self = Self { http: true, https: true };

    pub fn of<'a>(urls: impl Iterator<Item = &'a str>) -> Self {
        let scheme = |url: &str| match url.split_once("://")?.0 {
            "http" => Some(Scheme::Http),
            "https" => Some(Scheme::Https),
            _ => None,
        };
        urls.filter_map(scheme).fold(Self::default(), Self::with)
    }

    pub fn only(scheme: Scheme) -> Self {
        Self::default().with(scheme)
    }

    #[must_use]
    pub fn with(self, scheme: Scheme) -> Self {
        let Self { http, https } = self;
        Self { http: http || scheme == Scheme::Http, https: https || scheme == Scheme::Https }
    }

    pub fn contains(self, scheme: Scheme) -> bool {
        self.with(scheme) == self
    }

    /// Nothing is known of them.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn iter(self) -> impl Iterator<Item = Scheme> {
        [Scheme::Http, Scheme::Https].into_iter().filter(move |scheme| self.contains(*scheme))
    }
}

impl fmt::Display for Schemes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes: Vec<_> = self.iter().map(|scheme| scheme.to_string()).collect();
        f.write_str(&schemes.join(" and "))
    }
}

/// How the ports of a member are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transport {
    #[serde(default)]
    pub clients: ClientPort,
    #[serde(default)]
    pub peers: PeerPort,
}

impl Transport {
    /// Both ports with TLS alone.
    pub const TLS: Self = Self { clients: ClientPort::Https, peers: PeerPort::Https };

    /// What a cluster is created with.
    pub fn asked_for(tls: &api::Tls) -> Self {
        Self::towards(tls, None)
    }

    /// What a spec asks for, on a cluster that has this. Where it says nothing about plain connections of clients, they stay
    /// possible if they are.
    pub fn towards(tls: &api::Tls, in_effect: Option<Self>) -> Self {
        let (clients, peers) = (tls.enabled && tls.client_tls_enabled, tls.enabled && tls.peer_tls_enabled);
        let are_plain = in_effect.is_some_and(|it| it.clients != ClientPort::Https);
        let clients = match tls.plain_clients {
            _ if !clients => ClientPort::Http,
            Some(api::PlainClients::Allow) => ClientPort::Both,
            Some(api::PlainClients::Refuse) => ClientPort::Https,
            None if are_plain => ClientPort::Both,
            None => ClientPort::Https,
        };
        Self { clients, peers: Scheme::of(peers).into() }
    }

    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// What needs the certificates of both.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        Self { clients: self.clients.max(other.clients), peers: self.peers.max(other.peers) }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::TLS {
            return f.write_str("clients and members use TLS");
        }
        if self.is_plain() {
            return f.write_str("all connections are plain text");
        }
        let clients = match self.clients {
            ClientPort::Http => "clients connect in plain text",
            ClientPort::Both => "clients use TLS or plain text",
            ClientPort::Https => "clients use TLS",
        };
        match self.peers {
            PeerPort::Https => write!(f, "members use TLS, {clients}"),
            PeerPort::Http => write!(f, "{clients}, members talk to each other in plain text"),
            PeerPort::Prepared => {
                write!(f, "{clients}, members have certificates and talk to each other in plain text")
            }
        }
    }
}

/// What a Secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Purpose {
    PeerAuthority,
    ClientAuthority,
    /// For the peer port, and for connections to the other members.
    Peer,
    /// For the client port.
    Server,
    /// Of the operator, and of etcdctl in the pods of members.
    Operator,
    /// Of applications.
    Client,
}

impl Purpose {
    /// Authorities come first: the others are issued by them.
    pub const ALL: [Self; 6] =
        [Self::PeerAuthority, Self::ClientAuthority, Self::Peer, Self::Server, Self::Operator, Self::Client];

    /// Its part of the Secret's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::PeerAuthority => "peer-ca",
            Self::ClientAuthority => "client-ca",
            Self::Peer => "peer-tls",
            Self::Server => "server-tls",
            Self::Operator => "operator-tls",
            Self::Client => "client-tls",
        }
    }

    /// Where the agent, etcd and etcdctl find it in a pod, below [`crate::agent::path::TLS`]; none for what no pod has.
    pub fn directory(self) -> Option<&'static str> {
        match self {
            Self::Peer => Some("peer"),
            Self::Server => Some("server"),
            Self::Operator => Some("operator"),
            Self::PeerAuthority | Self::ClientAuthority | Self::Client => None,
        }
    }

    /// The port on which members show this certificate, and trust the authorities beside it.
    pub fn port(self) -> Option<u16> {
        match self {
            Self::Peer => Some(PEER_PORT),
            Self::Server => Some(CLIENT_PORT),
            Self::PeerAuthority | Self::ClientAuthority | Self::Operator | Self::Client => None,
        }
    }

    /// None for an authority, which signs itself.
    pub fn issuer(self) -> Option<Self> {
        match self {
            Self::PeerAuthority | Self::ClientAuthority => None,
            Self::Peer => Some(Self::PeerAuthority),
            Self::Server | Self::Operator | Self::Client => Some(Self::ClientAuthority),
        }
    }

    /// Whether a member with this transport shows it on a port.
    pub fn is_shown(self, transport: Transport) -> bool {
        match self {
            Self::Peer => transport.peers.scheme().is_tls(),
            Self::Server => transport.clients.is_tls(),
            Self::PeerAuthority | Self::ClientAuthority | Self::Operator | Self::Client => false,
        }
    }

    pub fn is_needed(self, transport: Transport) -> bool {
        match self {
            Self::PeerAuthority | Self::Peer => transport.peers.has_certificates(),
            Self::ClientAuthority | Self::Server | Self::Operator | Self::Client => {
                transport.clients.is_tls()
            }
        }
    }
}
