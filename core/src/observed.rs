//! The snapshot that decisions are made from. What was not answered is unknown, and unknown is never "no".

mod consistency;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent::Protocol;
use crate::auth::{Auth, RootPassword};
use crate::foreign::NotRead;
use crate::form::Digest;
use crate::member::MemberProgress;
use crate::request::Object;
use crate::restores::Replacement;
use crate::tls::{Authority, Certificate, Flaw, Given, Purpose, Schemes, Section, Transport};
use crate::version::Version;
use crate::version::downgrade::Downgrade;
pub use consistency::{Compared, Comparison, DataHash, Verdict};
pub use nodes::{LossSign, Node, NodeLoss, Nodes, Unread};

/// Something that was observed: what it is, or why that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen<T, Why = Unanswered> {
    Known(T),
    Unknown(Why),
}

/// Why nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unanswered {
    /// No connection, no response in time, or one that makes no sense; in the words of the connection.
    Unreachable(String),
    /// The agent responds in place of etcd, and waits for this.
    AgentWaiting(String),
    /// The agent responds in place of etcd, because it cannot use the certificates of its pod; in its words.
    CertificatesUnusable(String),
    /// No pod responds as a member.
    NoMember,
    /// Members respond, but none of them serves a linearizable read.
    NoLinearizableRead,
    /// etcd's authentication rejects the operator.
    AccessDenied,
}

impl<T, Why> Seen<T, Why> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

/// The number at the end of a pod's name, which its claim and its peer URL share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ordinal(pub u8);

impl Ordinal {
    pub fn below(count: u8) -> impl Iterator<Item = Ordinal> {
        (0..count).map(Ordinal)
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How etcd calls a member. A member that is removed and added again has another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberId(pub u64);

/// How etcd calls a cluster; fixed when it forms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub u64);

/// As etcdctl prints them.
macro_rules! hexadecimal {
    ($type:ty) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }
    };
}
hexadecimal!(MemberId);
hexadecimal!(ClusterId);

const TWO_LEARNERS: Version = Version::new(3, 6, 0);
/// Since then etcd adds a member while a voter is not connected, if a quorum is. Before, it rejects that for as long as it lasts.
const ADDS_WITHOUT_ALL_VOTERS: [Version; 2] = [Version::new(3, 5, 30), Version::new(3, 6, 11)];

/// One look at everything that belongs to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    pub now: Timestamp,
    pub cluster: Cluster,
    pub order: Option<Order>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    pub set: Option<Set>,
    /// The last form that all members ran together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<FormRecord>,
    pub pods: BTreeMap<Ordinal, Pod>,
    /// By the ordinal in their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preflights: BTreeMap<Ordinal, Preflight>,
    pub claims: BTreeMap<Ordinal, Claim>,
    /// With the data that an EtcdRestore has prepared, by what the EtcdCluster says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Claim>,
    /// Claims of clusters with this name whose volumes are called something else, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub elsewhere: BTreeMap<String, Claim>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<Purpose, Secret>,
    /// The certificate that a user gives for the client port; none if the operator issues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Given>,
    /// What all pods were made with last; none before there is anything to make them from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Why it is not known whether there is a PodMonitor; none if it is, or nobody asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_monitor: Option<NotRead>,
    pub etcd: Etcd,
    /// What etcd reported last about its authentication; none while it has not been asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// None if no Secret is named for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_password: Option<RootPassword>,
    #[serde(default, skip_serializing_if = "Versions::is_empty")]
    pub versions: Versions,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken: BTreeSet<Taken>,
    /// The status reports how members are spread. Decisions only read whether another node accepts a member.
    #[serde(default)]
    pub nodes: Seen<Nodes, Unread>,
    /// The EtcdBackups that refer to the cluster, by namespace and name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backups: BTreeMap<String, Backup>,
}

/// What an EtcdBackup reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// When its last copy completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Timestamp>,
    /// Why there is no newer copy, if something is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// It takes copies by a schedule, so a new version waits for one of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_copies: bool,
    /// Why its next run does not start or continue, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The last copy that the cluster requested from it and that is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<RequestedCopy>,
}

