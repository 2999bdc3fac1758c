//! Objects of APIs that other programs bring, such as cert-manager: the API server might not know them.

use serde::{Deserialize, Serialize};

use crate::observed::Seen;

/// What is known of such an object of a cluster: the one that is there, if any, or why that is not known.
pub type Foreign<T> = Seen<Option<T>, NotRead>;

/// Why nothing is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotRead {
    /// The cluster asks for none, and is known to have none.
    NotAsked,
    /// The API server does not serve this API.
    NoApi,
    /// In the words of the API server.
    Failed(String),
}

impl<T> Default for Foreign<T> {
    fn default() -> Self {
        Self::Unknown(NotRead::NotAsked)
    }
}
