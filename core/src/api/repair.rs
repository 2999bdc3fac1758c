//! When the operator replaces what does not return by itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kubernetes itself needs longer than this to be certain that a node does not respond.
pub const MIN_NODE_LOSS_GRACE_SECONDS: i64 = 10;
/// Thirty days.
pub const MAX_NODE_LOSS_GRACE_SECONDS: i64 = 2_592_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// How long a node can be lost before the operator replaces the member that ran there. It counts from the time at which
    /// Kubernetes noticed the loss. The member is replaced only if the other members do not reach it either, and never if that
    /// would cost the quorum.
    #[serde(default = "default_grace")]
    #[schemars(range(min = MIN_NODE_LOSS_GRACE_SECONDS, max = MAX_NODE_LOSS_GRACE_SECONDS))]
    pub node_loss_grace_seconds: i64,
}

impl Default for Repair {
    fn default() -> Self {
        Self { node_loss_grace_seconds: default_grace() }
    }
}

fn default_grace() -> i64 {
    120
}
