//! TLS of a cluster: which ports use it, what each Secret has to hold, and what the certificates in there say.
//!
//! Peers and clients have separate authorities: etcd's peer port accepts every certificate of its authority, so with one for
//! both, the certificate of an application would open it.

mod certificate;
mod expiry;
mod judgement;
mod profile;
mod trust;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::api;
use crate::etcd_config::{CLIENT_PORT, PEER_PORT};

pub use crate::api::KeyAlgorithm;
pub use certificate::{Authority, Certificate, Flaw, fingerprint, read, read_next, subject};
pub(crate) use expiry::is_urgent;
pub use expiry::{Expiring, Urgency, expiring, renewals};
pub use judgement::{Cause, State, judge, next_renewal};
pub use profile::{Profile, Profiles, Usage, chosen_profiles, profiles};
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

/// How the ports of a member are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transport {
    #[serde(default)]
    pub clients: Scheme,
    #[serde(default)]
    pub peers: Scheme,
}

impl Transport {
    /// What a spec asks for.
    pub fn asked_for(tls: &api::Tls) -> Self {
        Self {
            clients: Scheme::of(tls.enabled && tls.client_tls_enabled),
            peers: Scheme::of(tls.enabled && tls.peer_tls_enabled),
        }
    }

    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.clients, self.peers) {
            (Scheme::Https, Scheme::Https) => "clients and members use TLS",
            (Scheme::Https, Scheme::Http) => "clients use TLS, members talk to each other in plain text",
            (Scheme::Http, Scheme::Https) => "members use TLS, clients connect in plain text",
            (Scheme::Http, Scheme::Http) => "all connections are plain text",
        })
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

    pub fn is_needed(self, transport: Transport) -> bool {
        match self {
            Self::PeerAuthority | Self::Peer => transport.peers.is_tls(),
            Self::ClientAuthority | Self::Server | Self::Operator | Self::Client => {
                transport.clients.is_tls()
            }
        }
    }
}
