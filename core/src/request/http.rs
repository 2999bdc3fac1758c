//! A write as the API server reads it.

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::params::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, Request as Builder, Resource};
use serde_json::{Value, json};

use super::{Change, OnlyIf, Write};
use crate::agent::Protocol;
use crate::api::EtcdCluster;
use crate::desired::Desired;
use crate::names::{CLUSTER_UID_LABEL, FIELD_MANAGER, FINALIZER, MEMBER_ID_LABEL, Names};
use crate::observed::Ordinal;
use crate::order::BootstrapOrder;

/// What writes are rendered with.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// As it was observed.
    pub cluster: &'a EtcdCluster,
    pub names: &'a Names,
    /// None for a spec that breaks the rules: such a cluster can still be deleted.
    pub desired: Option<&'a Desired<'a>>,
}

/// The first attempt. A bootstrap that failed is given up with everything that it left, so there is no second.
const ATTEMPT: u32 = 1;
/// Until it is armed, no agent reads an order.
const UNARMED: &str = "unarmed";

/// None if the write needs a valid spec.
pub fn http(write: &Write, target: Target<'_>) -> Option<Request<Vec<u8>>> {
    let Write { object, only_if, change } = write;
    let Target { cluster, names, desired } = target;
    let url = DynamicObject::url_path(&object.resource(), Some(&names.namespace));
    let (api, name, apply) =
        (Builder::new(url), object.name(names), PatchParams::apply(FIELD_MANAGER).force());
    let create = |object: Value| api.create(&post(), object.to_string().into_bytes());
    let merge = |change: Value| api.patch(&name, &field_manager(), &Patch::Merge(only_if.inside(change)));
    let label = |label: &str, value: String| merge(json!({"metadata": {"labels": {label: value}}}));
    let request = match change {
        Change::AddFinalizer => merge(finalizers(cluster, Some(FINALIZER))),
        Change::RemoveFinalizer => merge(finalizers(cluster, None)),
        Change::RecordFormed(id, at) => {
            let change = json!({"status": {"clusterID": id.to_string(), "formedAt": Time(*at)}});
            let change = only_if.inside(change);
            api.patch_subresource("status", &name, &field_manager(), &Patch::Merge(change))
        }
        Change::Report(status) => {
            let ApiResource { api_version, kind, .. } = object.resource();
            let change = only_if.inside(json!({"apiVersion": api_version, "kind": kind, "status": status}));
            api.patch_subresource("status", &name, &apply, &Patch::Apply(change))
        }
        Change::CreateOrder(size) => create(order(desired?, *size, None)),
        // The nonce is the object's UID: no other order will ever have it, and a repeated write is the same.
        Change::ArmOrder(size) => {
            let armed = only_if.inside(order(desired?, *size, only_if.uid()));
            api.replace(&name, &post(), armed.to_string().into_bytes())
        }
        Change::CreateSet(replicas) => create(json!(desired?.stateful_set(*replicas))),
        Change::SetReplicas(replicas) => merge(json!({"spec": {"replicas": replicas}})),
        Change::Adopt => label(CLUSTER_UID_LABEL, cluster.uid().unwrap_or_default()),
        Change::Label(member) => label(MEMBER_ID_LABEL, member.to_string()),
        Change::Create(object) => create(object.clone()),
        Change::Apply(object) => api.patch(&name, &apply, &Patch::Apply(only_if.inside(object.clone()))),
        Change::Delete => api.delete(&name, &only_if.deletion()),
        Change::DeleteWithin(seconds) => api.delete(&name, &only_if.deletion().grace_period(*seconds)),
    };
    Some(request.expect("names of objects are valid in a URL, and objects are JSON"))
}

impl OnlyIf {
    fn uid(&self) -> Option<&str> {
        match self {
            Self::Absent => None,
            Self::Same(uid) | Self::Unchanged(uid, _) => Some(uid),
        }
    }

    fn version(&self) -> Option<&str> {
        match self {
            Self::Absent | Self::Same(_) => None,
            Self::Unchanged(_, version) => Some(version),
        }
    }

    /// In the metadata of what is written.
    fn inside(&self, mut object: Value) -> Value {
        for (field, value) in [("uid", self.uid()), ("resourceVersion", self.version())] {
            if let Some(value) = value {
                object["metadata"][field] = value.into();
            }
        }
        object
    }

    fn deletion(&self) -> DeleteParams {
        let (uid, resource_version) = (self.uid().map(str::to_owned), self.version().map(str::to_owned));
        DeleteParams::background().preconditions(Preconditions { uid, resource_version })
    }
}

/// All of them, with ours or without.
fn finalizers(cluster: &EtcdCluster, ours: Option<&str>) -> Value {
    let others = cluster.finalizers().iter().map(String::as_str).filter(|it| *it != FINALIZER);
    json!({"metadata": {"finalizers": others.chain(ours).collect::<Vec<_>>()}})
}

/// Armed with this nonce.
fn order(desired: &Desired<'_>, size: u8, nonce: Option<&str>) -> Value {
    let members = Ordinal::below(size).map(|it| (desired.names.pod(it), desired.names.peer_url(it)));
    json!(desired.order(&BootstrapOrder {
        protocol_version: Protocol::CURRENT,
        cluster_uid: desired.intent.uid.clone(),
        attempt: ATTEMPT,
        armed: nonce.is_some(),
        nonce: nonce.unwrap_or(UNARMED).to_owned(),
        members: members.collect(),
    }))
}

fn post() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }
}

fn field_manager() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}
