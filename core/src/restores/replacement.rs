//! What an EtcdRestore writes on the EtcdCluster whose data it replaces, when the new data is ready.

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::names::REPLACE_ANNOTATION;
use crate::observed::ClusterId;
use crate::tls::Scheme;
use crate::version::Version;

/// From then on the worker of the cluster carries it out, once: the data that it replaces has another cluster ID than the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// The EtcdRestore, which is in the same namespace.
    pub restore: String,
    pub uid: String,
    /// Whose data a user has agreed to replace.
    #[serde(with = "hexadecimal")]
    pub replaces: ClusterId,
    /// As which cluster etcd starts with the restored data.
    #[serde(with = "hexadecimal")]
    pub cluster: ClusterId,
    /// What the new volumes are called.
    pub volumes: String,
    /// The UID of the claim with the restored data, which is that of the first member.
    pub claim: String,
    /// What the data was made for.
    pub version: Version,
    pub peers: Scheme,
    /// Clients have to notice: the restored data begins with this revision, which is above every one that they have seen. None if a
    /// user does not want that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<i64>,
}

impl Replacement {
    /// None if there is none, or none that can be read.
    pub fn on(cluster: &impl ResourceExt) -> Option<Self> {
        serde_json::from_str(cluster.annotations().get(REPLACE_ANNOTATION)?).ok()
    }
}

/// As etcdctl prints IDs.
mod hexadecimal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::observed::ClusterId;

    pub fn serialize<S: Serializer>(id: &ClusterId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ClusterId, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(ClusterId).map_err(D::Error::custom)
    }
}
