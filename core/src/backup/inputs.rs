//! The inputs of a run: one JSON document, without secrets.

use serde::{Deserialize, Serialize};

use super::FormatVersion;
use super::layout::cluster_id;
use super::manifest::{Compression, Encryption, Verification};
use super::retention::Retention;
use crate::observed::ClusterId;

/// Has the inputs as JSON, where there is no file with them.
pub const INPUTS_VARIABLE: &str = "ETCD_BACKUP_INPUTS";
/// For how long requests to a store are repeated.
pub const RETRY_SECONDS: u64 = 60;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    #[serde(default = "current")]
    pub format_version: FormatVersion,
    pub store: Store,
    /// Where to take a snapshot from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
    /// Whose copies these are, as etcdctl prints it. A snapshot of another cluster is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    #[serde(default)]
    pub compression: Compression,
    /// Public keys of age (`age1...`). With any, copies are encrypted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
    #[serde(default)]
    pub verification: Verification,
    #[serde(default)]
    pub retention: Retention,
}

fn current() -> FormatVersion {
    FormatVersion::CURRENT
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Store {
    #[serde(flatten)]
    pub place: Place,
    /// What the names of all objects begin with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// A file with certificates of authorities that are trusted beside those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// A directory with one file for each credential, named like the environment variable that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_directory: Option<String>,
    #[serde(default = "retry_seconds")]
    pub retry_seconds: u64,
}

fn retry_seconds() -> u64 {
    RETRY_SECONDS
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Place {
    S3 {
        bucket: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        region: Option<String>,
        /// Default: AWS.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        endpoint: Option<String>,
        /// The bucket is in the path of URLs, not in the host name. Default: with an endpoint.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        force_path_style: Option<bool>,
    },
    #[serde(rename = "GCS")]
    Gcs {
        bucket: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        endpoint: Option<String>,
    },
    Azure {
        account: String,
        container: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        endpoint: Option<String>,
    },
    /// A mounted volume.
    Local { directory: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Etcd {
    /// The client URL of each member.
    pub endpoints: Vec<String>,
    /// Needed for `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// Files, as a Secret with a certificate has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    pub ca_file: String,
    pub cert_file: String,
    pub key_file: String,
}

impl Inputs {
    /// The first thing that is wrong with them: the field, and what to write instead.
    pub fn problem(&self) -> Option<String> {
        let empty = match &self.store.place {
            Place::S3 { bucket, .. } | Place::Gcs { bucket, .. } if bucket.is_empty() => Some("store.bucket"),
            Place::Azure { account, .. } if account.is_empty() => Some("store.account"),
            Place::Azure { container, .. } if container.is_empty() => Some("store.container"),
            Place::Local { directory } if directory.is_empty() => Some("store.directory"),
            Place::S3 { .. } | Place::Gcs { .. } | Place::Azure { .. } | Place::Local { .. } => None,
        };
        if let Some(field) = empty {
            return Some(format!("{field} is empty: give a value"));
        }
        if self.store.path.split('/').any(|part| part == "..") {
            return Some("store.path contains `..`: give a path inside the store".into());
        }
        if let Some(id) = self.cluster_id.as_deref().filter(|id| cluster_id(id).is_none()) {
            return Some(format!(
                "clusterId {id:?} is not an ID as etcdctl prints it, such as cdf818194e3a8c32"
            ));
        }
        if self.verification == Verification::Checksum && !matches!(self.store.place, Place::S3 { .. }) {
            return Some(
                "verification Checksum works with S3 only, other stores compare none: use ReadBack".into(),
            );
        }
        self.etcd.as_ref().and_then(Etcd::problem)
    }

    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster_id.as_deref().and_then(cluster_id)
    }

    pub fn encryption(&self) -> Encryption {
        if self.recipients.is_empty() { Encryption::None } else { Encryption::Age }
    }
}

impl Etcd {
    fn problem(&self) -> Option<String> {
        if self.endpoints.is_empty() {
            return Some("etcd.endpoints is empty: give the client URL of each member".into());
        }
        self.endpoints.iter().find_map(|endpoint| match endpoint.split_once("://") {
            Some(("http", _)) => None,
            Some(("https", _)) if self.tls.is_some() => None,
            Some(("https", _)) => {
                Some(format!("etcd.endpoints has {endpoint}, and etcd.tls is missing: give its files"))
            }
            _ => Some(format!("etcd.endpoints has {endpoint:?}, which is not a URL with http or https")),
        })
    }
}

impl Place {
    /// As users know it.
    pub fn location(&self) -> String {
        match self {
            Self::S3 { bucket, .. } => format!("s3://{bucket}"),
            Self::Gcs { bucket, .. } => format!("gs://{bucket}"),
            Self::Azure { account, container, .. } => format!("azure://{account}/{container}"),
            Self::Local { directory } => format!("file://{directory}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn inputs(changes: Value) -> Inputs {
        let mut all = json!({
            "store": {"type": "S3", "bucket": "b"},
            "etcd": {"endpoints": ["http://kv-0:2379"]},
        });
        for (field, value) in changes.as_object().expect("an object") {
            all[field] = value.clone();
        }
        serde_json::from_value(all).expect("inputs")
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let inputs = inputs(json!({"fieldOfALaterVersion": 1}));
        assert_eq!(inputs.problem(), None);
        assert_eq!(inputs.verification, Verification::ReadBack);
        assert_eq!((inputs.compression, inputs.encryption()), (Compression::None, Encryption::None));
        assert_eq!(inputs.store.retry_seconds, RETRY_SECONDS);
    }

    #[test]
    fn wrong_inputs_are_refused_with_the_field_and_the_way_out() {
        let tls = json!({"endpoints": ["https://kv-0:2379"]});
        for (changes, part) in [
            (json!({"store": {"type": "S3", "bucket": ""}}), "store.bucket is empty"),
            (json!({"store": {"type": "Azure", "account": "", "container": "c"}}), "store.account is empty"),
            (
                json!({"store": {"type": "Azure", "account": "a", "container": ""}}),
                "store.container is empty",
            ),
            (json!({"store": {"type": "Local", "directory": ""}}), "store.directory is empty"),
            (json!({"store": {"type": "S3", "bucket": "b", "path": "a/../b"}}), "store.path contains"),
            (json!({"clusterId": "kv"}), "clusterId \"kv\" is not an ID"),
            (json!({"etcd": {"endpoints": []}}), "etcd.endpoints is empty"),
            (json!({"etcd": {"endpoints": ["kv-0:2379"]}}), "is not a URL"),
            (json!({"etcd": tls}), "etcd.tls is missing"),
            (
                json!({"store": {"type": "GCS", "bucket": "b"}, "verification": "Checksum"}),
                "works with S3 only, other stores compare none: use ReadBack",
            ),
        ] {
            let problem = inputs(changes.clone()).problem().unwrap_or_default();
            assert!(problem.contains(part), "{changes}: {problem}");
        }
    }

    #[test]
    fn a_local_directory_can_have_no_checksum_verification() {
        let local = json!({"store": {"type": "Local", "directory": "/d"}, "verification": "Checksum"});
        assert!(inputs(local).problem().is_some());
    }
}
