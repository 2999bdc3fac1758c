//! How far an archiver is, as it reports it to those who ask.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::report::Failure;

/// Of the endpoint in the pod of an archiver.
pub const PORT: u16 = 2389;
pub const PAGE: &str = "/progress";
/// Has what a request to the endpoint must bear. Without it, nothing is served.
pub const TOKEN_VARIABLE: &str = "ETCD_BACKUP_PROGRESS_TOKEN";
/// Has the address of the pod, at which the endpoint listens.
pub const ADDRESS_VARIABLE: &str = "ETCD_BACKUP_ADDRESS";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Everything up to this revision is stored. None before the archiver has read where the chain ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_revision: Option<i64>,
    /// The first revision of the chain. None before its first segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_first: Option<i64>,
    /// The lowest revision that the newest good copy can have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_revision: Option<i64>,
    /// A replay from that copy would take too long.
    #[serde(default)]
    pub copy_due: bool,
    /// At this time the store had everything that the cluster had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Timestamp>,
    /// What keeps it from storing more at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Failure>,
}
