//! What the operator and the program `etcd-backup` agree on: the inputs and the result of a run, the layout of a store, the
//! manifest of a copy, and the decisions about copies. Both can be of different versions, and a store keeps manifests of
//! all of them (ADR 27, ADR 50).

pub mod chain;
pub mod inputs;
pub mod layout;
pub mod manifest;
pub mod page;
pub mod progress;
pub mod report;
pub mod restorable;
pub mod retention;
pub mod segment;
pub mod source;

use serde::{Deserialize, Serialize};

/// Its name, and at the root of the operator's image its path.
pub const PROGRAM: &str = "etcd-backup";

/// The version of a format. A format only gains fields and values, and a reader ignores fields that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FormatVersion(pub u32);

impl FormatVersion {
    /// What this version writes.
    pub const CURRENT: Self = Self(2);
}

/// One of the words of this version, or one of a later version as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word<T> {
    Known(T),
    Unknown(String),
}

impl<T> Word<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(word) => Some(word),
            Self::Unknown(_) => None,
        }
    }
}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}