/// What became of a copy that the cluster waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedCopy {
    pub token: String,
    pub result: CopyResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyResult {
    Taken,
    /// An attempt failed for this reason, and another one follows by itself.
    Retrying(String),
    /// For this reason, and no further attempt follows before somebody changes something.
    Failed(String),
}

/// An object that has the name of one of ours and another owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taken {
    pub object: Object,
    pub owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owner {
    /// A previous cluster of this name, so Kubernetes deletes the object in its own time.
    PreviousCluster,
    Other,
}

/// Resource versions of the objects whose content a write depends on. Decisions do not read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    pub cluster: Option<String>,
    pub order: Option<String>,
    pub set: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    pub claims: BTreeMap<Ordinal, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<Purpose, String>,
}

impl Versions {
    fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// The EtcdCluster itself, and what its status remembers because it cannot be observed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub uid: String,
    /// Another one after every edit of the spec.
    #[serde(default)]
    pub generation: Option<i64>,
    pub deleting: bool,
    pub finalizer: bool,
    pub formed: Option<Formed>,
    /// Requests that are accepted: the restart with the UIDs of the pods to replace, and the move of leadership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<(String, BTreeSet<String>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_leader: Option<String>,
    /// The rotation of authorities, with the keys of those that were introduced for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<(String, BTreeSet<String>)>,
    /// The EtcdRestore that created it, and that gives it its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
    /// What an EtcdRestore has prepared in place of its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// The status says what its volumes are called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub names_volumes: bool,
    /// The recovery or the EtcdRestore that its data comes from. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

/// That the cluster has formed, once and for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Formed {
    pub id: ClusterId,
    pub since: Timestamp,
}

/// The bootstrap order: which pods may form a cluster together. It is made first and armed then, by a write that
/// fails if anybody touched it: a request to make it that arrives late makes one that nobody follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub uid: String,
    /// Agents follow it from then on; for good.
    pub armed: bool,
    pub size: u8,
}

/// The order for a recovery from a lost quorum, which has the name of a bootstrap order. It is created when the loss is observed and no
/// consent is there: so consent that it precedes was given for this loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    pub uid: String,
    /// Armed by consent, for good: the survivor, and the UID of the pod that it ran in.
    pub start: Option<(Ordinal, String)>,
}

/// The StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    pub uid: String,
    pub replicas: u8,
    /// Pods that the API server rejects, in its words, as the StatefulSet's events report them.
    pub rejected: BTreeMap<Ordinal, String>,
    /// The form of the pods that it creates; none if that is not known.
    #[serde(default)]
    pub template: Option<Digest>,
    /// What its pods are made with; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Its template was written by an operator that recorded no forms.
    #[serde(default)]
    pub unmarked: bool,
    /// Its controller has read the last change of it.
    #[serde(default)]
    pub followed: bool,
    /// The agent of the pods that it creates.
    #[serde(default = "Protocol::first")]
    pub agent: Protocol,
    /// It is being deleted. Its controller creates and ends no pods any more.
    #[serde(default)]
    pub terminating: bool,
    /// What the volumes of new pods are created with; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<VolumeForm>,
    /// The previous cluster whose volumes its pods accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
    /// What its volumes are called, if those of the cluster are called something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_volumes: Option<String>,
}

/// What a volume is asked to be like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeForm {
    pub bytes: u64,
    /// None leaves it to the default of the Kubernetes cluster.
    pub class: Option<String>,
}

