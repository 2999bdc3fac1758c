//! The vocabulary of decisions: what is done, what is awaited, what is refused. Log, events, conditions and
//! metrics all speak it.

mod reasons;
mod text;

pub use text::Terms;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use crate::asked::Accepted;
use crate::assess::PodState;
use crate::auth;
use crate::decide::Reason;
use crate::form::Digest;
use crate::observed::{AlarmKind, ClusterId, Exit, MemberId, Observed, Ordinal, Unanswered};
use crate::request::Object;
use crate::restores::Replacement;
use crate::tls::{Cause, Copy, Purpose, Rejection, Schemes, Section, Stage, Tally};
use crate::version::{Version, path};

/// What to do now, in this order; what is awaited; what is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub waiting: Vec<WaitingOn>,
    pub refusals: Vec<Refusal>,
}

/// One change. Each carries the evidence it was decided on, so that a stale one fails instead of doing harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Action {
    AddFinalizer,
    RemoveFinalizer,
    /// Writes into the status, for good, that the cluster has formed, as which one and when.
    RecordFormed {
        cluster: ClusterId,
    },
    /// Writes down that a majority has lost its data, before anybody consents to anything.
    PrepareRecovery,
    /// From now on the agent of the survivor starts etcd once without the other members. The pod is the one that it runs in.
    ArmRecovery {
        uid: String,
        survivor: Ordinal,
        pod: String,
    },
    /// Writes into the status which recovery the data comes from.
    RecordIncarnation {
        incarnation: String,
    },
    EndRecovery {
        uid: String,
    },
    /// Writes down that no member starts on this volume any more, for the EtcdRestore with this UID.
    RetireClaim {
        ordinal: Ordinal,
        uid: String,
        by: String,
    },
    /// Writes into the status which volumes and which cluster ID the members have from now on.
    ReplaceData {
        replacement: Replacement,
    },
    /// Writes into the status what the volumes are called.
    RecordVolumes {
        volumes: String,
    },
    /// Writes a Secret with a new certificate.
    IssueCertificate {
        purpose: Purpose,
        cause: Cause,
    },
    /// Writes the Secret of the client port with a certificate that a user has issued.
    CopyCertificate {
        copy: Copy,
    },
    /// Writes the Secret of an authority, which gives way to its successor.
    RotateAuthority {
        purpose: Purpose,
        stage: Stage,
    },
    /// Makes the order, not yet armed.
    CreateOrder {
        size: u8,
    },
    ArmOrder {
        uid: String,
    },
    DeleteOrder {
        uid: String,
    },
    /// Makes the StatefulSet, or changes how many pods it keeps.
    SetReplicas {
        replicas: u8,
    },
    /// Makes a former cluster's volume ours.
    AdoptClaim {
        ordinal: Ordinal,
        uid: String,
    },
    /// Writes down whose data a claim holds.
    LabelClaim {
        ordinal: Ordinal,
        uid: String,
        member: MemberId,
    },
    DeleteClaim {
        ordinal: Ordinal,
        uid: String,
    },
    DeletePod {
        ordinal: Ordinal,
        uid: String,
    },
    /// Deletes it without waiting for its kubelet, which does not respond. Only for pods whose members etcd has removed.
    ForceDeletePod {
        ordinal: Ordinal,
        uid: String,
    },
    /// As a drain does it: only if the disruption budget allows.
    EvictPod {
        ordinal: Ordinal,
        uid: String,
    },
    DeleteSet {
        uid: String,
    },
    /// Its pods stay and run on. It is created again with another template of volumes.
    OrphanSet {
        uid: String,
    },
    /// Tries the wanted form on this node, before a member there gets it.
    CreatePreflight {
        ordinal: Ordinal,
        node: String,
    },
    DeletePreflight {
        ordinal: Ordinal,
        uid: String,
    },
    /// Writes down which form all members run.
    RecordForm {
        form: Digest,
    },
    /// From now on the StatefulSet creates pods of this form. It restarts nothing by itself.
    SetTemplate {
        form: Digest,
    },
    /// From now on etcd rewrites its data for this minor version.
    EnableDowngrade {
        to: Version,
        cluster: ClusterId,
    },
    CancelDowngrade {
        cluster: ClusterId,
    },
    /// Enables a downgrade to this version only because every member saves a snapshot then.
    ForceSnapshots {
        to: Version,
        cluster: ClusterId,
    },
    /// Writes down whose logs have no entries of 3.5.
    RecordCleared {
        members: BTreeSet<MemberId>,
    },
    /// Writes down whether `spec.security.tls` takes effect.
    RecordTls {
        section: Section,
    },
    /// Writes down that a request of a user is accepted.
    Accept(Accepted),
    AddLearner {
        ordinal: Ordinal,
        cluster: ClusterId,
    },
    Promote {
        ordinal: Ordinal,
        member: MemberId,
        cluster: ClusterId,
    },
    /// From now on etcd lists the member with a peer URL of each of these schemes.
    UpdatePeerUrls {
        ordinal: Ordinal,
        member: MemberId,
        schemes: Schemes,
        cluster: ClusterId,
    },
    MoveLeader {
        from: MemberId,
        to: MemberId,
        cluster: ClusterId,
    },
    RemoveMember {
        member: MemberId,
        cluster: ClusterId,
    },
    ChangeAuth {
        step: auth::Step,
        cluster: ClusterId,
    },
    /// Forgets the history of keys before this revision.
    Compact {
        revision: i64,
        cluster: ClusterId,
    },
    /// Makes the file of a member's database smaller. The member does not serve meanwhile.
    Defragment {
        member: MemberId,
        cause: DefragmentationCause,
        cluster: ClusterId,
    },
    /// Ends an alarm, and tries whether writes succeed.
    Disarm {
        kind: AlarmKind,
        cluster: ClusterId,
    },
}

