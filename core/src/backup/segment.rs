//! The head of a segment of the continuous archive: one line of JSON, never encrypted, before the events themselves. A chain of
//! segments covers every revision after that of a copy.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::layout::Layout;
use super::manifest::{Compression, Encryption, Unreadable};
use super::{FormatVersion, Word};

/// What distinguishes our segments from other objects.
pub const FORMAT: &str = "etcd-k8s-operator/segment";
/// The oldest readers that understand what this version stores.
pub const READABLE_FROM: FormatVersion = FormatVersion(2);
/// No head is longer; what has no end of line in there is no segment.
pub const MAX_HEAD_BYTES: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    pub format: String,
    pub format_version: FormatVersion,
    pub readable_from: FormatVersion,
    pub program_version: String,
    /// As etcdctl prints it.
    pub cluster_id: String,
    /// Of the member that the events come from.
    pub etcd_version: String,
    /// It has every revision from this one to `last`.
    pub first: i64,
    pub last: i64,
    /// The first revision of the first segment of its chain: from there to `last` nothing is missing.
    pub chain_first: i64,
    /// The SHA-256 of the whole object that ends with `first - 1`; none at the beginning of a chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// Identifies the last revision, without its values: who continues the chain compares it with what etcd has.
    pub tip: String,
    pub times: Times,
    pub body: Body,
}

/// When the archiver received what. Within a chain, times never go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    pub first: Timestamp,
    pub last: Timestamp,
    /// Revisions were received when they were written, and at this time the cluster was at revision `first - 1`. None while the
    /// archiver caught up: then the times of receipt say nothing about the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_since: Option<Timestamp>,
    /// At this time the cluster was at revision `last`, as etcd confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Timestamp>,
}

/// What follows the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Body {
    pub bytes: u64,
    pub sha256: String,
    /// Before compression and encryption.
    pub content_bytes: u64,
    pub compression: Word<Compression>,
    pub encryption: Word<Encryption>,
    /// The public keys that it is encrypted for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
}

impl Segment {
    /// Reads the first line of the object that is stored for a first revision, and returns the length of that line with its end,
    /// too. Further bytes can follow.
    pub fn read(object: &[u8], first: i64, layout: &Layout) -> Result<(Self, usize), Unreadable> {
        let foreign = |why| Err(Unreadable::Foreign(why));
        let Some(end) = object.iter().take(MAX_HEAD_BYTES).position(|byte| *byte == b'\n') else {
            return foreign("its first line is too long");
        };
        let malformed = |error: serde_json::Error| Unreadable::Malformed(error.to_string());
        let value: Value = serde_json::from_slice(&object[..end]).map_err(malformed)?;
        let string = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        if string("format") != FORMAT {
            return foreign("its format is another one");
        }
        let number = value.get("readableFrom").and_then(Value::as_u64).and_then(|it| it.try_into().ok());
        let readable_from = FormatVersion(number.unwrap_or(u32::MAX));
        if readable_from > FormatVersion::CURRENT {
            let written_by = string("programVersion").to_owned();
            return Err(Unreadable::Newer { readable_from, written_by });
        }
        let segment: Self = serde_json::from_value(value).map_err(malformed)?;
        if segment.cluster_id != layout.cluster().to_string() {
            return foreign("it names another cluster");
        }
        if segment.first != first || segment.last < first || segment.chain_first > first {
            return foreign("its revisions are not those of its name");
        }
        Ok((segment, end + 1))
    }

    /// The first line of the object, with its end.
    pub fn render(&self) -> String {
        format!("{}\n", serde_json::to_string(self).expect("text and numbers are always JSON"))
    }
}