impl Set {
    /// Its controller follows, and nothing is known of forms. Tests begin with it.
    pub fn keeping(replicas: u8, uid: &str) -> Self {
        Self {
            uid: uid.into(),
            replicas,
            rejected: BTreeMap::new(),
            template: None,
            transport: None,
            unmarked: false,
            followed: true,
            agent: Protocol::CURRENT,
            terminating: false,
            volumes: None,
            adopts: None,
            other_volumes: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormRecord {
    pub uid: String,
    pub form: Digest,
    pub version: Version,
    /// From [`crate::form::Form::proof`].
    #[serde(default)]
    pub proof: Option<Digest>,
    /// The generation of the EtcdCluster whose edits wait for the next one.
    #[serde(default)]
    pub held_generation: Option<i64>,
    /// The previous cluster whose volumes the members accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
    /// Members whose logs have no entries that etcd 3.7 cannot read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cleared: BTreeSet<MemberId>,
    /// The digest of the same form in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<Digest>,
    /// None if it was written by an operator that could not change the transport of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Section>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub uid: String,
    pub terminating: bool,
    /// Whether the peer Service lists its address: only then do other members find it.
    pub published: bool,
    pub etcd: Process,
    /// What it was made from; none if that is not known.
    #[serde(default)]
    pub form: Option<Digest>,
    /// By the tag of its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// What its ports serve; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Where it runs; none before it is scheduled.
    #[serde(default)]
    pub node: Option<String>,
    /// Kubernetes reports that this node, or the one that has its volume, is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<NodeLoss>,
    /// etcd was ready in it when its kubelet reported last: it had started on the volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_ready: bool,
    #[serde(default = "Protocol::first")]
    pub agent: Protocol,
    /// Nothing owns it, so Kubernetes does not delete it with anything else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orphaned: bool,
    /// By the API server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// With each of its ports that uses TLS, by the certificate that the port serves; or why there was none. What was not asked
    /// for is missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handshakes: BTreeMap<Purpose, Seen<Handshake, String>>,
}

/// What a port of a member shows to every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    /// The fingerprint of its certificate.
    pub certificate: String,
    /// The names of the authorities whose certificates it accepts.
    pub trusts: BTreeSet<String>,
}

/// A pod that tries the image and the arguments of a form on the node of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preflight {
    pub uid: String,
    pub terminating: bool,
    pub created: Timestamp,
    pub node: Option<String>,
    /// What it tries, from [`crate::form::Form::proof`].
    pub proof: Option<Digest>,
    pub state: PreflightState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreflightState {
    /// It starts, or runs.
    Pending,
    Blocked(Blocked),
    /// etcd accepted its arguments.
    Passed,
    /// etcd did not, or cannot be run.
    Failed(Exit),
    /// Its node ended it without a result, for this reason.
    Interrupted(String),
}

/// What goes on in a pod's etcd container, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Process {
    /// It cannot run yet, for this reason; nothing was ever started on this volume by this pod.
    CannotStart(Blocked),
    /// Its containers are being created, and it is too young to say that anything stands in its way.
    Beginning,
    /// The agent waits to be listed or ordered; there is no data on the volume, and it holds no order that it
    /// could follow. Once the order is deleted it stays like this.
    Waiting,
    /// The agent holds an order and may start etcd at any moment; there was no data on the volume so far.
    Forming,
    /// The agent found no data, although the members list this one as started, or a start is on record here.
    DataLost,
    /// etcd runs, ran, or may have run.
    Started,
    /// etcd exits again and again, the last time like this.
    Failing(Exit),
}

/// Why the containers of a pod do not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blocked {
    /// No node takes the pod; in the scheduler's words.
    Unschedulable(String),
    /// A container waits, with the kubelet's reason and message: `ImagePullBackOff`, `CreateContainerConfigError`.
    Container { reason: String, message: String },
    /// The containers take longer to create than they should, and the kubelet does not report why.
    SlowCreation,
}

/// How etcd exited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: i32,
    /// Its termination message, if it left one.
    pub message: String,
}

/// A volume claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub uid: String,
    pub terminating: bool,
    /// The EtcdCluster it was made for.
    pub cluster_uid: String,
    /// Whether there is a volume behind it; without one nothing was ever written.
    pub bound: bool,
    /// The member whose data it holds; written before that member can be removed.
    pub member: Option<MemberId>,
    /// What it asks for, and what the volume behind it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// It was created before the StatefulSet that is there, so perhaps from another template.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub precedes_set: bool,
    /// The UID of the EtcdRestore that has replaced its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
}

/// A Secret with a certificate, without any key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    pub uid: String,
    pub certificate: Seen<Certificate, Flaw>,
    /// Of the Secret of an authority: its successor, until that signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Authority>,
    /// Of the Secret of an authority: those of a user that are trusted beside it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub given: BTreeSet<Authority>,
    /// When the operator wrote it, if it did not issue the certificate but copied that of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Timestamp>,
}

