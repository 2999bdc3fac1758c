//! What users choose about etcd's own authentication.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const MAX_SECRET_NAME_LENGTH: usize = 253;

/// etcd's own authentication. It needs TLS for clients, because etcd takes the common name of a client's certificate for the
/// name of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// Enable authentication. The operator creates the users `root`, `etcd-operator`, which is its own, and `etcd-client` for the
    /// certificate in `NAME-client-tls`, which has no rights until you grant it some.
    #[serde(default)]
    pub enabled: bool,

    /// The Secret with the password of `root`, in the key `password`. When it changes, the operator changes the password.
    /// Default: nobody can log in as `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_SECRET_NAME_LENGTH))]
    pub root_password_secret: Option<String>,
}
