//! The result of a run: one JSON document in the termination message of its container.

use serde::{Deserialize, Serialize};

use super::layout::CopyName;
use super::manifest::{Compression, Encryption, Manifest, Revisions, Verification};
use super::{FormatVersion, Word};
use jiff::Timestamp;

/// Kubernetes keeps no more of a termination message.
pub const MAX_BYTES: usize = 4096;
/// How many names a result lists; the counts are of all.
const MAX_NAMES: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub format_version: FormatVersion,
    pub program_version: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome")]
pub enum Outcome {
    Succeeded(Done),
    Failed(Failure),
}

/// What a run did, by its verb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Done {
    Probe {
        /// Whether the store refuses to overwrite an object on request.
        conditional_puts: bool,
    },
    Take {
        copy: Summary,
    },
    /// One page, newest first.
    List {
        copies: Vec<Summary>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unreadable: Vec<Problem>,
        /// The name that the next page begins before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<CopyName>,
    },
    /// The clusters that have copies in the store.
    Clusters {
        cluster_ids: Vec<String>,
        count: usize,
    },
    Verify {
        name: CopyName,
        /// Whether the data was also decrypted and decompressed, and is what etcd sent.
        content: bool,
    },
    Delete {
        deleted: Vec<CopyName>,
        deleted_count: usize,
    },
    Prune {
        deleted: Vec<CopyName>,
        deleted_count: usize,
        kept: usize,
        /// Manifests that this version cannot read. They stay.
        unreadable: usize,
        /// Data without a manifest, of runs that did not complete. It stays, because it might belong to a run that has not ended.
        without_manifest: usize,
        /// Segments of the continuous archive that no copy needs any more.
        #[serde(default, skip_serializing_if = "is_zero")]
        segments_deleted: usize,
    },
    Fetch {
        copy: Summary,
    },
    /// The archiver was ended by a signal.
    Archive {
        /// The last revision that is stored.
        archived: i64,
        /// How many segments this run stored.
        segments: usize,
        /// A replay would take too long, so a new full copy is due.
        copy_due: bool,
    },
    /// A snapshot of one revision.
    Replay {
        /// Where it began.
        copy: Summary,
        revision: i64,
        /// How many revisions were replayed after that of the copy.
        replayed: i64,
    },
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A copy, as results and the status show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub name: CopyName,
    pub completed_at: Timestamp,
    pub revision: Revisions,
    pub etcd_version: String,
    /// As it is stored.
    pub bytes: u64,
    pub compression: Word<Compression>,
    pub encryption: Word<Encryption>,
    pub verification: Word<Verification>,
}

impl From<&Manifest> for Summary {
    fn from(manifest: &Manifest) -> Self {
        Self {
            name: manifest.name.clone(),
            completed_at: manifest.completed_at,
            revision: manifest.revision,
            etcd_version: manifest.etcd_version.clone(),
            bytes: manifest.data.bytes,
            compression: manifest.data.compression.clone(),
            encryption: manifest.data.encryption.clone(),
            verification: manifest.verification.clone(),
        }
    }
}

/// A copy whose manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub name: CopyName,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub reason: Word<Reason>,
    /// The cause in the words of the store or of etcd, and the way out.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    InvalidConfiguration,
    /// It did not respond, or not in time.
    StoreUnreachable,
    /// It does not accept the credentials, or they lack a right.
    StoreDenied,
    /// It responded with another error: no such bucket, no space.
    StoreRejected,
    EtcdUnavailable,
    CopyNotFound,
    /// What is stored is not what was sent.
    CopyDamaged,
    /// It might be intact, but cannot be used like this: an identity is missing, or it is of a later version.
    CopyUnusable,
    OutputFailed,
    Interrupted,
    /// The archiver cannot continue the chain: revisions are missing, or are other ones than the archive has.
    ChainBroken,
    /// The archiver has no copy to begin with.
    CopyNeeded,
    /// The programs of etcd failed, or a lease expired meanwhile.
    ReplayFailed,
}