impl Secret {
    /// When it was written.
    pub fn written(&self) -> Option<Timestamp> {
        self.copied.or_else(|| Some(self.certificate.known()?.issued()))
    }
}

/// What the storage reports while a volume has another size than its claim asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resize {
    InProgress,
    /// The volume is larger already; its file system grows when a kubelet gets to it.
    FileSystemPending,
    /// In the storage's words. It might try again.
    Failed(String),
}

/// What etcd says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etcd {
    /// Each pod asked on its own.
    pub answers: BTreeMap<Ordinal, Seen<Answer>>,
    /// The list of a member that had just served a linearizable read; others' lists are hearsay.
    pub members: Seen<Members>,
    /// Who gave that list.
    pub via: Option<Ordinal>,
    /// Since when a member has not served a linearizable read, as far as this operator has watched: after a
    /// restart it begins anew. Who is missing here is not known to have been silent at all.
    pub silent_since: BTreeMap<MemberId, Timestamp>,
    /// Members that have published themselves, as far as this operator has observed: those that are listed, and those whose
    /// volumes are still there. etcd has written a log for each of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub started: BTreeSet<MemberId>,
    #[serde(default, skip_serializing_if = "Reclaimed::is_nothing")]
    pub reclaimed: Reclaimed,
    #[serde(default, skip_serializing_if = "Compared::is_nothing")]
    pub compared: Compared,
    /// Members whose files have reached both thresholds of the goal.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub fragmented: BTreeSet<MemberId>,
}

/// One member's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub cluster: ClusterId,
    pub member: MemberId,
    pub leader: Option<MemberId>,
    /// It has just served a linearizable read.
    pub linearizable: bool,
    /// etcd's authentication rejected the operator. It does so after the read, so that proves a quorum nevertheless.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
    pub applied_index: u64,
    /// Up to where it knows that entries are committed, and the term that it has reached. A learner has index 0, because it cannot
    /// continue alone.
    #[serde(default)]
    pub commit_index: u64,
    #[serde(default)]
    pub term: u64,
    /// None if it is none that we know how to read.
    pub version: Option<Version>,
    /// The minor version whose format its data has, which follows the version of the cluster within seconds. Members
    /// before 3.6 do not report it.
    #[serde(default)]
    pub storage_version: Option<Version>,
    #[serde(default)]
    pub downgrade: Downgrade,
    /// How many members its own list has: hearsay, but before there was a leader it is the order's. Asked only while
    /// the cluster is not known to have formed.
    pub listed: Option<u8>,
    /// HashKV at the one revision that all members were asked for; asked only while a stop is wanted.
    pub hash: Option<u32>,
    /// Every alarm of the cluster that this member knows.
    pub alarms: BTreeSet<Alarm>,
    /// Its database, only while an alarm is active or its data is about to be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
    /// The file of its database. It changes with every write, so decisions read [`Etcd::fragmented`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<File>,
    /// The members that it can connect to; none if it did not report them. Asked only while a member is about to be restarted
    /// or removed, or leadership to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches: Option<BTreeSet<MemberId>>,
}

/// The file of a database, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    pub size: u64,
    pub in_use: u64,
}

impl File {
    pub fn unused_percent(self) -> u64 {
        self.size.saturating_sub(self.in_use).saturating_mul(100) / self.size.max(1)
    }
}

/// What a member reports of its database. How much of the file is in use is no part of it: pages that a compaction frees count as
/// used until the next write, and none succeeds while the alarm is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Of the file, in bytes. It becomes smaller by a defragmentation alone, and then has nothing but data.
    pub size: u64,
    /// At this size the member raises the alarm. Members before 3.6 do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// The revision of the cluster that it has applied.
    pub revision: i64,
}

/// What this operator has done for the space in databases, as far as it remembers: after a restart it begins anew, and repeats each
/// step once at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// Since the alarm `NOSPACE` is active: up to which revision the history was compacted last, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<(i64, Timestamp)>,
    /// Members that were defragmented since then, within a day.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub defragmented: BTreeSet<MemberId>,
    /// When the alarm before this one was disarmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disarmed: Option<Timestamp>,
}

