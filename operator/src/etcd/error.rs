//! Why a member could not be asked, and whether a call that failed may have had its effect all the same.

use std::error::Error as _;

use tonic::{Code, Status};

use crate::reach::{self, root_cause};

/// Every text is made to be shown to users: who, what, why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reach(#[from] reach::Error),
    #[error("{pod} did not {call} within {seconds} s")]
    NoAnswer { pod: String, call: &'static str, seconds: u64 },
    /// etcd itself says that it did not do it.
    #[error("{pod} rejected the request to {call}: {reason}")]
    Refused { pod: String, call: &'static str, reason: String },
    #[error("{pod} failed to {call}: {reason}")]
    Broken { pod: String, call: &'static str, reason: String },
    /// An answer without an identity.
    #[error("{pod} sent an invalid response to the request to {call}")]
    Nonsense { pod: String, call: &'static str },
    #[error("lost the connection to {pod}: {reason}")]
    Lost { pod: String, reason: String },
}

/// In front of everything that etcd, and not the transport, says.
const ETCD: &str = "etcdserver: ";
const NOT_FOR_LEARNERS: &str = "rpc not supported for learner";
/// How etcd's authentication rejects a user that lacks a right or that it does not know, and a client without a name.
const DENIED: [&str; 3] = ["permission denied", "user name not found", "user name is empty"];
/// Users or roles changed while the request was on its way.
const OLD_REVISION: &str = "revision of auth store is old";

/// Refusals that end by themselves. etcd asks for its voters to have been connected for five seconds before another joins.
const NOT_YET: [&str; 6] = [
    "unhealthy cluster",
    "re-configuration failed due to not enough started members",
    "too many learner members in cluster",
    "can only promote a learner member which is in sync with leader",
    "too many requests",
    OLD_REVISION,
];

/// More refusals that come under a code which may mean anything: `Unavailable`, or `Unknown` where etcd forgot to give
/// one. Whatever else comes under these codes, such as a timeout, is ambiguous.
const REFUSALS: [&str; 2] = [NOT_FOR_LEARNERS, "not capable"];

impl Error {
    pub(super) fn of(pod: &str, call: &'static str, error: &etcd_client::Error) -> Self {
        let pod = pod.to_owned();
        let etcd_client::Error::GRpcStatus(status) = error else {
            return Self::Broken { pod, call, reason: root_cause(error) };
        };
        match status.message().strip_prefix(ETCD) {
            Some(reason) if is_refusal(status.code(), reason) => {
                Self::Refused { pod, call, reason: reason.to_owned() }
            }
            Some(reason) => Self::Broken { pod, call, reason: reason.to_owned() },
            None => Self::Broken { pod, call, reason: words(status) },
        }
    }

    /// In one word, for metrics.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "rejected",
            Self::NoAnswer { .. } => "no_response",
            Self::Reach(_) | Self::Broken { .. } | Self::Nonsense { .. } | Self::Lost { .. } => "failed",
        }
    }

    /// Whether the call may have had its effect: observe again before anything else is done.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Reach(_) | Self::Refused { .. } => false,
            Self::NoAnswer { .. } | Self::Broken { .. } | Self::Nonsense { .. } | Self::Lost { .. } => true,
        }
    }

    /// Why etcd does not do it now, if the same call works in a moment.
    pub fn not_yet(&self) -> Option<&str> {
        let Self::Refused { reason, .. } = self else { return None };
        Some(reason.as_str()).filter(|reason| NOT_YET.contains(reason))
    }

    /// Whether etcd's authentication rejects the operator.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Refused { reason, .. } => DENIED.contains(&reason.as_str()),
            // The reason why a watch was cancelled has more words.
            Self::Lost { reason, .. } => DENIED.iter().any(|it| reason.ends_with(it)),
            Self::Reach(_) | Self::NoAnswer { .. } | Self::Broken { .. } | Self::Nonsense { .. } => false,
        }
    }

    /// Whether a linearizable read got so far that a quorum stands behind the member: etcd asks it before it checks rights.
    pub(super) fn follows_read(&self) -> bool {
        self.is_denied() || matches!(self, Self::Refused { reason, .. } if reason == OLD_REVISION)
    }

    pub(super) fn is_for_learners(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason == NOT_FOR_LEARNERS)
    }

    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Refused { reason, .. } | Self::Broken { reason, .. } | Self::Lost { reason, .. } => reason,
            Self::Reach(_) | Self::NoAnswer { .. } | Self::Nonsense { .. } => "no response",
        }
    }
}

