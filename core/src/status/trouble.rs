//! What keeps the last step from being done, and writes that fail beside it.

use crate::names::reason;

/// Why the last step was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// For this reason. It is retried.
    Failed(String),
    /// etcd rejects it for now, for this reason: it wants its voters to have been connected for some seconds before one
    /// is added, and a learner to have caught up before it votes. All is well.
    EtcdNotYet(String),
    /// The disruption budget allows no eviction for now, in the words of the API server: another pod is down.
    EvictionNotYet(String),
    /// This object of a previous cluster of the same name has to be deleted first. Kubernetes collects it in its own
    /// time.
    LeftBehind(String),
    /// Nothing can be created in a namespace that is being deleted, and the cluster is deleted with it.
    NamespaceEnding,
}

impl Trouble {
    /// Whether nothing is wrong: something else has to happen first.
    pub fn is_wait(&self) -> bool {
        match self {
            Self::Failed(_) => false,
            Self::EtcdNotYet(_) | Self::EvictionNotYet(_) | Self::LeftBehind(_) | Self::NamespaceEnding => {
                true
            }
        }
    }

    /// Without what was attempted.
    pub fn cause(&self) -> String {
        if let Self::Failed(why) = self { why.clone() } else { self.words() }
    }

    /// The trouble of a step that waits for this object to be written.
    pub fn of(&self, object: &str) -> Self {
        let Self::Failed(why) = self else { return self.clone() };
        Self::Failed(format!("cannot write {object}: {why}"))
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Failed(_) => reason::STEP_FAILED,
            Self::EtcdNotYet(_) => reason::STEP_REJECTED,
            Self::EvictionNotYet(_) => reason::EVICTION_REJECTED,
            Self::LeftBehind(_) => reason::PREVIOUS_OBJECTS_TERMINATING,
            Self::NamespaceEnding => reason::NAMESPACE_TERMINATING,
        }
    }

    /// For people.
    pub fn words(&self) -> String {
        match self {
            Self::Failed(why) => format!("a step failed, retrying: {why}"),
            Self::EtcdNotYet(why) => format!("etcd rejected the step for now, retrying: {why}"),
            Self::EvictionNotYet(why) => {
                format!("the PodDisruptionBudget allows no restart for now, retrying: {why}")
            }
            Self::LeftBehind(what) => {
                format!("waiting for {what} of the previous cluster of this name to be deleted")
            }
            Self::NamespaceEnding => {
                "waiting for the namespace to be deleted: nothing can be created in it".into()
            }
        }
    }
}

/// A write that fails on its own, while everything else continues. It is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedWrite {
    /// Such as `Service kv-client`.
    pub object: String,
    pub error: String,
}
