//! What users choose about the certificates that the operator issues.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub const MIN_VALIDITY_SECONDS: i64 = 60;
/// Five years: half of the life of an authority.
pub const MAX_VALIDITY_SECONDS: i64 = 5 * 365 * 24 * 3600;
pub const MAX_NAMES: usize = 32;
pub const MAX_NAME_LENGTH: usize = 253;
pub const MAX_ADDRESS_LENGTH: usize = 45;
pub const MAX_KIND_LENGTH: usize = 63;
/// The API group of cert-manager.
pub const CERT_MANAGER: &str = "cert-manager.io";

/// The certificates that the operator issues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Certificates {
    /// How long a certificate is valid. The operator renews it after two thirds of that time, without a restart. Kubelets
    /// take up to 90 seconds to bring a renewed certificate into pods.
    #[serde(default = "ninety_days")]
    #[schemars(range(min = MIN_VALIDITY_SECONDS, max = MAX_VALIDITY_SECONDS))]
    pub validity_seconds: i64,

    /// The algorithm of new keys.
    #[serde(default)]
    pub key_algorithm: KeyAlgorithm,

    /// Further host names by which clients connect, such as the name of a load balancer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_NAMES), inner(length(max = MAX_NAME_LENGTH)), extend("x-kubernetes-list-type" = "set"))]
    pub dns_names: Vec<String>,

    /// Further addresses by which clients connect. With a NodePort, the operator adds those of the nodes itself if it has
    /// the optional right to read nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_NAMES), inner(length(max = MAX_ADDRESS_LENGTH)), extend("x-kubernetes-list-type" = "set"))]
    pub ip_addresses: Vec<String>,
}

impl Default for Certificates {
    fn default() -> Self {
        Self {
            validity_seconds: ninety_days(),
            key_algorithm: KeyAlgorithm::default(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KeyAlgorithm {
    #[default]
    ECDSAP256,
    ECDSAP384,
}

/// An issuer of cert-manager, or one that follows its API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssuerRef {
    /// The name of the issuer.
    #[schemars(length(min = 1, max = MAX_NAME_LENGTH))]
    pub name: String,

    /// `Issuer`, which is in the namespace of the cluster, `ClusterIssuer`, or a kind of another group.
    #[serde(default = "issuer")]
    #[schemars(length(min = 1, max = MAX_KIND_LENGTH))]
    pub kind: String,

    /// The API group of the issuer.
    #[serde(default = "cert_manager")]
    #[schemars(length(min = 1, max = MAX_NAME_LENGTH))]
    pub group: String,
}

fn issuer() -> String {
    "Issuer".into()
}

fn cert_manager() -> String {
    CERT_MANAGER.into()
}

fn ninety_days() -> i64 {
    90 * 24 * 3600
}