/// Why a member is defragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum DefragmentationCause {
    /// The database has reached its quota.
    Full,
    /// Most of its file is unused.
    Fragmented,
}

impl DefragmentationCause {
    pub fn words(self) -> &'static str {
        match self {
            Self::Full => "its database is full",
            Self::Fragmented => "most of its database file is unused",
        }
    }
}

/// How careful an action has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// It does no harm when it comes from an old snapshot.
    Harmless,
    /// It is decided twice: the second time right before it is done, on reads that no cache answers, and it is dropped unless
    /// that plan has it, too.
    Confirmed,
    /// Also, it takes something away that serves, or moves who serves. At most one of these is in a plan.
    Disruptive,
}

impl Action {
    pub fn nature(&self) -> Nature {
        match self {
            Self::AddFinalizer
            | Self::RecordFormed { .. }
            | Self::RecordIncarnation { .. }
            | Self::IssueCertificate { .. }
            | Self::CopyCertificate { copy: Copy::First | Copy::Held }
            | Self::LabelClaim { .. }
            | Self::CreatePreflight { .. }
            | Self::DeletePreflight { .. } => Nature::Harmless,
            Self::RemoveFinalizer
            | Self::PrepareRecovery
            | Self::ArmRecovery { .. }
            | Self::EndRecovery { .. }
            | Self::RetireClaim { .. }
            | Self::ReplaceData { .. }
            | Self::RecordVolumes { .. }
            | Self::CreateOrder { .. }
            | Self::ArmOrder { .. }
            | Self::DeleteOrder { .. }
            | Self::SetReplicas { .. }
            | Self::AdoptClaim { .. }
            | Self::DeleteClaim { .. }
            | Self::DeleteSet { .. }
            | Self::OrphanSet { .. }
            | Self::RecordForm { .. }
            | Self::RecordCleared { .. }
            | Self::RecordTls { .. }
            | Self::UpdatePeerUrls { .. }
            | Self::SetTemplate { .. }
            | Self::RotateAuthority { .. }
            | Self::CopyCertificate { copy: Copy::Given }
            | Self::Accept(_)
            | Self::ChangeAuth { .. }
            | Self::Disarm { .. }
            | Self::AddLearner { .. } => Nature::Confirmed,
            Self::DeletePod { .. }
            | Self::ForceDeletePod { .. }
            | Self::EvictPod { .. }
            | Self::EnableDowngrade { .. }
            | Self::CancelDowngrade { .. }
            | Self::ForceSnapshots { .. }
            | Self::Promote { .. }
            | Self::MoveLeader { .. }
            | Self::Compact { .. }
            | Self::Defragment { .. }
            | Self::RemoveMember { .. } => Nature::Disruptive,
        }
    }

