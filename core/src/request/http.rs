//! A write as the API server reads it.

use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::params::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, Request as Builder, Resource};
use serde_json::{Value, json};

use super::{Change, Object, OnlyIf, Write};
use crate::agent::Protocol;
use crate::api::{EtcdCluster, Quantity};
use crate::asked::Accepted;
use crate::desired::{Desired, secret};
use crate::form::{Digest, Form, Record, adopts};
use crate::names::{
    CLUSTER_UID_LABEL, COPIED_ANNOTATION, FIELD_MANAGER, FINALIZER, MEMBER_ID_LABEL, Names, REPLACED_BY_LABEL,
};
use crate::observed::Ordinal;
use crate::order::BootstrapOrder;
use crate::recovery::{ForcedStart, RecoveryOrder};

/// What writes are rendered with.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// As it was observed.
    pub cluster: &'a EtcdCluster,
    pub names: &'a Names,
    /// None for a spec that breaks the rules: such a cluster can still be deleted.
    pub desired: Option<&'a Desired<'a>>,
    pub set: Option<&'a StatefulSet>,
    pub record: Option<&'a Record>,
    /// The content of a Secret that is written: keys are not made in here.
    pub issued: Option<&'a BTreeMap<String, ByteString>>,
}

impl Target<'_> {
    /// A form that is wanted, recorded, or what the StatefulSet creates pods from.
    fn form(&self, digest: &Digest) -> Option<Form> {
        let wanted = self.desired.map(|desired| &desired.intent.form).filter(|form| form.digest() == *digest);
        let recorded = self.record.filter(|record| record.digest == *digest).map(|record| &record.form);
        let there = || {
            let template = &self.set?.spec.as_ref()?.template;
            let form = Form::read(template)?;
            let has_it = self.mark().unwrap_or_else(|| form.digest()) == *digest;
            has_it.then_some(form)
        };
        wanted.or(recorded).cloned().or_else(there)
    }

    /// Of the template of the StatefulSet.
    fn mark(&self) -> Option<Digest> {
        Digest::on(self.set?.spec.as_ref()?.template.metadata.as_ref()?)
    }

    /// Pods without a digest have the form of the first record. What an earlier operator did not roll out waits. A StatefulSet
    /// is created again without what its template knows, so the record has that, too.
    fn record_of(&self, digest: &Digest) -> Option<Record> {
        let template = self.set.and_then(|set| Some(&set.spec.as_ref()?.template));
        let adopts = template.map_or_else(|| self.record?.adopts.clone(), adopts);
        if let Some(record) = self.record.filter(|record| record.digest == *digest) {
            return Some(Record { adopts, ..record.clone() });
        }
        let of_unmarked_pods = self.record.is_none() && self.set.is_some() && self.mark().is_none();
        let differs = self.desired.is_some_and(|desired| desired.intent.form.digest() != *digest);
        let held_generation = self.cluster.metadata.generation.filter(|_| of_unmarked_pods && differs);
        let (digest, form, cleared) = (digest.clone(), self.form(digest)?, BTreeSet::new());
        let tls = self.desired.map(|desired| desired.intent.switch.section.clone());
        Some(Record { digest, form, of_unmarked_pods, held_generation, adopts, cleared, tls })
    }
}

/// The first attempt. A bootstrap that failed is given up with everything that it left, so there is no second.
const ATTEMPT: u32 = 1;
/// Until it is armed, no agent reads an order.
const UNARMED: &str = "unarmed";

