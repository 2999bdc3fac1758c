//! Which pods can connect to members.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// The pods of this namespace that can connect to the client port. `{}` selects all of them. Default: pods with the
    /// label `etcd.etcd.io/client-of: NAME`, where NAME is the name of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_selector: Option<LabelSelector>,
}