    pub fn is_disruptive(&self) -> bool {
        self.nature() == Nature::Disruptive
    }

    pub fn is_decided_twice(&self) -> bool {
        self.nature() != Nature::Harmless
    }

    /// Whether it writes the EtcdCluster, so that what was read of it is outdated.
    pub fn changes_cluster(&self) -> bool {
        matches!(
            self,
            Self::AddFinalizer
                | Self::RemoveFinalizer
                | Self::RecordFormed { .. }
                | Self::RecordIncarnation { .. }
                | Self::ReplaceData { .. }
                | Self::RecordVolumes { .. }
                | Self::Accept(_)
        )
    }

    /// The Secret with certificates that it writes, if any.
    pub fn writes_secret(&self) -> Option<Purpose> {
        if let Self::IssueCertificate { purpose, .. } | Self::RotateAuthority { purpose, .. } = self {
            return Some(*purpose);
        }
        matches!(self, Self::CopyCertificate { .. }).then_some(Purpose::Server)
    }

    pub fn sets_root_password(&self) -> bool {
        matches!(self, Self::ChangeAuth { step: auth::Step::SetRootPassword, .. })
    }

    /// Whether it leads to new pods, which others can only find through the peer Service.
    pub fn needs_peer_service(&self, seen: &Observed) -> bool {
        matches!(self, Self::ArmOrder { .. }) || self.new_pods(seen) > 0
    }

    /// Whether it needs this name for an object of ours, or leads to one that does.
    pub fn creates(&self, object: Object, seen: &Observed) -> bool {
        match object {
            Object::Order => matches!(self, Self::CreateOrder { .. } | Self::PrepareRecovery),
            Object::Form => seen.record.is_none() && matches!(self, Self::RecordForm { .. }),
            Object::Set => {
                seen.set.is_none() && matches!(self, Self::CreateOrder { .. } | Self::SetReplicas { .. })
            }
            Object::Pod(ordinal) | Object::Claim(ordinal) => ordinal.0 < self.new_pods(seen),
            Object::Preflight(taken) => {
                matches!(self, Self::CreatePreflight { ordinal, node: _ } if *ordinal == taken)
            }
            Object::Secret(Purpose::Server) if matches!(self, Self::CopyCertificate { .. }) => true,
            Object::Secret(taken) => {
                matches!(self, Self::IssueCertificate { purpose, cause: _ } if *purpose == taken)
            }
            Object::Cluster
            | Object::Service(_)
            | Object::Budget
            | Object::NetworkPolicy
            | Object::Certificate
            | Object::PodMonitor => false,
        }
    }

    /// How many pods there are to be, if these are more.
    fn new_pods(&self, seen: &Observed) -> u8 {
        let (Self::CreateOrder { size: pods } | Self::SetReplicas { replicas: pods }) = self else {
            return 0;
        };
        // A missing StatefulSet might have to create any of them.
        let kept = seen.set.as_ref().map_or(0, |set| set.replicas);
        if *pods > kept { *pods } else { 0 }
    }
}

