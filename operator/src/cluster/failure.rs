//! What can keep a step from being done, and what the status reports of it.

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::observed::ClusterId;
use etcd_operator_core::round::Outcome;
use etcd_operator_core::status::Trouble;
use kube::Resource;

use super::objects::is_of_former;
use crate::telemetry::chain;
use crate::{agent, etcd};

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Somebody else changed it in between, so the next observation decides anew.
    #[error("it was changed in between")]
    Overtaken,
    #[error("{what} exists already and has another owner: delete it, or give the cluster another name")]
    NotOurs { what: String },
    /// Kubernetes collects what a deleted cluster owned in its own time.
    #[error("{what} of the previous cluster of this name is not deleted yet")]
    LeftBehind { what: String },
    #[error("cannot {what}")]
    Kubernetes { what: String, source: kube::Error },
    #[error("cannot {what}")]
    Etcd { what: String, source: etcd::Error },
    #[error("cannot {what}")]
    Agent { what: String, source: agent::Error },
    #[error("the spec is invalid")]
    InvalidSpec,
    /// Members change only through one that has just served a linearizable read.
    #[error("no member of cluster {cluster} serves linearizable reads")]
    NobodySpeaks { cluster: ClusterId },
}

impl Failure {
    /// What the API server answered. What is gone or has changed was decided about something that no longer is.
    pub fn answered(what: impl Into<String>, source: kube::Error) -> Self {
        match is_code(&source, 409) || is_code(&source, 404) {
            true => Self::Overtaken,
            false => Self::Kubernetes { what: what.into(), source },
        }
    }

    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Overtaken => Outcome::Overtaken,
            Self::NotOurs { .. }
            | Self::LeftBehind { .. }
            | Self::Kubernetes { .. }
            | Self::Etcd { .. }
            | Self::Agent { .. }
            | Self::InvalidSpec
            | Self::NobodySpeaks { .. } => Outcome::NotDone(self.trouble()),
        }
    }

    /// Of a write whose object the report names already.
    pub fn outcome_alone(&self) -> Outcome {
        match self.outcome() {
            Outcome::NotDone(Trouble::Failed(_)) => Outcome::NotDone(Trouble::Failed(self.cause())),
            outcome @ (Outcome::Done | Outcome::Overtaken | Outcome::NotDone(_)) => outcome,
        }
    }

    /// What users are told of it.
    pub fn trouble(&self) -> Trouble {
        let not_yet = match self {
            Self::Etcd { source, .. } => source.not_yet().map(|why| Trouble::EtcdNotYet(why.to_owned())),
            Self::LeftBehind { what } => Some(Trouble::LeftBehind(what.clone())),
            Self::Kubernetes { source, .. } => {
                is_namespace_ending(source).then_some(Trouble::NamespaceEnding)
            }
            Self::Overtaken
            | Self::NotOurs { .. }
            | Self::Agent { .. }
            | Self::InvalidSpec
            | Self::NobodySpeaks { .. } => None,
        };
        not_yet.unwrap_or_else(|| Trouble::Failed(chain(self).to_string()))
    }

    /// Why it failed, without what was tried.
    fn cause(&self) -> String {
        match self {
            Self::Kubernetes { source, .. } => chain(source).to_string(),
            Self::Etcd { source, .. } => chain(source).to_string(),
            Self::Agent { source, .. } => chain(source).to_string(),
            Self::Overtaken
            | Self::NotOurs { .. }
            | Self::LeftBehind { .. }
            | Self::InvalidSpec
            | Self::NobodySpeaks { .. } => self.to_string(),
        }
    }

    /// Of an object that has the name that ours should have.
    pub fn in_the_way<K: Resource<DynamicType = ()>>(there: &K, cluster: &EtcdCluster) -> Self {
        let what = format!("{} {}", K::kind(&()), there.meta().name.as_deref().unwrap_or_default());
        match is_of_former(there, cluster) {
            true => Self::LeftBehind { what },
            false => Self::NotOurs { what },
        }
    }
}

pub fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(answer) if answer.code == code)
}

/// Whether something could not be made because its namespace is being deleted.
fn is_namespace_ending(error: &kube::Error) -> bool {
    let kube::Error::Api(answer) = error else { return false };
    let causes = answer.details.iter().flat_map(|details| &details.causes);
    answer.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(reason: &str) -> Failure {
        let (pod, call, reason) = ("kv-0".into(), "add a learner", reason.into());
        let source = etcd::Error::Refused { pod, call, reason };
        Failure::Etcd { what: "add pod 1 as a learner".into(), source }
    }

    #[test]
    fn what_etcd_does_not_take_yet_is_a_wait_and_what_it_refuses_is_a_failure() {
        let trouble = refused("unhealthy cluster").trouble();
        assert_eq!(trouble, Trouble::EtcdNotYet("unhealthy cluster".into()));
        let text =
            "cannot add pod 1 as a learner: kv-0 rejected the request to add a learner: permission denied";
        assert_eq!(refused("permission denied").trouble(), Trouble::Failed(text.into()));
    }

    #[test]
    fn what_is_going_by_itself_is_a_wait_and_what_is_somebody_elses_is_a_failure() {
        let what = || "Service kv-peer".to_owned();
        assert_eq!(Failure::LeftBehind { what: what() }.trouble(), Trouble::LeftBehind(what()));
        assert!(!Failure::NotOurs { what: what() }.trouble().is_wait());
    }

    /// As an API server answers to what is made in a namespace that is being deleted, and to what one may not make.
    fn forbidden(causes: serde_json::Value) -> Failure {
        let answer = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "services \"kv-peer\" is forbidden: unable to create new content in namespace ns because it is \
                        being terminated",
            "details": {"name": "kv-peer", "kind": "services", "causes": causes},
        });
        let answer: kube::core::Status = serde_json::from_value(answer).expect("it is an answer");
        Failure::answered("write Service kv-peer", kube::Error::Api(answer.boxed()))
    }

    #[test]
    fn what_cannot_be_made_because_the_namespace_goes_is_no_failure() {
        let cause = json!({
            "reason": "NamespaceTerminating", "message": "namespace ns is being terminated", "field": "metadata.namespace",
        });
        assert_eq!(forbidden(json!([cause])).trouble(), Trouble::NamespaceEnding);
        assert!(matches!(forbidden(json!([])).trouble(), Trouble::Failed(_)));
    }
}