impl Reclaimed {
    fn is_nothing(&self) -> bool {
        self == &Self::default()
    }
}

/// An alarm that a member has raised. It holds until somebody disarms it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alarm {
    pub member: MemberId,
    /// As etcd calls it: `NOSPACE` or `CORRUPT`.
    pub kind: String,
}

impl Alarm {
    /// etcd rejects writes that take space, because the database has reached its quota.
    pub const NOSPACE: &'static str = "NOSPACE";
    /// The data of members differs: etcd rejects requests.
    pub const CORRUPT: &'static str = "CORRUPT";
}

/// The alarms that the operator disarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AlarmKind {
    NoSpace,
    Corrupt,
}

impl AlarmKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSpace => Alarm::NOSPACE,
            Self::Corrupt => Alarm::CORRUPT,
        }
    }
}

impl Answer {
    /// Every member from 3.6 on is started to accept two learners at a time; older ones cannot.
    pub fn accepts_two_learners(&self) -> bool {
        self.version.is_some_and(|version| version >= TWO_LEARNERS)
    }

    pub fn adds_without_all_voters(&self) -> bool {
        let [of_3_5, of_3_6] = ADDS_WITHOUT_ALL_VOTERS;
        self.version.is_some_and(|it| it >= of_3_6 || it >= of_3_5 && it < TWO_LEARNERS)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub cluster: ClusterId,
    pub leader: Option<MemberId>,
    pub list: BTreeMap<MemberId, Member>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which pod its peer URL belongs to; none for one that is not ours.
    pub ordinal: Option<Ordinal>,
    pub learner: bool,
    pub start: MemberProgress,
    /// Of its peer URLs.
    #[serde(default, skip_serializing_if = "Schemes::is_empty")]
    pub schemes: Schemes,
}

impl Members {
    /// By ordinal: the order of IDs is as good as random, and nothing may depend on it.
    pub fn by_ordinal(&self) -> Vec<(MemberId, &Member)> {
        let mut members: Vec<_> = self.list.iter().map(|(&id, member)| (id, member)).collect();
        members.sort_by_key(|(_, member)| member.ordinal);
        members
    }

    pub fn voters(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.by_ordinal().into_iter().filter(|(_, member)| !member.learner)
    }

    pub fn learners(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.by_ordinal().into_iter().filter(|(_, member)| member.learner)
    }

    pub fn at(&self, ordinal: Ordinal) -> Option<(MemberId, &Member)> {
        self.list.iter().find(|(_, member)| member.ordinal == Some(ordinal)).map(|(&id, member)| (id, member))
    }

    /// One more than the highest ordinal that is a member.
    pub fn span(&self) -> u8 {
        self.list.values().filter_map(|member| member.ordinal).max().map_or(0, |highest| highest.0 + 1)
    }
}

impl Observed {
    /// An EtcdCluster with this UID and the finalizer, and nothing else. Tests begin with it.
    pub fn nothing_of(uid: &str) -> Self {
        let members = Seen::Unknown(Unanswered::NoMember);
        Self {
            now: Timestamp::UNIX_EPOCH,
            cluster: Cluster {
                uid: uid.into(),
                generation: None,
                deleting: false,
                finalizer: true,
                formed: None,
                restart: None,
                moved_leader: None,
                rotation: None,
                restore: None,
                replacement: None,
                names_volumes: false,
                incarnation: None,
            },
            order: None,
            recovery: None,
            set: None,
            record: None,
            pods: BTreeMap::new(),
            preflights: BTreeMap::new(),
            claims: BTreeMap::new(),
            restored: None,
            elsewhere: BTreeMap::new(),
            secrets: BTreeMap::new(),
            given: None,
            transport: None,
            pod_monitor: None,
            etcd: Etcd {
                answers: BTreeMap::new(),
                members,
                via: None,
                silent_since: BTreeMap::new(),
                started: BTreeSet::new(),
                reclaimed: Reclaimed::default(),
                compared: Compared::default(),
                fragmented: BTreeSet::new(),
            },
            auth: None,
            root_password: None,
            versions: Versions::default(),
            taken: BTreeSet::new(),
            nodes: Seen::default(),
            backups: BTreeMap::new(),
        }
    }

