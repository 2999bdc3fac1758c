//! Consent to what loses data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// Your consent to continue with the data of one member, after a majority of the members has lost its data for good. What
    /// only other members had is lost. Give it when the condition `QuorumLost` describes what would be lost. Consent that was there before
    /// the operator has reported that has no effect: remove it, and give it again. It is used once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_data_loss: Option<AcceptDataLoss>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptDataLoss {
    /// The `status.clusterID` of the cluster whose data may be lost.
    #[serde(rename = "clusterID")]
    #[schemars(regex(pattern = r"^[0-9a-f]{1,16}$"))]
    pub cluster_id: String,

    /// The pod whose member continues, or `Auto`: the one with the highest raft index among those that respond.
    #[serde(default = "default_survivor")]
    #[schemars(regex(pattern = r"^(Auto|[a-z]([a-z0-9-]*[a-z0-9])?-[0-9])$"), length(max = 63))]
    pub survivor: String,
}

/// Instead of the name of a pod.
pub const AUTO: &str = "Auto";

fn default_survivor() -> String {
    AUTO.into()
}
