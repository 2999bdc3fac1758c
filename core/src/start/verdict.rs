//! What may be decided about a start: the words that log, probe page and status share.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::evidence::Member;
use crate::order::BootstrapOrder;
use crate::recovery::RecoveryOrder;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the data that is there. `adopt`: it comes from a former cluster that this one takes over.
    Restart {
        adopt: bool,
    },
    /// With the data that is there, and without the other members, for this one start.
    Force {
        order: RecoveryOrder,
    },
    /// As the member that these members have added. `fetch_until`: they have applied so many entries that they will
    /// send a snapshot, and etcd must have received it before it is started to serve.
    Join {
        members: Vec<Member>,
        fetch_until: Option<u64>,
    },
    /// Together with the others that the order names.
    Bootstrap {
        order: BootstrapOrder,
    },
    Wait(Waiting),
    Refuse(Refusal),
}

/// Why etcd is not started yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum Waiting {
    /// The agent has only just begun to look.
    Looking,
    /// The members list this one as started, but its log is gone. It has to be replaced.
    DataLost {
        member: String,
    },
    /// The members list this one by name, but it never published itself, and now it is too late to be sure that
    /// it did not vote. It has to be replaced.
    NeverPublished {
        member: String,
    },
    /// A cluster answers, and this pod is not one of its members.
    NotAMember,
    /// This pod is listed as added, but nobody who said so has a quorum behind it.
    NoQuorum,
    /// Its own certificates cannot be read, so it can ask nobody, and etcd would not start.
    Certificates {
        error: String,
    },
    /// Two clusters claim this pod.
    ClustersDisagree {
        clusters: Vec<String>,
    },
    /// Other learners start first.
    Turn {
        before: Vec<String>,
    },
    /// Names of members do not lead to them yet.
    Names {
        astray: Vec<String>,
    },
    /// etcd runs, but only to receive what the others have.
    Fetching {
        applied: u64,
        wanted: u64,
    },
    /// No cluster answers, and there is no order to form one.
    NoOrder,
    MalformedOrder {
        error: String,
    },
    /// The order is not meant for this pod.
    OrderForOthers {
        why: String,
    },
    /// The order may not be followed yet.
    OrderNotArmed,
    /// A cluster has formed by this order, so it is too late to follow it, even if nobody answers now.
    OrderVoid {
        nonce: String,
    },
    /// etcd was started by this order before, and there is no log: that start failed early, or the data was removed.
    OrderUsed {
        nonce: String,
    },
    /// The order names pods that are not there yet.
    PeersMissing {
        missing: Vec<String>,
    },
    /// The pods of the order are there; this one starts first.
    FirstStarter {
        first: String,
    },
    /// The pods of the order are there and this one starts first, but these have not found all others yet.
    OthersNotReady {
        others: Vec<String>,
    },
}

/// Why etcd will not be started until somebody does something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    ForeignCluster { found: String, expected: String },
    ForeignPod { found: String, expected: String },
    UnknownOwner,
}

impl Waiting {
    /// The word for it, which is also its `reason` in a report.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Looking => "Looking",
            Self::DataLost { .. } => "DataLost",
            Self::NeverPublished { .. } => "NeverPublished",
            Self::NotAMember => "NotAMember",
            Self::NoQuorum => "NoQuorum",
            Self::Certificates { .. } => "Certificates",
            Self::ClustersDisagree { .. } => "ClustersDisagree",
            Self::Turn { .. } => "Turn",
            Self::Names { .. } => "Names",
            Self::Fetching { .. } => "Fetching",
            Self::NoOrder => "NoOrder",
            Self::MalformedOrder { .. } => "MalformedOrder",
            Self::OrderForOthers { .. } => "OrderForOthers",
            Self::OrderNotArmed => "OrderNotArmed",
            Self::OrderVoid { .. } => "OrderVoid",
            Self::OrderUsed { .. } => "OrderUsed",
            Self::PeersMissing { .. } => "PeersMissing",
            Self::FirstStarter { .. } => "FirstStarter",
            Self::OthersNotReady { .. } => "OthersNotReady",
        }
    }
}

impl Refusal {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ForeignCluster { .. } => "ForeignCluster",
            Self::ForeignPod { .. } => "ForeignPod",
            Self::UnknownOwner => "UnknownOwner",
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Looking => f.write_str("a first response from the other pods"),
            Self::DataLost { member } => {
                write!(f, "the operator to replace this member ({member}): its data is lost")
            }
            Self::NeverPublished { member } => {
                write!(
                    f,
                    "the operator to replace this member ({member}): the cluster bootstrapped without it"
                )
            }
            Self::NotAMember => f.write_str("the operator to add this pod to the cluster"),
            Self::NoQuorum => f.write_str("a member with quorum to confirm that this pod was added"),
            Self::Certificates { error } => write!(f, "usable certificates: {error}"),
            Self::ClustersDisagree { clusters } => {
                write!(f, "only one cluster to list this member; listed by clusters: {}", clusters.join(", "))
            }
            Self::Turn { before } => write!(f, "other learners to start first: {}", before.join(", ")),
            Self::Names { astray } => {
                write!(f, "DNS to return the current addresses of: {}", astray.join(", "))
            }
            Self::Fetching { applied, wanted } => {
                write!(f, "data from the other members: {applied} of {wanted} entries received")
            }
            Self::NoOrder => f.write_str("a member of the cluster to respond, or a bootstrap order"),
            Self::MalformedOrder { error } => write!(f, "a valid bootstrap order: {error}"),
            Self::OrderForOthers { why } => write!(f, "a bootstrap order for this pod: {why}"),
            Self::OrderNotArmed => f.write_str("the operator to allow the pods to bootstrap"),
            Self::OrderVoid { nonce } => {
                write!(f, "a member of the cluster that bootstrap order {nonce} created to respond")
            }
            Self::OrderUsed { nonce } => {
                write!(
                    f,
                    "a new bootstrap order: etcd already started with order {nonce}, but the volume has no write-ahead log"
                )
            }
            Self::PeersMissing { missing } => {
                write!(f, "pods to start before bootstrap: {}", missing.join(", "))
            }
            Self::FirstStarter { first } => write!(f, "etcd in {first} to start first"),
            Self::OthersNotReady { others } => {
                write!(f, "pods to discover each other before bootstrap: {}", others.join(", "))
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignCluster { found, expected } => write!(
                f,
                "the volume holds data of another cluster (UID {found}, expected {expected}): delete the volume, or let \
                 this cluster adopt it"
            ),
            Self::ForeignPod { found, expected } => {
                write!(f, "the volume holds data of {found}, but this pod is {expected}: put the original volume back")
            }
            Self::UnknownOwner => f.write_str(
                "the volume holds etcd data of unknown origin, which this operator did not write: delete the volume if \
                 you do not need the data",
            ),
        }
    }
}
