//! What a run can find, as types: a test names the symptom that it expects and does not depend on words.

use std::fmt;

use etcd_operator_core::observed::{MemberId, Ordinal};
use etcd_operator_core::plan::Plan;
use etcd_operator_core::tls::Purpose;

use crate::agreement::Contradiction;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    Violated(Violation),
    NotConverged {
        wrong: Vec<Wrong>,
        plan: Plan,
    },
    WrongEnd(Vec<Wrong>),
    /// So many pods never got the wanted form.
    NotRolled,
}

/// What must hold at every tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing that was acknowledged is lost.
    Data,
    /// An EtcdCluster has one etcd cluster, for ever.
    Identity,
    /// The operator removes nothing that is needed.
    Service,
    /// The status agrees with etcd.
    Status,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two different entries were committed at one index.
    EntryLost(String),
    /// A linearizable read returned an older revision than was acknowledged.
    WriteLost { ordinal: Ordinal, revision: u64, acknowledged: u64 },
    /// A pod used its bootstrap order twice.
    OrderUsedTwice(Ordinal),
    /// A pod continued without the other members twice by one order, or more often than users agreed to.
    ForcedUnasked(Ordinal),
    /// A pod continued without the other members while volumes of others had data.
    ForcedUnfenced { ordinal: Ordinal, beside: usize },
    /// A pod bootstraps although the cluster has formed.
    SecondCluster(Ordinal),
    /// A pod serves another cluster than the one that formed.
    OtherClusterServes(Ordinal),
    /// The operator deleted a volume whose member etcd lists.
    MemberVolumeDeleted(Ordinal),
    /// The operator deleted a volume whose pod could follow an order again.
    VolumeDeletedDuringBootstrap(Ordinal),
    /// The operator deleted a volume of another cluster.
    ForeignVolumeDeleted(Ordinal),
    /// The operator adopted a volume, and no annotation named its cluster.
    VolumeAdoptedUnasked(Ordinal),
    /// The operator ended a pod that runs a voter in the form that is wanted.
    VoterDisrupted { member: MemberId, ordinal: Ordinal },
    /// The operator removed a member, and now no voter is connected to a quorum.
    QuorumLost { connected: usize, voters: usize },
    /// The operator ended the pod of a voter, and no other one is connected to a quorum without it.
    VotersApart { connected: usize, voters: usize },
    /// The operator ended pods of serving voters before those that it had ended served again.
    TooManyEnded { ended: usize, voters: usize },
    /// The operator deleted a pod by force before etcd had removed its member.
    EndedUnfenced(Ordinal),
    /// Another pod gets a form that no member ever served in.
    FormSpread(Ordinal),
    /// The operator ended a pod while the StatefulSet's controller would not create it in the wanted form.
    EndedUnprepared(Ordinal),
    /// The operator ended a pod before the wanted form had passed its trial wherever members serve.
    EndedUntried(Ordinal),
    /// The operator ended the pod of the leader before those of followers.
    LeaderEndedFirst(Ordinal),
    /// The operator stopped writes for a reason of its own, and neither a user nor a window allowed that.
    EndedWithoutConsent(Ordinal),
    /// etcd 3.7 was started on a log that it cannot read.
    OldEntriesRead(Ordinal),
    /// A member was started with another scheme than its peer URL has.
    OtherScheme(Ordinal),
    /// A certificate expired although nothing kept the operator from renewing it.
    CertificateExpired(Purpose),
    /// The operator issued this by another authority than members that run trust.
    OtherAuthority(Purpose),
    /// The operator copied a certificate of an authority that clients cannot know yet.
    ClientsDistrust,
    /// The operator copied a certificate that cannot be used.
    UnusableCertificate,
    /// The operator enabled etcd's authentication before its own user had the root role.
    LockedOut,
    /// This member does not trust the certificate of another one that runs.
    PeersDistrusted(Ordinal),
    /// The operator recorded a form that this member never served in.
    RecordedEarly(Ordinal),
    /// The status contradicted etcd for longer than an operator needs to observe it.
    StatusContradictsEtcd(Contradiction),
}

/// What differs from the expected state at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    PodsOfDeletedCluster,
    VolumesOfDeletedCluster,
    RetainedVolumesMissing,
    OrderExists,
    Replicas,
    Pods,
    Volumes,
    Members,
    MemberUnfinished,
    EtcdNotRunning,
    Forms,
    Agents,
    Template,
    Record,
    PeerUrls,
    Preflights,
    /// A volume has another size or class than is wanted, although it could have it.
    VolumeForms,
    VolumeTemplate,
    ForeignVolumesNotRefused,
    /// A Secret is missing, expired, or of another authority than the one that is there.
    Certificates,
    /// Authentication is not as the spec asks for, although it could be.
    Auth,
}

impl Violation {
    pub fn promise(&self) -> Promise {
        match self {
            Self::EntryLost(_) | Self::WriteLost { .. } => Promise::Data,
            Self::OrderUsedTwice(_) | Self::SecondCluster(_) | Self::OtherClusterServes(_) => {
                Promise::Identity
            }
            Self::MemberVolumeDeleted(_)
            | Self::VolumeDeletedDuringBootstrap(_)
            | Self::ForeignVolumeDeleted(_)
            | Self::VolumeAdoptedUnasked(_)
            | Self::VoterDisrupted { .. }
            | Self::QuorumLost { .. }
            | Self::VotersApart { .. }
            | Self::TooManyEnded { .. }
            | Self::ForcedUnasked(_)
            | Self::ForcedUnfenced { .. }
            | Self::EndedUnfenced(_)
            | Self::FormSpread(_)
            | Self::EndedUnprepared(_)
            | Self::EndedUntried(_)
            | Self::LeaderEndedFirst(_)
            | Self::EndedWithoutConsent(_)
            | Self::OldEntriesRead(_)
            | Self::OtherScheme(_)
            | Self::OtherAuthority(_)
            | Self::PeersDistrusted(_)
            | Self::ClientsDistrust
            | Self::UnusableCertificate
            | Self::CertificateExpired(_)
            | Self::LockedOut
            | Self::RecordedEarly(_) => Promise::Service,
            Self::StatusContradictsEtcd(_) => Promise::Status,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violated(violation) => write!(f, "{violation:?}"),
            Self::NotConverged { wrong, plan } => write!(f, "not converged: {wrong:?}; last plan: {plan}"),
            Self::NotRolled => write!(f, "too few pods got the wanted form"),
            Self::WrongEnd(wrong) => write!(f, "converged to a wrong state: {wrong:?}"),
        }
    }
}
