//! What says on an object which EtcdRestore created it.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::api::EtcdRestore;
use crate::names::RESTORE_ANNOTATION;

/// Names of Jobs become labels of their pods, which have at most 63 characters.
const LONGEST_NAME: usize = 32;
const UID_DIGITS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The EtcdRestore, which is in the same namespace.
    pub name: String,
    pub uid: String,
    /// Of a Job: the claim whose volume it prepares, and how often the attempt was repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    pub claim_uid: String,
    pub retries: u32,
    pub generation: i64,
    /// Of data that replaces that of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
}

/// Whose data a Job makes, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    pub member_id: String,
    pub cluster_id: String,
    pub version: String,
    pub peer_tls: bool,
}

impl Mark {
    pub fn on(object: &impl ResourceExt) -> Option<Self> {
        serde_json::from_str(object.annotations().get(RESTORE_ANNOTATION)?).ok()
    }

    pub(super) fn of(restore: &EtcdRestore) -> Self {
        Self { name: restore.name_any(), uid: restore.uid().unwrap_or_default(), attempt: None }
    }

    pub(super) fn annotation(&self) -> BTreeMap<String, String> {
        let text = serde_json::to_string(self).expect("text and numbers are always JSON");
        BTreeMap::from([(RESTORE_ANNOTATION.into(), text)])
    }

    pub(super) fn is_of(&self, restore: &EtcdRestore) -> bool {
        Some(&self.uid) == restore.uid().as_ref()
    }

    /// The same for the same attempt, so that a repeated creation creates nothing.
    pub(super) fn job_name(&self) -> String {
        let name: String = self.name.replace('.', "-").chars().take(LONGEST_NAME).collect();
        let uid: String = self.uid.chars().take(UID_DIGITS).collect();
        let retries = self.attempt.as_ref().map_or(0, |attempt| attempt.retries);
        format!("{}-{uid}-restore-{retries}", name.trim_end_matches('-'))
    }
}