impl Reason {
    /// Of the process. 1 is left for what no code was given to, such as a panic.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::InvalidConfiguration => 2,
            Self::StoreUnreachable => 3,
            Self::StoreDenied => 4,
            Self::StoreRejected => 5,
            Self::EtcdUnavailable => 6,
            Self::CopyNotFound => 7,
            Self::CopyDamaged => 8,
            Self::CopyUnusable => 9,
            Self::OutputFailed => 10,
            Self::Interrupted => 11,
            Self::ChainBroken => 12,
            Self::CopyNeeded => 13,
            Self::ReplayFailed => 14,
        }
    }
}

/// The first of a list of names; the count is given separately.
pub fn first_names<T: Clone>(names: &[T]) -> Vec<T> {
    names.iter().take(MAX_NAMES).cloned().collect()
}

impl Report {
    /// As one line that fits into a termination message. A longer message of a failure loses its middle: its end has the way out.
    pub fn render(&self) -> String {
        let text = to_json(self);
        let Outcome::Failed(failure) = &self.outcome else {
            return text;
        };
        let mut room = failure.message.len();
        let mut text = text;
        while text.len() > MAX_BYTES && room > 0 {
            // How much longer the message becomes as JSON depends on what is in it.
            room = (room * MAX_BYTES / text.len()).min(room - 1);
            let message = shortened(&failure.message, room);
            let failure = Failure { message, ..failure.clone() };
            text = to_json(&Self { outcome: Outcome::Failed(failure), ..self.clone() });
        }
        text
    }
}

fn to_json(report: &Report) -> String {
    serde_json::to_string(report).expect("text and numbers are always JSON")
}

fn shortened(text: &str, bytes: usize) -> String {
    let half = bytes.saturating_sub(" ... ".len()) / 2;
    let (head, tail) =
        (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half.min(text.len())));
    format!("{} ... {}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(message: String) -> Report {
        let failure = Failure { reason: Reason::StoreRejected.into(), message };
        Report {
            format_version: FormatVersion::CURRENT,
            program_version: "0.1.0".into(),
            outcome: Outcome::Failed(failure),
        }
    }

    #[test]
    fn a_result_fits_into_a_termination_message_and_keeps_both_ends_of_the_error() {
        for middle in ["x", "\"", "ä", "\n"] {
            for length in [0, 10, 1000, 4000, 5000, 100_000] {
                let report = failed(format!("the cause {} the way out", middle.repeat(length)));
                let text = report.render();
                assert!(text.len() <= MAX_BYTES, "{}", text.len());
                let read: Report = serde_json::from_str(&text).expect("it is JSON");
                let Outcome::Failed(failure) = read.outcome else { panic!("{text}") };
                assert!(
                    failure.message.starts_with("the cause ") && failure.message.ends_with(" the way out")
                );
            }
        }
    }

    #[test]
    fn a_result_with_the_most_names_fits() {
        let name = CopyName::new(Timestamp::UNIX_EPOCH, u64::MAX);
        let deleted = first_names(&vec![name; 5000]);
        let done = Done::Prune {
            deleted,
            deleted_count: usize::MAX,
            kept: usize::MAX,
            unreadable: usize::MAX,
            without_manifest: usize::MAX,
            segments_deleted: usize::MAX,
        };
        assert!(
            Report { outcome: Outcome::Succeeded(done), ..failed(String::new()) }.render().len() <= MAX_BYTES
        );
    }

    #[test]
    fn every_reason_has_an_exit_code_of_its_own() {
        let all = [
            Reason::InvalidConfiguration,
            Reason::StoreUnreachable,
            Reason::StoreDenied,
            Reason::StoreRejected,
            Reason::EtcdUnavailable,
            Reason::CopyNotFound,
            Reason::CopyDamaged,
            Reason::CopyUnusable,
            Reason::OutputFailed,
            Reason::Interrupted,
            Reason::ChainBroken,
            Reason::CopyNeeded,
            Reason::ReplayFailed,
        ];
        let codes: std::collections::BTreeSet<_> = all.map(Reason::exit_code).into();
        assert_eq!(codes.len(), all.len());
        assert!(!codes.contains(&0) && !codes.contains(&1));
    }
}
