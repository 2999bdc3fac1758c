//! From an action to the exact request: what it is about, what it changes, and what has to hold for that. The simulation
//! applies the typed form; [`http`] renders what the shell sends to the API server.

mod http;

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{ApiResource, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::News;
use crate::api::{EtcdCluster, EtcdClusterStatus};
use crate::asked::Accepted;
use crate::auth;
use crate::desired::pod_monitor_resource;
use crate::form::Digest;
use crate::names::Names;
use crate::observed::{AlarmKind, ClusterId, MemberId, Observed, Ordinal};
use crate::plan::Action;
use crate::restores::Replacement;
use crate::tls::{Copy, Purpose, Scheme, Schemes, Section, Stage, certificate_resource};
use crate::version::Version;
pub use http::{Target, http};

/// Whatever is sent to change something.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Kube(Write),
    Etcd(Call),
    /// To the agent in this pod.
    Tell(Ordinal, News),
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub object: Object,
    pub only_if: OnlyIf,
    pub change: Change,
}

/// What has to hold when the API server carries out a write. Otherwise it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnlyIf {
    Absent,
    /// It is still the object with this UID.
    Same(String),
    /// It is still the object with this UID, and has this resource version.
    Unchanged(String, String),
}

/// An object of a cluster, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Object {
    Cluster,
    Order,
    Form,
    Set,
    Pod(Ordinal),
    Preflight(Ordinal),
    Claim(Ordinal),
    Secret(Purpose),
    Service(Role),
    Budget,
    NetworkPolicy,
    /// In which the operator asks cert-manager for the certificate of the client port.
    Certificate,
    /// For the Prometheus operator.
    PodMonitor,
}

/// What a Service is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    Peer,
    Client,
    NodePort,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Peer, Self::Client, Self::NodePort];
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    AddFinalizer,
    RemoveFinalizer,
    RecordFormed(ClusterId, Timestamp),
    /// Which recovery the data comes from.
    RecordIncarnation(String),
    /// What the members have from now on.
    ReplaceData(Replacement, Timestamp),
    /// What the volumes are called.
    RecordVolumes(String),
    /// An order for a recovery.
    CreateRecovery,
    /// With the survivor, and the UID of the pod that it runs in.
    ArmRecovery(Ordinal, String),
    /// What users asked for and is accepted.
    Accept(Accepted),
    /// All of its status that is ours.
    Report(Box<EtcdClusterStatus>),
    /// An order of this size.
    CreateOrder(u8),
    ArmOrder(u8),
    /// A StatefulSet with this many pods.
    CreateSet(u8),
    SetReplicas(u8),
    /// Pods are created in this form.
    SetTemplate(Digest),
    /// All members have this form.
    RecordForm(Digest),
    /// The logs of these members have no entries of 3.5.
    RecordCleared(BTreeSet<MemberId>),
    /// Whether `spec.security.tls` takes effect.
    RecordTls(Section),
    /// A new certificate for this.
    Issue(Purpose),
    /// The certificate of the client port that a user has issued, at this time.
    Copy(Copy, Timestamp),
    /// A step from an authority to its successor.
    Rotate(Purpose, Stage),
    /// A pod that tries the wanted form on this node.
    CreatePreflight(String),
    /// From a previous cluster of this name.
    Adopt,
    /// Of a claim: its data was replaced by the EtcdRestore with this UID.
    Retire(String),
    /// Writes down whose data a claim holds.
    Label(MemberId),
    /// What a claim asks for, in bytes.
    Resize(u64),
    /// Deletes it, and leaves what it owns.
    Orphan,
    /// The object as it should be.
    Create(Value),
    Apply(Value),
    /// These fields of it; null removes one.
    Merge(Value),
    Delete,
    /// Of a pod, which has this many seconds to end. With 0, nothing confirms that it has ended.
    DeleteWithin(u32),
    /// Of a pod, if its disruption budget allows.
    Evict,
}

/// A change of the members or the users of this cluster, through the etcd in one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub via: Ordinal,
    pub cluster: ClusterId,
    pub change: MemberChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Its peer URL has this scheme.
    AddLearner(Ordinal, Scheme),
    Promote(MemberId),
    /// The peer URLs of the member in this pod.
    UpdatePeerUrls(MemberId, Ordinal, Schemes),
    MoveLeader {
        from: MemberId,
        to: MemberId,
    },
    Remove(MemberId),
    EnableDowngrade(Version),
    CancelDowngrade,
    Auth(auth::Step),
    Compact(i64),
    /// Of the member that is called.
    Defragment(MemberId),
    Disarm(AlarmKind),
}