/// None if the write needs a valid spec.
pub fn http(write: &Write, target: Target<'_>) -> Option<Request<Vec<u8>>> {
    let Write { object, only_if, change } = write;
    let Target { cluster, names, desired, .. } = target;
    let url = DynamicObject::url_path(&object.resource(), Some(&names.namespace));
    let (api, name, apply) =
        (Builder::new(url), object.name(names), PatchParams::apply(FIELD_MANAGER).force());
    let create = |object: Value| api.create(&post(), object.to_string().into_bytes());
    let merge = |change: Value| api.patch(&name, &field_manager(), &Patch::Merge(only_if.inside(change)));
    let merge_status = |status: Value| {
        let change = only_if.inside(json!({"status": status}));
        api.patch_subresource("status", &name, &field_manager(), &Patch::Merge(change))
    };
    let label = |label: &str, value: String| merge(json!({"metadata": {"labels": {label: value}}}));
    let request = match change {
        Change::AddFinalizer => merge(finalizers(cluster, Some(FINALIZER))),
        Change::RemoveFinalizer => merge(finalizers(cluster, None)),
        Change::RecordFormed(id, at) => {
            merge_status(json!({"clusterID": id.to_string(), "formedAt": Time(*at)}))
        }
        Change::RecordIncarnation(incarnation) => merge_status(json!({"incarnation": incarnation})),
        // Who was a member before is none of the new cluster.
        Change::ReplaceData(data, at) => merge_status(json!({
            "clusterID": data.cluster.to_string(), "formedAt": Time(*at), "incarnation": data.uid,
            "volumeName": data.volumes, "members": null, "leaderID": null,
        })),
        Change::RecordVolumes(volumes) => merge_status(json!({"volumeName": volumes})),
        Change::Accept(Accepted::Restart { token, pods }) => {
            merge_status(json!({"requests": {"restart": {"token": token, "pods": pods}}}))
        }
        Change::Accept(Accepted::MoveLeader { token }) => {
            merge_status(json!({"requests": {"moveLeader": token}}))
        }
        Change::Accept(Accepted::Rotation { token, authorities }) => {
            merge_status(json!({"requests": {"rotateCA": {"token": token, "authorities": authorities}}}))
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
        Change::CreateRecovery => create(recovery(desired?, None, UNARMED)),
        Change::ArmRecovery(survivor, pod) => {
            let start = ForcedStart { survivor: names.pod(*survivor), replaces: pod.clone() };
            let armed = only_if.inside(recovery(desired?, Some(start), only_if.uid()?));
            api.replace(&name, &post(), armed.to_string().into_bytes())
        }
        // What all members ran together last is the form that is known to work.
        Change::CreateSet(replicas) => {
            let desired = desired?;
            create(json!(match target.record {
                Some(record) => desired.recreated_set(*replicas, record),
                None => desired.stateful_set(*replicas, &desired.intent.form),
            }))
        }
        Change::SetTemplate(form) => {
            let there = target.set.and_then(|set| adopts(&set.spec.as_ref()?.template));
            let mut template = json!(desired?.template(&target.form(form)?, there));
            template["$patch"] = "replace".into();
            let change = only_if.inside(json!({"spec": {"template": template}}));
            api.patch(&name, &field_manager(), &Patch::Strategic(change))
        }
        Change::RecordForm(form) => {
            let record = json!(desired?.record(&target.record_of(form)?));
            match only_if {
                OnlyIf::Absent => create(record),
                OnlyIf::Same(_) | OnlyIf::Unchanged(..) => {
                    api.replace(&name, &post(), only_if.inside(record).to_string().into_bytes())
                }
            }
        }
        Change::RecordCleared(members) => {
            let record =
                json!(desired?.record(&Record { cleared: members.clone(), ..target.record?.clone() }));
            api.replace(&name, &post(), only_if.inside(record).to_string().into_bytes())
        }
        Change::RecordTls(section) => {
            let record =
                json!(desired?.record(&Record { tls: Some(section.clone()), ..target.record?.clone() }));
            api.replace(&name, &post(), only_if.inside(record).to_string().into_bytes())
        }
        Change::CreatePreflight(node) => {
            let Object::Preflight(ordinal) = *object else { return None };
            create(json!(desired?.preflight(ordinal, node)?))
        }
        Change::Issue(_) | Change::Copy(..) | Change::Rotate(..) => {
            let Object::Secret(purpose) = *object else { return None };
            let content = target.issued?.clone();
            let mut secret = secret(purpose, names, &cluster.uid().unwrap_or_default(), content);
            if let Change::Copy(_, at) = change {
                secret.annotations_mut().insert(COPIED_ANNOTATION.into(), format!("{at:.0}"));
            }
            let secret = json!(secret);
            match only_if {
                OnlyIf::Absent => create(secret),
                OnlyIf::Same(_) | OnlyIf::Unchanged(..) => {
                    api.replace(&name, &post(), only_if.inside(secret).to_string().into_bytes())
                }
            }
        }
        Change::SetReplicas(replicas) => merge(json!({"spec": {"replicas": replicas}})),
        Change::Merge(fields) => merge(fields.clone()),
        Change::Adopt => label(CLUSTER_UID_LABEL, cluster.uid().unwrap_or_default()),
        Change::Retire(by) => label(REPLACED_BY_LABEL, by.clone()),
        Change::Label(member) => label(MEMBER_ID_LABEL, member.to_string()),
        Change::Create(object) => create(object.clone()),
        Change::Apply(object) => api.patch(&name, &apply, &Patch::Apply(only_if.inside(object.clone()))),
        Change::Resize(bytes) => {
            let size = Quantity::of_bytes(*bytes);
            merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}))
        }
        Change::Delete => api.delete(&name, &only_if.deletion()),
        Change::Orphan => {
            let orphaning =
                DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..only_if.deletion() };
            api.delete(&name, &orphaning)
        }
        Change::Evict => {
            // Not kube's own request for it, which loses the precondition on the way.
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
                "deleteOptions": {"preconditions": {"uid": only_if.uid()}},
            });
            api.create_subresource("eviction", &name, &post(), eviction.to_string().into_bytes())
        }
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
    let scheme = desired.intent.form.transport.peers.scheme();
    let members = Ordinal::below(size).map(|it| (desired.names.pod(it), desired.names.peer_url(scheme, it)));
    json!(desired.order(&BootstrapOrder {
        protocol_version: Protocol::CURRENT,
        cluster_uid: desired.intent.uid.clone(),
        attempt: ATTEMPT,
        armed: nonce.is_some(),
        nonce: nonce.unwrap_or(UNARMED).to_owned(),
        members: members.collect(),
    }))
}

fn recovery(desired: &Desired<'_>, start: Option<ForcedStart>, nonce: &str) -> Value {
    json!(desired.recovery(&RecoveryOrder {
        protocol_version: Protocol::CURRENT,
        cluster_uid: desired.intent.uid.clone(),
        nonce: nonce.to_owned(),
        start,
    }))
}

fn post() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }
}

fn field_manager() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}