/// What has to happen elsewhere before there is more to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum WaitingOn {
    Unpause,
    /// This EtcdRestore gives the cluster its data, and no other bootstraps it.
    Restore {
        restore: String,
    },
    /// The members do not stop yet for the data of this EtcdRestore.
    Replacement {
        restore: String,
        obstacle: Obstacle,
    },
    Formation {
        missing: Vec<Ordinal>,
    },
    /// No member serves a linearizable read, so nothing is known of the members.
    Quorum {
        cause: Unanswered,
    },
    /// No leader is known that could be asked or moved.
    Leader,
    Pod {
        ordinal: Ordinal,
        state: PodState,
    },
    CatchUp {
        ordinal: Ordinal,
        behind: Option<u64>,
    },
    Start {
        ordinal: Ordinal,
    },
    /// etcd takes no new member while so few voters serve.
    Voters {
        serving: usize,
        needed: usize,
    },
    /// A sick member is replaced only when it has been silent for a while.
    Recovery {
        ordinal: Ordinal,
        member: MemberId,
    },
    /// The node of a member is lost. The member continues if the node returns until then, and is replaced otherwise.
    NodeReturn {
        ordinal: Ordinal,
        member: MemberId,
        node: String,
        until: Timestamp,
    },
    /// The node of a member is lost, and the member is not known to be cut off from this one.
    Isolation {
        ordinal: Ordinal,
        member: MemberId,
        by: MemberId,
        /// It reports a connection; otherwise it does not report its connections.
        connected: bool,
    },
    /// These join before the member on a lost node is replaced.
    OthersJoin {
        ordinal: Ordinal,
        member: MemberId,
        joining: Vec<Ordinal>,
    },
    /// No other node accepts the member whose node is lost.
    OtherNode {
        ordinal: Ordinal,
        member: MemberId,
        node: String,
    },
    /// Whether the cluster formed cannot be told before these volumes have been looked into.
    Volumes {
        ordinals: Vec<Ordinal>,
    },
    /// These pods have to end, and their volumes to be deleted or inspected, before one member continues without them.
    Fence {
        ordinals: Vec<Ordinal>,
    },
    /// etcd is started without the other members.
    ForcedStart {
        survivor: Ordinal,
    },
    /// Members are compared before all but one of them go.
    Hashes {
        missing: Vec<MemberId>,
    },
    /// The database files of these members are mostly unused. They are defragmented in a window.
    Window {
        members: Vec<MemberId>,
        opens: Option<Timestamp>,
    },
    /// The data of all members is compared again, at the earliest then: these differed in the last comparison, if there was one.
    Comparison {
        members: Vec<MemberId>,
        until: Option<Timestamp>,
    },
    PodsGone {
        ordinals: Vec<Ordinal>,
    },
    ClaimsGone {
        ordinals: Vec<Ordinal>,
    },
    /// Kubernetes has not deleted the StatefulSet yet.
    SetGone,
    /// These members have to serve before the next one is replaced.
    OthersServe {
        down: Vec<MemberId>,
    },
    /// The StatefulSet's controller has not read its last template yet.
    Template,
    /// These pods have to prove the wanted form before the first member gets it.
    Preflight {
        ordinals: Vec<Ordinal>,
    },
    /// An EtcdBackup has to take a copy before the first member gets another version.
    Copy {
        /// Its namespace and name.
        backup: String,
        token: String,
        /// Why there is none yet, if something blocks it.
        problem: Option<String>,
    },
    /// A member that has the wanted form has to serve before the next one gets it.
    Rolled {
        ordinal: Ordinal,
        state: PodState,
    },
    /// Somebody else ended these pods. One disruption at a time.
    PodsBack {
        ordinals: Vec<Ordinal>,
    },
    /// Members have to report their versions before one gets another.
    Versions,
    /// etcd rewrites its data for another version.
    StorageVersion {
        version: Version,
    },
    /// etcd saves a snapshot on every member, behind the entries of 3.5.
    Snapshots {
        saved: usize,
        members: usize,
    },
    /// No version changes while an alarm is active.
    AlarmsCleared {
        kind: String,
    },
    /// Members change only when etcd has this version again.
    DowngradeEnd {
        to: Version,
    },
    /// The first member has proved itself, and a user has to approve the rest.
    Approval {
        form: Digest,
    },
    /// The operator has a reason of its own to restart these, which stops writes. A user has to agree, or a window has to
    /// open.
    Consent {
        ordinals: Vec<Ordinal>,
        reason: Reason,
        opens: Option<Timestamp>,
    },
    /// The pod that leadership is to move to has to be a voter that serves.
    Successor {
        ordinal: Ordinal,
    },
    /// Voters have to be connected before another one ends, or leads.
    Connection {
        from: MemberId,
        to: MemberId,
    },
    /// Too few others serve for a restart of this one.
    QuorumMargin {
        ordinal: Ordinal,
        serving: usize,
        needed: usize,
    },
    /// Every member has to trust an authority before it signs.
    Trust {
        authority: Purpose,
        tally: Tally,
    },
    /// Every member has to serve the certificate of the new authority before the previous one is withdrawn.
    Use {
        purpose: Purpose,
        tally: Tally,
    },
    /// Clients need time to read theirs.
    Clients {
        purpose: Purpose,
        until: Timestamp,
    },
    /// No pod starts before cert-manager has issued the certificate of the client port.
    Issuance {
        problems: Vec<String>,
    },
}