/// The request that carries out an action, with what was observed as its precondition. None if no member can be called.
/// `turn` counts the refusals of etcd so far: each member decides by its own connections whether one can be added or
/// removed, and might have missed that a member returned, so the next one is called. A promotion is decided by the leader,
/// whichever member is called.
pub fn request(action: &Action, seen: &Observed, turn: usize) -> Option<Request> {
    let versions = &seen.versions;
    let write = |object, only_if, change| Some(Request::Kube(Write { object, only_if, change }));
    let delete = |object, uid: &String| write(object, OnlyIf::Same(uid.clone()), Change::Delete);
    let unchanged = |object, uid: &String, version: Option<&String>, change| {
        write(object, OnlyIf::Unchanged(uid.clone(), version?.clone()), change)
    };
    let etcd_cluster =
        |change| unchanged(Object::Cluster, &seen.cluster.uid, versions.cluster.as_ref(), change);
    let claim = |it, uid, change| unchanged(Object::Claim(it), uid, versions.claims.get(&it), change);
    let call = |cluster: ClusterId, leaving, turn, change| {
        seen.etcd.members.known().filter(|members| members.cluster == cluster)?;
        let via = *seen.endpoints(leaving).iter().cycle().nth(turn)?;
        Some(Request::Etcd(Call { via, cluster, change }))
    };
    match *action {
        Action::AddFinalizer => etcd_cluster(Change::AddFinalizer),
        Action::RemoveFinalizer => etcd_cluster(Change::RemoveFinalizer),
        Action::RecordFormed { cluster } => etcd_cluster(Change::RecordFormed(cluster, seen.now)),
        Action::RecordIncarnation { ref incarnation } => {
            etcd_cluster(Change::RecordIncarnation(incarnation.clone()))
        }
        Action::ReplaceData { ref replacement } => {
            etcd_cluster(Change::ReplaceData(replacement.clone(), seen.now))
        }
        Action::RecordVolumes { ref volumes } => etcd_cluster(Change::RecordVolumes(volumes.clone())),
        Action::RetireClaim { ordinal, ref uid, ref by } => claim(ordinal, uid, Change::Retire(by.clone())),
        Action::PrepareRecovery => write(Object::Order, OnlyIf::Absent, Change::CreateRecovery),
        Action::ArmRecovery { ref uid, survivor, ref pod } => {
            let change = Change::ArmRecovery(survivor, pod.clone());
            unchanged(Object::Order, uid, versions.order.as_ref(), change)
        }
        Action::EndRecovery { ref uid } => delete(Object::Order, uid),
        Action::Accept(ref accepted) => etcd_cluster(Change::Accept(accepted.clone())),
        Action::IssueCertificate { purpose, cause: _ } => {
            let (object, change) = (Object::Secret(purpose), Change::Issue(purpose));
            match seen.secrets.get(&purpose) {
                None => write(object, OnlyIf::Absent, change),
                Some(secret) => unchanged(object, &secret.uid, versions.secrets.get(&purpose), change),
            }
        }
        Action::CopyCertificate { copy } => {
            let (object, change) = (Object::Secret(Purpose::Server), Change::Copy(copy, seen.now));
            match seen.secrets.get(&Purpose::Server) {
                None => write(object, OnlyIf::Absent, change),
                Some(secret) => {
                    unchanged(object, &secret.uid, versions.secrets.get(&Purpose::Server), change)
                }
            }
        }
        Action::RotateAuthority { purpose, stage } => {
            let (uid, version) = (&seen.secrets.get(&purpose)?.uid, versions.secrets.get(&purpose));
            unchanged(Object::Secret(purpose), uid, version, Change::Rotate(purpose, stage))
        }
        Action::CreateOrder { size } => write(Object::Order, OnlyIf::Absent, Change::CreateOrder(size)),
        Action::ArmOrder { ref uid } => {
            let size = seen.order.as_ref()?.size;
            unchanged(Object::Order, uid, versions.order.as_ref(), Change::ArmOrder(size))
        }
        Action::DeleteOrder { ref uid } => delete(Object::Order, uid),
        // Nothing but the number is changed: the pod template stays as it is.
        Action::SetReplicas { replicas } => match &seen.set {
            None => write(Object::Set, OnlyIf::Absent, Change::CreateSet(replicas)),
            Some(set) => {
                unchanged(Object::Set, &set.uid, versions.set.as_ref(), Change::SetReplicas(replicas))
            }
        },
        Action::AdoptClaim { ordinal, ref uid } => claim(ordinal, uid, Change::Adopt),
        Action::LabelClaim { ordinal, ref uid, member } => claim(ordinal, uid, Change::Label(member)),
        Action::DeleteClaim { ordinal, ref uid } => claim(ordinal, uid, Change::Delete),
        Action::DeletePod { ordinal, ref uid } => delete(Object::Pod(ordinal), uid),
        Action::ForceDeletePod { ordinal, ref uid } => {
            write(Object::Pod(ordinal), OnlyIf::Same(uid.clone()), Change::DeleteWithin(0))
        }
        Action::EvictPod { ordinal, ref uid } => {
            write(Object::Pod(ordinal), OnlyIf::Same(uid.clone()), Change::Evict)
        }
        Action::SetTemplate { ref form } => {
            let change = Change::SetTemplate(form.clone());
            unchanged(Object::Set, &seen.set.as_ref()?.uid, versions.set.as_ref(), change)
        }
        Action::RecordForm { ref form } => {
            let change = Change::RecordForm(form.clone());
            match &seen.record {
                None => write(Object::Form, OnlyIf::Absent, change),
                Some(record) => unchanged(Object::Form, &record.uid, versions.record.as_ref(), change),
            }
        }
        Action::RecordCleared { ref members } => {
            let change = Change::RecordCleared(members.clone());
            unchanged(Object::Form, &seen.record.as_ref()?.uid, versions.record.as_ref(), change)
        }
        Action::RecordTls { ref section } => {
            let change = Change::RecordTls(section.clone());
            unchanged(Object::Form, &seen.record.as_ref()?.uid, versions.record.as_ref(), change)
        }
        Action::CreatePreflight { ordinal, ref node } => {
            write(Object::Preflight(ordinal), OnlyIf::Absent, Change::CreatePreflight(node.clone()))
        }
        Action::DeletePreflight { ordinal, ref uid } => delete(Object::Preflight(ordinal), uid),
        Action::DeleteSet { ref uid } => delete(Object::Set, uid),
        Action::OrphanSet { ref uid } => unchanged(Object::Set, uid, versions.set.as_ref(), Change::Orphan),
        Action::AddLearner { ordinal, cluster } => {
            let own = seen.pods.get(&ordinal).and_then(|pod| pod.transport);
            let scheme = own.or(seen.transport).unwrap_or_default().peers.scheme();
            call(cluster, None, turn, MemberChange::AddLearner(ordinal, scheme))
        }
        Action::UpdatePeerUrls { ordinal, member, schemes, cluster } => {
            call(cluster, None, turn, MemberChange::UpdatePeerUrls(member, ordinal, schemes))
        }
        Action::Promote { member, cluster, .. } => call(cluster, None, 0, MemberChange::Promote(member)),
        Action::MoveLeader { from, to, cluster } => {
            let via = seen.serves_as(from, cluster)?;
            Some(Request::Etcd(Call { via, cluster, change: MemberChange::MoveLeader { from, to } }))
        }
        Action::EnableDowngrade { to, cluster } | Action::ForceSnapshots { to, cluster } => {
            call(cluster, None, turn, MemberChange::EnableDowngrade(to))
        }
        Action::CancelDowngrade { cluster } => call(cluster, None, turn, MemberChange::CancelDowngrade),
        Action::ChangeAuth { step, cluster } => call(cluster, None, turn, MemberChange::Auth(step)),
        Action::Compact { revision, cluster } => call(cluster, None, turn, MemberChange::Compact(revision)),
        Action::Disarm { kind, cluster } => call(cluster, None, turn, MemberChange::Disarm(kind)),
        Action::Defragment { member, cause: _, cluster } => {
            let via = seen.serves_as(member, cluster)?;
            Some(Request::Etcd(Call { via, cluster, change: MemberChange::Defragment(member) }))
        }
        Action::RemoveMember { member, cluster } => {
            call(cluster, Some(member), turn, MemberChange::Remove(member))
        }
    }
}