fn is_refusal(code: Code, reason: &str) -> bool {
    let says_so = matches!(
        code,
        Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::NotFound
            | Code::OutOfRange
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::Unauthenticated
    );
    says_so || NOT_YET.contains(&reason) || REFUSALS.contains(&reason)
}

/// The transport hides the reason below layers of "transport error".
fn words(status: &Status) -> String {
    status.source().map_or_else(|| status.message().to_owned(), root_cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: Code, message: &str) -> Error {
        Error::of("kv-2", "add a learner", &etcd_client::Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn what_etcd_refuses_has_had_no_effect() {
        for (code, message) in [
            (Code::FailedPrecondition, "etcdserver: too many learner members in cluster"),
            (
                Code::FailedPrecondition,
                "etcdserver: can only promote a learner member which is in sync with leader",
            ),
            (Code::FailedPrecondition, "etcdserver: Peer URLs already exists"),
            (Code::FailedPrecondition, "etcdserver: not leader"),
            (Code::NotFound, "etcdserver: member not found"),
            (Code::InvalidArgument, "etcdserver: given member URLs are invalid"),
            (Code::Unavailable, "etcdserver: unhealthy cluster"),
            (Code::Unavailable, "etcdserver: rpc not supported for learner"),
            (Code::FailedPrecondition, "etcdserver: rpc not supported for learner"),
            (Code::Unknown, "etcdserver: re-configuration failed due to not enough started members"),
        ] {
            let error = error(code, message);
            assert!(!error.is_ambiguous(), "{error:?}");
            let reason = message.strip_prefix(ETCD).expect("all of them are etcd's");
            assert_eq!(error.to_string(), format!("kv-2 rejected the request to add a learner: {reason}"));
        }
    }

    #[test]
    fn what_etcd_refuses_for_a_while_is_told_from_what_it_refuses_for_good() {
        for (code, message) in [
            (Code::Unavailable, "etcdserver: unhealthy cluster"),
            (Code::Unknown, "etcdserver: re-configuration failed due to not enough started members"),
            (Code::FailedPrecondition, "etcdserver: too many learner members in cluster"),
            (
                Code::FailedPrecondition,
                "etcdserver: can only promote a learner member which is in sync with leader",
            ),
        ] {
            assert_eq!(error(code, message).not_yet(), message.strip_prefix(ETCD));
        }
        for (code, message) in [
            (Code::NotFound, "etcdserver: member not found"),
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "unhealthy cluster"),
        ] {
            assert_eq!(error(code, message).not_yet(), None, "{message}");
        }
    }

    #[test]
    fn what_broke_on_the_way_may_have_had_its_effect() {
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: server stopped"),
            (Code::Unknown, "etcdserver: something new"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
            (Code::Cancelled, "operation was canceled"),
            (Code::Unknown, "transport error"),
            (Code::Internal, "h2 protocol error"),
            // The client's own words about an answer that it could not read.
            (Code::OutOfRange, "Error, decoded message length too large"),
            (Code::InvalidArgument, "not etcd's"),
        ] {
            assert!(error(code, message).is_ambiguous(), "{code:?} {message}");
        }
        let silent = Error::NoAnswer { pod: "kv-2".into(), call: "add a learner", seconds: 5 };
        assert!(silent.is_ambiguous());
        assert_eq!(silent.to_string(), "kv-2 did not add a learner within 5 s");
    }

    #[test]
    fn where_nobody_was_reached_nothing_happened() {
        let error = reach::Error::Connect { pod: "kv-2".into(), reason: "connection refused".into() };
        let error = Error::from(error);
        assert!(!error.is_ambiguous());
        assert_eq!(error.to_string(), "cannot connect to kv-2: connection refused");
    }

    #[test]
    fn the_reason_is_dug_out_of_the_transport() {
        let reset = std::io::Error::from_raw_os_error(104);
        let error = Error::of(
            "kv-2",
            "report its status",
            &etcd_client::Error::GRpcStatus(Status::from_error(Box::new(reset))),
        );
        assert_eq!(error.to_string(), "kv-2 failed to report its status: connection reset by peer");
    }
}