impl WaitingOn {
    /// Whether only users end it. Nothing is under way until then, and the watch reports what they do.
    pub fn is_for_users(&self) -> bool {
        matches!(self, Self::Unpause | Self::Consent { .. } | Self::Window { .. })
    }

    /// When it ends by itself, if that is known.
    pub fn until(&self) -> Option<Timestamp> {
        if let Self::Consent { opens: time, .. }
        | Self::Window { opens: time, .. }
        | Self::Comparison { until: time, .. } = self
        {
            return *time;
        }
        if let Self::Clients { until, .. } | Self::NodeReturn { until, .. } = self {
            return Some(*until);
        }
        None
    }

    /// The member on a lost node that it is about.
    pub fn member_on_lost_node(&self) -> Option<MemberId> {
        if let Self::NodeReturn { member, .. }
        | Self::Isolation { member, .. }
        | Self::OthersJoin { member, .. }
        | Self::OtherNode { member, .. } = self
        {
            return Some(*member);
        }
        None
    }

    /// Whether an authority gives way to its successor. Members serve meanwhile.
    pub fn is_rotation(&self) -> bool {
        matches!(self, Self::Trust { .. } | Self::Use { .. } | Self::Clients { .. })
    }
}

/// Why the data of a cluster is not replaced now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Obstacle {
    /// No pod can be made from a spec that breaks rules.
    InvalidSpec,
    /// The claim with the restored data was deleted.
    VolumeGone,
    /// It is not released yet.
    NotPrepared,
    /// The stop that the spec asks for deletes all volumes.
    StopDeletes,
    Bootstrapping,
    /// One member is about to continue without the others.
    Recovering,
    /// The nodes of these are lost.
    NodeLost {
        ordinals: Vec<Ordinal>,
    },
    ChangesVersion {
        from: Version,
        to: Version,
    },
    /// The data is of another minor version than the members would have.
    OtherVersion {
        prepared: Version,
        runs: Version,
    },
    /// The peer URL in the data has another scheme than the members use.
    OtherTransport,
    /// Clients would not notice: the cluster has a revision as high as the one that the restored data begins with.
    Revisions {
        revision: i64,
        above: i64,
    },
}