/// The write of a status that was computed from this object.
pub fn report(cluster: &EtcdCluster, status: EtcdClusterStatus) -> Option<Write> {
    let only_if = OnlyIf::Unchanged(cluster.uid()?, cluster.resource_version()?);
    Some(Write { object: Object::Cluster, only_if, change: Change::Report(status.into()) })
}

impl Object {
    pub fn name(self, names: &Names) -> String {
        match self {
            Self::Cluster | Self::Set | Self::Budget | Self::NetworkPolicy | Self::PodMonitor => {
                names.cluster.clone()
            }
            Self::Order => names.order(),
            Self::Form => names.form(),
            Self::Pod(ordinal) => names.pod(ordinal),
            Self::Preflight(ordinal) => names.preflight(ordinal),
            Self::Claim(ordinal) => names.claim(ordinal),
            Self::Secret(purpose) => names.secret(purpose),
            Self::Service(Role::Peer) => names.peer_service(),
            Self::Service(Role::Client) => names.client_service(),
            Self::Service(Role::NodePort) => names.node_port_service(),
            Self::Certificate => names.issued(),
        }
    }

    /// `Service kv-client`
    pub fn title(self, names: &Names) -> String {
        format!("{} {}", self.resource().kind, self.name(names))
    }

    pub fn resource(self) -> ApiResource {
        fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
            ApiResource::erase::<K>(&())
        }
        match self {
            Self::Cluster => of::<EtcdCluster>(),
            Self::Order | Self::Form => of::<ConfigMap>(),
            Self::Set => of::<StatefulSet>(),
            Self::Pod(_) | Self::Preflight(_) => of::<Pod>(),
            Self::Claim(_) => of::<PersistentVolumeClaim>(),
            Self::Secret(_) => of::<Secret>(),
            Self::Service(_) => of::<Service>(),
            Self::Budget => of::<PodDisruptionBudget>(),
            Self::NetworkPolicy => of::<NetworkPolicy>(),
            Self::Certificate => certificate_resource(),
            Self::PodMonitor => pod_monitor_resource(),
        }
    }
}
