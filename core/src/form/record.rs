//! The last form that all members ran together. It is an object of its own: when an edit fails at the second member, neither
//! the spec nor a majority of the pods has the form to return to.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};

use super::{Digest, Form};
use crate::observed::MemberId;
use crate::tls::Section;

/// In the ConfigMap.
pub const KEY: &str = "form.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub digest: Digest,
    pub form: Form,
    /// Pods that were created before forms were recorded carry no digest. They all have this form.
    #[serde(default, skip_serializing_if = "is_false")]
    pub of_unmarked_pods: bool,
    /// The generation of the EtcdCluster whose edits an earlier operator did not roll out. They wait for the next edit: an
    /// upgrade of the operator alone restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_generation: Option<i64>,
    /// The previous cluster whose volumes were adopted. They name it for ever, while users remove the annotation and the
    /// StatefulSet is created again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopts: Option<String>,
    /// Members that etcd 3.7 can be started for: their logs have no entries of 3.5.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cleared: BTreeSet<MemberId>,
    /// None if it was written by an operator that could not change the transport of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Section>,
}

impl Record {
    /// None if it cannot be read: then nothing is recorded.
    pub fn parse(object: &ConfigMap) -> Option<Self> {
        serde_json::from_str(object.data.as_ref()?.get(KEY)?).ok()
    }

    pub fn data(&self) -> BTreeMap<String, String> {
        let text = serde_json::to_string(self).expect("text and numbers are always JSON");
        BTreeMap::from([(KEY.into(), text)])
    }
}

fn is_false(value: &bool) -> bool {
    !value
}
