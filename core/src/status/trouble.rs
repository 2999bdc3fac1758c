//! Why a step was not done, in the words of the status.

use crate::names::reason;

/// Why the last step was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// For this reason. It is tried again.
    Failed(String),
    /// etcd does not take it yet, for this reason: it wants its voters to have been connected for some seconds before one
    /// is added, and a learner to have caught up before it votes. All is well.
    EtcdNotYet(String),
    /// This object of a former cluster of the same name has to go first. Kubernetes collects it in its own time.
    LeftBehind(String),
    /// Nothing can be made in a namespace that is being deleted, and the cluster goes with it.
    NamespaceEnding,
}

impl Trouble {
    /// Whether there is nothing wrong: somebody else has to come first.
    pub fn is_wait(&self) -> bool {
        match self {
            Self::Failed(_) => false,
            Self::EtcdNotYet(_) | Self::LeftBehind(_) | Self::NamespaceEnding => true,
        }
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Failed(_) => reason::STEP_FAILED,
            Self::EtcdNotYet(_) => reason::AWAITING_ETCD,
            Self::LeftBehind(_) => reason::LEFTOVERS_GOING,
            Self::NamespaceEnding => reason::NAMESPACE_ENDING,
        }
    }

    /// For people.
    pub fn words(&self) -> String {
        match self {
            Self::Failed(why) => format!("a step failed and is tried again: {why}"),
            Self::EtcdNotYet(why) => format!("wait for etcd to accept that; it says: {why}"),
            Self::LeftBehind(what) => format!("wait for {what} of the former cluster of this name to go"),
            Self::NamespaceEnding => {
                "wait for the namespace to go: nothing can be made in it any more".into()
            }
        }
    }
}
