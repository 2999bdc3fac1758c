//! The manifest of a copy. It is written last, so a copy exists if and only if its manifest does. It is never encrypted:
//! together with the data it is enough to restore a cluster where nothing else is left.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::layout::{CopyName, Layout, name_in_data_file};
use super::{FormatVersion, Word};

/// What distinguishes our manifests from other JSON documents.
pub const FORMAT: &str = "etcd-k8s-operator/backup";
/// The oldest readers that understand what this version stores. It rises only with something that they would misunderstand.
pub const READABLE_FROM: FormatVersion = FormatVersion(1);
/// No manifest is larger; what is, does not have to be read to know that.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub format: String,
    pub format_version: FormatVersion,
    /// The oldest version of the format whose readers understand what matters in here.
    pub readable_from: FormatVersion,
    /// The version of the program that wrote it.
    pub program_version: String,
    pub name: CopyName,
    /// As etcdctl prints it.
    pub cluster_id: String,
    pub started_at: Timestamp,
    pub completed_at: Timestamp,
    /// Of the member that the data comes from.
    pub etcd_version: String,
    pub member_id: String,
    /// All members of the cluster, as that member lists them.
    pub members: Vec<Member>,
    pub auth: Word<Auth>,
    pub revision: Revisions,
    /// None if etcd did not return it, for example because of a compaction meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_kv: Option<HashKv>,
    pub snapshot: Snapshot,
    pub data: Data,
    pub verification: Word<Verification>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub id: String,
    pub name: String,
    pub peer_urls: Vec<String>,
    pub learner: bool,
}

/// Whether etcd's own authentication is enabled, and so is in a cluster that is restored from the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Auth {
    Enabled,
    Disabled,
    /// etcd did not report it.
    NotReported,
}

/// etcd does not report the revision of a snapshot. It is not below that of the member before the call, and not above that
/// of the member after the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revisions {
    pub lowest: i64,
    pub highest: i64,
}

/// etcd's hash of all keys up to a revision, since a compaction: comparable with that of another member only if both
/// revisions are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HashKv {
    pub hash: u32,
    pub revision: i64,
    pub compact_revision: i64,
}

/// What etcd sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// With the hash at its end.
    pub bytes: u64,
    /// The hash that etcd puts at the end, of everything before it.
    pub sha256: String,
}

/// What is stored: the snapshot, compressed and then encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    /// Its name in the folder of data.
    pub file: String,
    pub bytes: u64,
    pub sha256: String,
    pub compression: Word<Compression>,
    pub encryption: Word<Encryption>,
    /// The public keys that it is encrypted for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    #[default]
    None,
    Zstd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encryption {
    None,
    Age,
}

/// How the stored bytes were compared with those that were sent, before the manifest was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verification {
    /// They were read back.
    #[default]
    ReadBack,
    /// The store compared the checksum of each part.
    Checksum,
}

/// Why an object is not the manifest of a copy that this version can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is no manifest of this program, or one of another copy.
    Foreign(&'static str),
    Newer {
        readable_from: FormatVersion,
        written_by: String,
    },
    Malformed(String),
    TooLarge,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign(why) => write!(f, "it is not a manifest of this program: {why}"),
            Self::Newer { readable_from, written_by } => write!(
                f,
                "etcd-backup {written_by} wrote it in a format of version {}, and this program reads up to version {}: \
                 use that version of the operator",
                readable_from.0,
                FormatVersion::CURRENT.0
            ),
            Self::Malformed(error) => write!(f, "the manifest is damaged: {error}"),
            Self::TooLarge => write!(f, "it is not a manifest of this program: it is larger than any"),
        }
    }
}

impl std::error::Error for Unreadable {}

impl Manifest {
    /// Reads the object that is stored as the manifest of a copy. Nothing in it can point to objects of other copies.
    pub fn read(text: &[u8], name: &CopyName, layout: &Layout) -> Result<Self, Unreadable> {
        let value: Value =
            serde_json::from_slice(text).map_err(|error| Unreadable::Malformed(error.to_string()))?;
        let string = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        if string("format") != FORMAT {
            return Err(Unreadable::Foreign("its format is another one"));
        }
        let number = value.get("readableFrom").and_then(Value::as_u64).and_then(|it| it.try_into().ok());
        let readable_from = FormatVersion(number.unwrap_or(u32::MAX));
        if readable_from > FormatVersion::CURRENT {
            let written_by = string("programVersion").to_owned();
            return Err(Unreadable::Newer { readable_from, written_by });
        }
        let manifest: Self =
            serde_json::from_value(value).map_err(|error| Unreadable::Malformed(error.to_string()))?;
        if manifest.name != *name {
            return Err(Unreadable::Foreign("it names another copy"));
        }
        if manifest.cluster_id != layout.cluster().to_string() {
            return Err(Unreadable::Foreign("it names another cluster"));
        }
        if name_in_data_file(&manifest.data.file).as_ref() != Some(name) {
            return Err(Unreadable::Foreign("its data is that of another copy"));
        }
        Ok(manifest)
    }

    pub fn render(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("text and numbers are always JSON");
        format!("{text}\n")
    }

    pub fn is_encrypted(&self) -> bool {
        self.data.encryption != Word::Known(Encryption::None)
    }
}

#[cfg(test)]
mod tests;
