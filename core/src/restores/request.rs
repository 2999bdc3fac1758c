//! What is sent to the API server for a restore.

use http::Request;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::core::params::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{Request as Builder, Resource};
use serde_json::{Value, json};

use super::outcome::Run;
use super::replacement::Replacement;
use crate::api::{EtcdCluster, EtcdRestore, EtcdRestoreStatus};
use crate::names::{FIELD_MANAGER, MEMBER_ID_LABEL, REPLACE_ANNOTATION};
use crate::observed::MemberId;

const VALID: &str = "names of objects are valid in a URL, and objects are JSON";

#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Each of these, if there is none of its name.
    CreateCluster(Box<EtcdCluster>),
    CreateClaim(Box<PersistentVolumeClaim>),
    CreateJob(Box<Job>),
    /// If it is still the one with this UID. It is gone when its pod is.
    DeleteJob {
        namespace: String,
        name: String,
        uid: String,
    },
    /// If it is still the one with this UID.
    DeleteClaim {
        namespace: String,
        name: String,
        uid: String,
    },
    /// If the claim is still as it was read: its volume holds the data of this member.
    Label {
        namespace: String,
        name: String,
        uid: String,
        version: String,
        member: MemberId,
        /// Otherwise it is not deleted with the EtcdRestore any more.
        keeps_owner: bool,
    },
    /// If the EtcdCluster is still as it was read: it continues with other data, or not.
    Order {
        namespace: String,
        name: String,
        uid: String,
        version: String,
        replacement: Option<Box<Replacement>>,
    },
}

impl Write {
    pub(super) fn delete(restore: &EtcdRestore, run: &Run) -> Self {
        let namespace = restore.namespace().unwrap_or_default();
        Self::DeleteJob { namespace, name: run.job.clone(), uid: run.uid.clone() }
    }

    pub(super) fn order(cluster: &EtcdCluster, replacement: Option<Replacement>) -> Self {
        Self::Order {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            uid: cluster.uid().unwrap_or_default(),
            version: cluster.resource_version().unwrap_or_default(),
            replacement: replacement.map(Box::new),
        }
    }
}

pub fn http(write: &Write) -> Request<Vec<u8>> {
    let create = || PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    fn at<K: Resource<DynamicType = ()>>(namespace: &str) -> Builder {
        Builder::new(K::url_path(&(), Some(namespace)))
    }
    let of = |object: &dyn Fn() -> Option<String>| object().unwrap_or_default();
    let request = match write {
        Write::CreateCluster(cluster) => {
            let body = json!(cluster).to_string().into_bytes();
            at::<EtcdCluster>(&of(&|| cluster.namespace())).create(&create(), body)
        }
        Write::CreateClaim(claim) => {
            let body = json!(claim).to_string().into_bytes();
            at::<PersistentVolumeClaim>(&of(&|| claim.namespace())).create(&create(), body)
        }
        Write::CreateJob(job) => {
            let body = json!(job).to_string().into_bytes();
            at::<Job>(&of(&|| job.namespace())).create(&create(), body)
        }
        Write::DeleteJob { namespace, name, uid } => {
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            at::<Job>(namespace).delete(name, &DeleteParams::foreground().preconditions(preconditions))
        }
        Write::DeleteClaim { namespace, name, uid } => {
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let parameters = DeleteParams::background().preconditions(preconditions);
            at::<PersistentVolumeClaim>(namespace).delete(name, &parameters)
        }
        Write::Label { namespace, name, uid, version, member, keeps_owner } => {
            let mut change = json!({"metadata": {
                "uid": uid, "resourceVersion": version, "labels": {MEMBER_ID_LABEL: member.to_string()},
            }});
            if !keeps_owner {
                change["metadata"]["ownerReferences"] = Value::Null;
            }
            at::<PersistentVolumeClaim>(namespace).patch(name, &merging(), &Patch::Merge(change))
        }
        Write::Order { namespace, name, uid, version, replacement } => {
            let text = |it: &Replacement| serde_json::to_string(it).expect("text and numbers are JSON");
            let change = json!({"metadata": {
                "uid": uid, "resourceVersion": version,
                "annotations": {REPLACE_ANNOTATION: replacement.as_deref().map(text)},
            }});
            at::<EtcdCluster>(namespace).patch(name, &merging(), &Patch::Merge(change))
        }
    };
    request.expect(VALID)
}

fn merging() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

/// Writes a status, if the EtcdRestore is still as it was read.
pub fn report(restore: &EtcdRestore, status: &EtcdRestoreStatus) -> Request<Vec<u8>> {
    let change = json!({
        "apiVersion": EtcdRestore::api_version(&()),
        "kind": EtcdRestore::kind(&()),
        "metadata": {"resourceVersion": restore.resource_version(), "uid": restore.uid()},
        "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let url = EtcdRestore::url_path(&(), restore.namespace().as_deref());
    let request = Builder::new(url).patch_subresource(
        "status",
        &restore.name_any(),
        &parameters,
        &Patch::Apply(change),
    );
    request.expect(VALID)
}
