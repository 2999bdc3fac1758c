//! What is known when etcd is about to be started.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::etcd_config::host_of;
use crate::order::BootstrapOrder;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The pod, which is also the member's name.
    pub name: String,
    pub peer_url: String,
    pub cluster_uid: String,
    /// A former cluster whose volumes may be taken over, by its UID.
    pub adopts: Option<String>,
    /// Which attempt this pod was made for; none if its maker did not say.
    pub attempt: Option<u32>,
    pub volume: Volume,
    /// Orders that etcd was started by, on this volume or in this pod. The pod remembers too, because a volume
    /// can be wiped under it.
    pub used_nonces: BTreeSet<String>,
    /// Orders that a cluster was seen to have formed by, since this pod began to look.
    pub void_nonces: BTreeSet<String>,
    pub order: Order,
    /// One per known address, except our own.
    pub peers: Vec<Peer>,
    /// Where the names of started members lead, once this one could join them.
    pub names: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Since when the members have listed this one as added. Learners take turns, but not for ever.
    pub added_for: Duration,
    /// How many entries a member applies before its log does not begin with the first one any more.
    pub whole_log_until: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// A write-ahead log is there, by etcd's own test.
    pub has_log: bool,
    /// Something else is there where etcd keeps its data.
    pub has_remains: bool,
    pub identity: Option<Identity>,
}

/// Whose data a volume holds. It lies beside the data and is written before etcd first starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    pub cluster_uid: String,
    pub name: String,
    #[serde(default)]
    pub used_nonces: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    None,
    Malformed(String),
    There(BootstrapOrder),
}

/// Another pod, or whatever lives at an address that was said to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    /// Its peer URL, if its agent has ever told us.
    pub url: Option<String>,
    /// Since when we have known that an agent or a forming etcd is there.
    pub met_for: Duration,
    /// Its agent waits for nothing but the first one to start.
    pub ready: bool,
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// etcd runs there.
    Members(MemberList),
    /// An agent waits there, so there is no log on its volume.
    Waiting,
    /// Nothing listens there.
    Refused,
    /// Nothing came back in time.
    Silent,
    /// Something came back that makes no sense.
    Unknown,
}

/// One member's own view of the membership. It may lag behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberList {
    pub cluster_id: u64,
    pub members: Vec<Member>,
    /// It was read right after the same member served a linearizable read, so it does not lag.
    pub confirmed: bool,
    /// How many entries the member had applied then; none if that is not known.
    pub applied: Option<u64>,
}

/// As `GET /members` on the peer port gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub id: u64,
    #[serde(default)]
    pub name: String,
    #[serde(default, rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    #[serde(default, rename = "clientURLs")]
    pub client_urls: Vec<String>,
    #[serde(default)]
    pub is_learner: bool,
}

/// How far a listed member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has published its client URLs.
    Started,
    /// A bootstrap order named it, but it has not published itself. It may have voted all the same.
    Named,
    /// It was added and never started.
    Added,
}

impl Member {
    pub fn standing(&self) -> Standing {
        match (self.name.is_empty(), self.client_urls.is_empty()) {
            (_, false) => Standing::Started,
            (false, true) => Standing::Named,
            (true, true) => Standing::Added,
        }
    }
}

impl MemberList {
    pub fn at(&self, peer_url: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.peer_urls.iter().any(|url| url == peer_url))
    }

    pub fn standing_of(&self, peer_url: &str) -> Option<Standing> {
        self.at(peer_url).map(Member::standing)
    }

    /// The names or addresses of those that have ever started, so that their names exist.
    pub fn started_hosts(&self) -> impl Iterator<Item = &str> {
        let started = self.members.iter().filter(|member| member.standing() == Standing::Started);
        started.filter_map(|member| host_of(member.peer_urls.first()?))
    }

    /// Whether this is what a member of a cluster that has not formed yet says: it was started by this very order,
    /// and nobody has published itself. Whoever published itself had a quorum behind it.
    pub fn is_forming(&self, order: &BootstrapOrder) -> bool {
        self.members.len() == order.members.len()
            && self.members.iter().all(|member| {
                member.standing() == Standing::Named
                    && order.members.get(&member.name).is_some_and(|url| member.peer_urls == [url.as_str()])
            })
    }
}
