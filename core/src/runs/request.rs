//! What is sent to the API server for a backup.

use http::Request;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::core::Request as Builder;
use kube::core::Resource;
use kube::core::params::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use super::outcome::Run;
use crate::api::{EtcdBackup, EtcdBackupStatus};
use crate::names::FIELD_MANAGER;

const VALID: &str = "names of objects are valid in a URL, and objects are JSON";

/// Of a Job, or of what it needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// If there is none of this name.
    Create(Box<Job>),
    /// With a token that nobody has, if there is none of this name.
    Token(Box<Secret>),
    /// If it is still the one with this UID.
    Delete { namespace: String, name: String, uid: String },
}

impl Write {
    pub(super) fn delete(namespace: &str, run: &Run) -> Self {
        Self::Delete { namespace: namespace.to_owned(), name: run.job.clone(), uid: run.uid.clone() }
    }
}

pub fn http(write: &Write) -> Request<Vec<u8>> {
    let jobs = |namespace: &str| Builder::new(Job::url_path(&(), Some(namespace)));
    let post = || PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    let request = match write {
        Write::Create(job) => {
            let namespace = job.namespace().unwrap_or_default();
            jobs(&namespace).create(&post(), json!(job).to_string().into_bytes())
        }
        Write::Token(secret) => {
            let secrets = Builder::new(Secret::url_path(&(), secret.namespace().as_deref()));
            secrets.create(&post(), json!(secret).to_string().into_bytes())
        }
        Write::Delete { namespace, name, uid } => {
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            jobs(namespace).delete(name, &DeleteParams::background().preconditions(preconditions))
        }
    };
    request.expect(VALID)
}

/// Writes a status, if the EtcdBackup is still as it was read.
pub fn report(backup: &EtcdBackup, status: &EtcdBackupStatus) -> Request<Vec<u8>> {
    let change = json!({
        "apiVersion": EtcdBackup::api_version(&()),
        "kind": EtcdBackup::kind(&()),
        "metadata": {"resourceVersion": backup.resource_version(), "uid": backup.uid()},
        "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let url = EtcdBackup::url_path(&(), backup.namespace().as_deref());
    let request =
        Builder::new(url).patch_subresource("status", &backup.name_any(), &parameters, &Patch::Apply(change));
    request.expect(VALID)
}
