//! What the operator requests, in one word each.

use crate::plan::Action;
use crate::request::{Object, Request};
use crate::round::Outcome;

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effect(pub &'static str);

impl From<&Action> for Effect {
    fn from(action: &Action) -> Self {
        Self(match action {
            Action::AddFinalizer => "AddFinalizer",
            Action::RemoveFinalizer => "RemoveFinalizer",
            Action::RecordFormed { .. } => "RecordClusterID",
            Action::PrepareRecovery => "PrepareRecovery",
            Action::ArmRecovery { .. } => "StartRecovery",
            Action::RecordIncarnation { .. } => "RecordIncarnation",
            Action::EndRecovery { .. } => "EndRecovery",
            Action::RetireClaim { .. } => "RetireVolume",
            Action::ReplaceData { .. } => "ReplaceData",
            Action::RecordVolumes { .. } => "RecordVolumes",
            Action::IssueCertificate { .. } => "IssueCertificate",
            Action::CopyCertificate { .. } => "CopyCertificate",
            Action::RotateAuthority { .. } => "RotateAuthority",
            Action::CreateOrder { .. } => "PrepareBootstrap",
            Action::ArmOrder { .. } => "AllowBootstrap",
            Action::DeleteOrder { .. } => "EndBootstrap",
            Action::SetReplicas { .. } => "SetReplicas",
            Action::AdoptClaim { .. } => "AdoptVolume",
            Action::LabelClaim { .. } => "LabelVolume",
            Action::DeleteClaim { .. } => "DeleteVolume",
            Action::DeletePod { .. } => "DeletePod",
            Action::EvictPod { .. } => "EvictPod",
            Action::DeleteSet { .. } => "DeleteStatefulSet",
            Action::OrphanSet { .. } => "RecreateStatefulSet",
            Action::CreatePreflight { .. } => "CreatePreflight",
            Action::DeletePreflight { .. } => "DeletePreflight",
            Action::RecordForm { .. } => "RecordForm",
            Action::RecordTls { .. } => "RecordTLS",
            Action::SetTemplate { .. } => "SetTemplate",
            Action::EnableDowngrade { .. } => "EnableDowngrade",
            Action::CancelDowngrade { .. } => "CancelDowngrade",
            Action::ForceSnapshots { .. } => "SaveSnapshots",
            Action::RecordCleared { .. } => "RecordSnapshots",
            Action::Accept(_) => "AcceptRequest",
            Action::AddLearner { .. } => "AddLearner",
            Action::Promote { .. } => "PromoteLearner",
            Action::UpdatePeerUrls { .. } => "UpdatePeerURLs",
            Action::MoveLeader { .. } => "MoveLeader",
            Action::ForceDeletePod { .. } => "ForceDeletePod",
            Action::RemoveMember { .. } => "RemoveMember",
            Action::ChangeAuth { .. } => "ChangeAuth",
            Action::Compact { .. } => "Compact",
            Action::Defragment { .. } => "Defragment",
            Action::Disarm { .. } => "DisarmAlarm",
        })
    }
}

/// For what is written beside the steps of a plan.
impl From<&Request> for Effect {
    fn from(request: &Request) -> Self {
        Self(match request {
            Request::Kube(write) => match write.object {
                Object::Cluster => "WriteStatus",
                Object::Order | Object::Form => "WriteConfigMap",
                Object::Set => "WriteStatefulSet",
                Object::Pod(_) | Object::Preflight(_) => "WritePod",
                Object::Claim(_) => "WriteVolume",
                Object::Secret(_) => "WriteSecret",
                Object::Service(_) => "WriteService",
                Object::Budget => "WriteDisruptionBudget",
                Object::NetworkPolicy => "WriteNetworkPolicy",
                Object::Certificate => "WriteCertificate",
                Object::PodMonitor => "WritePodMonitor",
            },
            Request::Etcd(_) => "ChangeMembers",
            Request::Tell(..) => "SendMessage",
        })
    }
}

pub fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Overtaken => "conflict",
        Outcome::NotDone(trouble) if trouble.is_wait() => "rejected",
        Outcome::NotDone(_) => "failed",
        Outcome::Ambiguous(_) => "no_response",
    }
}
