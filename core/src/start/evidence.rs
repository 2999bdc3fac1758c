//! What is known when etcd is about to be started.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::member::{MemberProgress, PeerAddress};
use crate::order::BootstrapOrder;
use crate::recovery::RecoveryOrder;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The pod, which is also the member's name.
    pub name: String,
    pub peer_address: PeerAddress,
    pub cluster_uid: String,
    /// The UID of a previous cluster whose volumes this one adopts.
    pub adopts: Option<String>,
    /// The attempt that this pod was created for; none if its template does not say.
    pub attempt: Option<u32>,
    pub volume: Volume,
    /// Orders that etcd was started with, on this volume or in this pod. The pod remembers too, because a volume
    /// can be wiped under it.
    pub used_nonces: BTreeSet<String>,
    /// Orders by which a cluster has bootstrapped, as this process of the agent has seen.
    pub void_nonces: BTreeSet<String>,
    pub order: Order,
    /// The order for a recovery, if there is one that can be read.
    pub recovery: Option<RecoveryOrder>,
    /// One per known address, except our own.
    pub peers: Vec<Peer>,
    /// The addresses that DNS returns for the names of started members, once this one could join them.
    pub names: BTreeMap<String, BTreeSet<IpAddr>>,
    /// How long the members have listed this one as added. Learners take turns, but not for ever.
    pub added_for: Duration,
    /// How many entries a member applies before it drops the first ones of its log.
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
    /// The recovery in which this member continued without the others, if it did so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    None,
    Malformed(String),
    There(BootstrapOrder),
}

/// Another pod, or whatever has the address of one now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The IP address of the pod.
    pub address: IpAddr,
    /// The address of its member, if its agent has ever reported it.
    pub peer_address: Option<PeerAddress>,
    /// How long ago an agent without data, or an etcd that bootstraps by our order, first responded there; none if
    /// that never happened.
    pub met_for: Option<Duration>,
    /// Its agent waits for nothing but the first pod to start.
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
    /// Something responds, but not whether it has data: an agent whose reason for waiting this version does not know, or
    /// whose etcd receives data; or no agent at all.
    Unknown,
}

/// The membership as one member has it, which can be stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberList {
    pub cluster_id: u64,
    pub members: Vec<Member>,
    /// It was read right after the same member served a linearizable read, so it is not stale.
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

impl Evidence {
    pub fn lists(&self) -> impl Iterator<Item = &MemberList> {
        self.peers.iter().filter_map(|peer| match &peer.answer {
            Answer::Members(list) => Some(list),
            Answer::Waiting | Answer::Refused | Answer::Silent | Answer::Unknown => None,
        })
    }
}

impl Member {
    pub fn progress(&self) -> MemberProgress {
        MemberProgress::of(&self.name, &self.client_urls)
    }

    pub fn peer_addresses(&self) -> impl Iterator<Item = PeerAddress> {
        self.peer_urls.iter().filter_map(|url| PeerAddress::parse(url))
    }

    pub fn is_at(&self, address: &PeerAddress) -> bool {
        self.peer_addresses().any(|own| own == *address)
    }
}

impl MemberList {
    pub fn at(&self, address: &PeerAddress) -> Option<&Member> {
        self.members.iter().find(|member| member.is_at(address))
    }

    pub fn progress_of(&self, address: &PeerAddress) -> Option<MemberProgress> {
        self.at(address).map(Member::progress)
    }

    /// The hosts of members that have ever started, so that their names exist.
    pub fn started_hosts(&self) -> impl Iterator<Item = String> {
        let started = self.members.iter().filter(|member| member.progress() == MemberProgress::Published);
        started.filter_map(|member| Some(member.peer_addresses().next()?.host))
    }

    /// Whether the member is one of a cluster that has not bootstrapped yet: it was started by this very order, and no
    /// member has published itself, for which it needs quorum.
    pub fn is_forming(&self, order: &BootstrapOrder) -> bool {
        self.members.len() == order.members.len()
            && self.members.iter().all(|member| {
                let listed = order.address_of(&member.name);
                member.progress() == MemberProgress::Listed
                    && listed.is_some_and(|listed| member.peer_urls.len() == 1 && member.is_at(&listed))
            })
    }
}
