//! What an error says about a request: overtaken, not yet, failed, or perhaps carried out.

use etcd_operator_core::round::Outcome;
use etcd_operator_core::status::Trouble;
use kube::core::response::StatusCause;

use crate::client::is_ambiguous;
use crate::telemetry::chain;
use crate::{agent, etcd};

/// What is gone or has changed was decided about something that no longer exists.
pub fn of_api_server(error: &kube::Error) -> Outcome {
    if matches!(error, kube::Error::Api(answer) if matches!(answer.code, 404 | 409)) || is_another(error) {
        Outcome::Overtaken
    } else if let Some(why) = budget_against_eviction(error) {
        Outcome::NotDone(Trouble::EvictionNotYet(why))
    } else if is_namespace_ending(error) {
        Outcome::NotDone(Trouble::NamespaceEnding)
    } else if is_ambiguous(error) {
        Outcome::Ambiguous(chain(error).to_string())
    } else {
        failed(error)
    }
}

pub fn of_etcd(error: &etcd::Error) -> Outcome {
    match error.not_yet() {
        Some(why) => Outcome::NotDone(Trouble::EtcdNotYet(why.to_owned())),
        None if error.is_ambiguous() => Outcome::Ambiguous(chain(error).to_string()),
        None => failed(error),
    }
}

/// An agent that gets a message twice does the same.
pub fn of_agent(error: &agent::Error) -> Outcome {
    failed(error)
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Outcome {
    Outcome::NotDone(Trouble::Failed(chain(error).to_string()))
}

/// A patch with the UID of an object whose name another one has by now.
fn is_another(error: &kube::Error) -> bool {
    cause(error, 422, |cause| cause.field == "metadata.uid").is_some()
}

fn budget_against_eviction(error: &kube::Error) -> Option<String> {
    Some(cause(error, 429, |cause| cause.reason == "DisruptionBudget")?.message.clone())
}

/// Nothing can be created in a namespace that is being deleted.
fn is_namespace_ending(error: &kube::Error) -> bool {
    cause(error, 403, |cause| cause.reason == "NamespaceTerminating").is_some()
}

/// A cause that the API server gives with this code.
fn cause(error: &kube::Error, code: u16, is: impl Fn(&StatusCause) -> bool) -> Option<&StatusCause> {
    let kube::Error::Api(answer) = error else { return None };
    let details = answer.details.as_ref().filter(|_| answer.code == code)?;
    details.causes.iter().find(|cause| is(cause))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn etcd_says(error: fn(String, &'static str, String) -> etcd::Error, reason: &str) -> Outcome {
        of_etcd(&error("kv-0".into(), "add a learner", reason.into())).of("add pod 1 as a learner")
    }

    #[test]
    fn what_etcd_rejects_for_now_is_a_wait_and_what_it_rejects_is_a_failure() {
        let refused = |pod, call, reason| etcd::Error::Refused { pod, call, reason };
        let not_yet = Outcome::NotDone(Trouble::EtcdNotYet("unhealthy cluster".into()));
        assert_eq!(etcd_says(refused, "unhealthy cluster"), not_yet);
        let text =
            "cannot add pod 1 as a learner: kv-0 rejected the request to add a learner: permission denied";
        assert_eq!(etcd_says(refused, "permission denied"), Outcome::NotDone(Trouble::Failed(text.into())));
    }

    #[test]
    fn what_breaks_on_the_way_might_have_been_carried_out() {
        let broken = |pod, call, reason| etcd::Error::Broken { pod, call, reason };
        assert!(matches!(etcd_says(broken, "request timed out"), Outcome::Ambiguous(_)));
        let answered = |code| kube::core::Status { code, ..kube::core::Status::default() };
        let outcome = |code| of_api_server(&kube::Error::Api(answered(code).boxed()));
        assert!(matches!(outcome(500), Outcome::Ambiguous(_)));
        assert!(matches!(outcome(429), Outcome::NotDone(Trouble::Failed(_))));
        assert_eq!((outcome(404), outcome(409)), (Outcome::Overtaken, Outcome::Overtaken));
        let reset = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset");
        assert!(matches!(of_api_server(&kube::Error::Service(reset.into())), Outcome::Ambiguous(_)));
    }

    /// As an API server answers to what is made in a namespace that is being deleted, and to what one may not make.
    fn forbidden(causes: serde_json::Value) -> Outcome {
        let answer = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "services \"kv-peer\" is forbidden: unable to create new content in namespace ns because it is \
                        being terminated",
            "details": {"name": "kv-peer", "kind": "services", "causes": causes},
        });
        let answer: kube::core::Status = serde_json::from_value(answer).expect("it is an answer");
        of_api_server(&kube::Error::Api(answer.boxed()))
    }

    #[test]
    fn a_patch_of_an_object_that_was_replaced_changes_nothing_and_is_no_failure() {
        let invalid = |field: &str| {
            let answer = json!({
                "status": "Failure", "reason": "Invalid", "code": 422, "message": "Pod \"kv-0\" is invalid",
                "details": {"causes": [{"reason": "FieldValueInvalid", "message": "field is immutable", "field": field}]},
            });
            let answer: kube::core::Status = serde_json::from_value(answer).expect("it is an answer");
            of_api_server(&kube::Error::Api(answer.boxed()))
        };
        assert_eq!(invalid("metadata.uid"), Outcome::Overtaken);
        assert!(matches!(invalid("metadata.labels"), Outcome::NotDone(Trouble::Failed(_))));
    }

    #[test]
    fn what_cannot_be_made_because_the_namespace_goes_is_no_failure() {
        let cause = json!({
            "reason": "NamespaceTerminating", "message": "namespace ns is being terminated", "field": "metadata.namespace",
        });
        assert_eq!(forbidden(json!([cause])), Outcome::NotDone(Trouble::NamespaceEnding));
        assert!(matches!(forbidden(json!([])), Outcome::NotDone(Trouble::Failed(_))));
    }
}
