//! How Prometheus finds the members.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// `Disabled` annotates the pods with `prometheus.io/scrape` and `prometheus.io/port`, unless `podTemplate.annotations` has
    /// the first of them. `Enabled` creates a PodMonitor instead, for the Prometheus operator, which has to be installed.
    #[serde(default)]
    pub pod_monitor: PodMonitor,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodMonitor {
    #[default]
    Disabled,
    Enabled,
}