    /// Who may be asked to change the members, because a linearizable read has just proved that it speaks for the cluster:
    /// first the one whose list was taken, and last the one that is to leave, which may never hear that it did.
    pub fn endpoints(&self, leaving: Option<MemberId>) -> Vec<Ordinal> {
        let answer = |ordinal: &Ordinal| self.etcd.answers.get(ordinal).and_then(Seen::known);
        let Some((via, first)) = self.etcd.via.and_then(|via| Some((via, answer(&via)?))) else {
            return Vec::new();
        };
        let speaks = |ordinal: &Ordinal| {
            answer(ordinal).is_some_and(|it| it.linearizable && it.cluster == first.cluster)
        };
        let others = self.etcd.answers.keys().copied().filter(|it| *it != via && speaks(it));
        let mut endpoints: Vec<_> = std::iter::once(via).chain(others).collect();
        endpoints.sort_by_key(|it| leaving.is_some() && answer(it).map(|it| it.member) == leaving);
        endpoints
    }

    /// The pod in which this member of this cluster has just served a linearizable read.
    pub fn serves_as(&self, member: MemberId, cluster: ClusterId) -> Option<Ordinal> {
        let is_it = |it: &Answer| it.member == member && it.cluster == cluster && it.linearizable;
        let mut answers = self.etcd.answers.iter();
        answers.find(|(_, answer)| answer.known().is_some_and(is_it)).map(|(&ordinal, _)| ordinal)
    }

    /// Whether etcd's authentication rejects the operator.
    pub fn is_access_denied(&self) -> bool {
        self.etcd.answers.values().any(|answer| match answer {
            Seen::Known(answer) => answer.denied,
            Seen::Unknown(why) => *why == Unanswered::AccessDenied,
        })
    }

    /// Pods in which the agent responds and waits.
    pub fn waiting_agents(&self) -> impl Iterator<Item = Ordinal> {
        let waits = |answer: &Seen<Answer>| {
            use Unanswered::{AgentWaiting, CertificatesUnusable};
            matches!(answer, Seen::Unknown(AgentWaiting(_) | CertificatesUnusable(_)))
        };
        self.etcd.answers.iter().filter(move |(_, answer)| waits(answer)).map(|(&ordinal, _)| ordinal)
    }

    /// One more than the highest ordinal that has a volume that stays, or a pod without one that goes.
    pub fn span(&self) -> u8 {
        let claims = self.claims.iter().filter(|(_, claim)| !claim.terminating).map(|(ordinal, _)| ordinal);
        let goes = |ordinal| self.claims.get(ordinal).is_some_and(|claim| claim.terminating);
        claims.chain(self.staying_pods().filter(|it| !goes(it))).max().map_or(0, |highest| highest.0 + 1)
    }

    /// How many pods the StatefulSet keeps. One that is missing is created again, so it says nothing: what is there counts.
    pub fn replicas(&self) -> u8 {
        let pods = || self.staying_pods().max().map_or(0, |highest| highest.0 + 1);
        self.set.as_ref().map_or_else(|| self.span().max(pods()), |set| set.replicas)
    }

    /// What this pod is made with, or will be. During a switch, pods differ.
    pub fn transport_of(&self, ordinal: Ordinal) -> Option<Transport> {
        let of_pod = |pod: &Pod| pod.transport;
        let of_new_pods = || self.set.as_ref().and_then(|set| set.transport);
        self.pods.get(&ordinal).map_or_else(of_new_pods, of_pod).or(self.transport)
    }

    fn staying_pods(&self) -> impl Iterator<Item = &Ordinal> {
        self.pods.iter().filter(|(_, pod)| !pod.terminating).map(|(ordinal, _)| ordinal)
    }

    /// Whether no pod stays and none is created.
    pub fn keeps_no_pods(&self) -> bool {
        match &self.set {
            Some(set) => set.replicas == 0,
            None => self.pods.values().all(|pod| pod.terminating),
        }
    }
}