/// What will not be done until somebody changes something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Refusal {
    /// An EtcdRestore has replaced the data on them.
    ReplacedVolumes {
        ordinals: Vec<Ordinal>,
    },
    /// Claims with data and another name than the cluster would use are in the way.
    VolumesElsewhere {
        claims: Vec<String>,
        cluster_uid: String,
    },
    /// Volumes of a former cluster of the same name are in the way.
    ForeignVolumes {
        ordinals: Vec<Ordinal>,
        cluster_uid: String,
        /// There is nothing of our own yet, so they could be taken over.
        adoptable: bool,
    },
    /// etcd was started in these pods by an order, which works once, and left nothing on their volumes; the others are
    /// too few to form a cluster.
    FormationFailed {
        ordinals: Vec<Ordinal>,
    },
    /// A member is in etcd's list that no pod of ours belongs to.
    UnknownMember {
        member: MemberId,
    },
    /// etcd answers, but it is another cluster than the one that formed here.
    ForeignCluster {
        expected: ClusterId,
        found: ClusterId,
    },
    QuorumWouldBeLost {
        member: MemberId,
        serving_after: usize,
        quorum_after: usize,
    },
    LastVoter {
        member: MemberId,
    },
    /// No pod starts without the certificate that a user has to give, and what the user gives cannot be used, in words.
    NoCertificateGiven {
        rejection: Rejection,
        problems: Vec<String>,
    },
    /// All data of a formed cluster is gone; a new one is never started in its place.
    DataLost,
    StopNeedsQuorum {
        cause: Unanswered,
    },
    /// Consent to the loss of data was there before the loss was observed, or it was used.
    ConsentBeforeLoss,
    /// Consent to the loss of data of another cluster.
    ConsentForOther {
        given: ClusterId,
        actual: ClusterId,
    },
    /// Consent, and a majority might still return: these might have data, in this state.
    MayReturn {
        ordinals: Vec<(Ordinal, PodState)>,
    },
    /// No member responds that could continue alone.
    NoSurvivor,
    /// The pod that a user has named has no member that responds; these have.
    SurvivorUnusable {
        named: String,
        usable: Vec<Ordinal>,
    },
    /// The StatefulSet creates pods of another form than the survivor has.
    SurvivorForm {
        survivor: Ordinal,
    },
    /// The survivor was started and has no quorum alone.
    RecoveryIncomplete {
        survivor: Ordinal,
    },
    NoSuccessor {
        leader: MemberId,
    },
    /// Members hold different data, and nobody can say whose is right.
    HashesDiffer {
        members: Vec<MemberId>,
    },
    /// These members hold different data, and no majority of voters agrees.
    NoMajority {
        members: Vec<MemberId>,
    },
    /// etcd reports different data again within an hour after the operator disarmed that alarm, and all members have equal hashes.
    CorruptAgain,
    /// An earlier operator did not roll out this edit, and an upgrade of the operator alone restarts nothing.
    EditHeld,
    /// etcd does not start with the wanted form: no member gets it.
    PreflightFailed {
        ordinal: Ordinal,
        node: String,
        exit: Exit,
    },
    /// No EtcdBackup took the copy that has to precede another version; the first one of them, and why.
    NoCopy {
        backup: String,
        problem: String,
    },
    /// The members cannot get to the wanted version in one step.
    VersionPath(path::Refusal),
    /// These volumes have more than is wanted.
    VolumesCannotShrink {
        wanted_bytes: u64,
        volumes: Vec<(Ordinal, u64)>,
    },
    /// Another class needs a new volume, and the only voter has the only copy of the data.
    ClassNeedsMembers {
        ordinal: Ordinal,
        class: Option<String>,
        wanted: String,
    },
    /// Logs of these members might have entries that the wanted version cannot read. Only while all members run the version before it
    /// can that be changed.
    OldEntries {
        members: Vec<MemberId>,
    },
    /// The data of this member needs its quota, or filled it again within an hour.
    DatabaseFull {
        member: MemberId,
        size: u64,
        quota: u64,
        again: bool,
    },
    /// etcd's authentication rejects the operator.
    AccessDenied {
        /// It has a certificate, so that etcd knows its name.
        identified: bool,
    },
}

impl Plan {
    pub fn act(action: Action) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    pub fn wait(waiting: WaitingOn) -> Self {
        Self { waiting: vec![waiting], ..Self::default() }
    }

    pub fn refuse(refusal: Refusal) -> Self {
        Self { refusals: vec![refusal], ..Self::default() }
    }

    pub fn is_settled(&self) -> bool {
        self == &Self::default()
    }

    /// Lets `other` follow.
    pub fn then(mut self, other: Self) -> Self {
        let Self { actions, waiting, refusals } = other;
        self.actions.extend(actions);
        self.waiting.extend(waiting);
        self.refusals.extend(refusals);
        self
    }
}
