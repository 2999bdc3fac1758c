//! What an error says about the operation: that it had no effect, or nothing.
//!
//! To call something failed that took effect would accuse an honest cluster. To call something unknown that failed
//! only makes the check weaker. So an operation has failed only for reasons that are known to precede any effect.

use std::io;

use etcd_client::Error;

use super::operation::Ending;

/// Sent by etcd before it proposes the request to its peers.
const REFUSALS: [&str; 5] = [
    // Asked with "require leader", a member that knows of none does not begin.
    "etcdserver: no leader",
    // Too much is committed that is not applied yet; checked before the proposal.
    "etcdserver: too many requests",
    "etcdserver: rpc not supported for learner",
    "etcdserver: not capable",
    // Raft has neither appended nor forwarded it.
    "raft proposal dropped",
];

/// The numbers that gRPC gives to what is wrong with a request itself.
const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;
const UNAUTHENTICATED: i32 = 16;

pub fn of(error: &Error) -> Ending {
    let text = error.to_string();
    let had_no_effect = match error {
        Error::GRpcStatus(status) => is_refusal(status.code() as i32, status.message()) || is_refused(status),
        Error::TransportError(error) => is_refused(error),
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => true,
        Error::IoError(_)
        | Error::WatchError(_)
        | Error::Utf8Error(_)
        | Error::LeaseKeepAliveError(_)
        | Error::ElectError(_)
        | Error::EndpointError(_)
        | Error::EndpointsNotManaged
        | Error::Internal(_) => false,
    };
    if had_no_effect { Ending::Failed { error: text } } else { Ending::Unknown { error: text } }
}

/// Everything else may have been proposed: a request that timed out, a leader that changed, a server that stopped.
fn is_refusal(code: i32, message: &str) -> bool {
    matches!(code, INVALID_ARGUMENT | PERMISSION_DENIED | UNAUTHENTICATED)
        || REFUSALS.iter().any(|refusal| message.starts_with(refusal))
}

/// A refused connection never was one, so that nothing was sent over it.
fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        kind == Some(io::ErrorKind::ConnectionRefused)
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use etcd_client::ConnectOptions;
    use tokio::net::TcpListener;

    use super::*;
    use crate::access::Access;

    const UNKNOWN: i32 = 2;
    const RESOURCE_EXHAUSTED: i32 = 8;
    const UNAVAILABLE: i32 = 14;

    #[test]
    fn what_etcd_refuses_before_it_begins_has_failed() {
        let refusals = [
            (UNAVAILABLE, "etcdserver: no leader"),
            (RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
            (UNAVAILABLE, "etcdserver: rpc not supported for learner"),
            (UNKNOWN, "raft proposal dropped"),
            (INVALID_ARGUMENT, "etcdserver: key is not provided"),
            (PERMISSION_DENIED, "etcdserver: permission denied"),
            (UNAUTHENTICATED, "etcdserver: invalid auth token"),
        ];
        for (code, message) in refusals {
            assert!(is_refusal(code, message), "{message}");
        }
    }

    #[test]
    fn what_may_have_been_proposed_is_unknown() {
        const DEADLINE_EXCEEDED: i32 = 4;
        const CANCELLED: i32 = 1;
        let doubts = [
            (UNAVAILABLE, "etcdserver: leader changed"),
            (UNAVAILABLE, "etcdserver: request timed out"),
            (UNAVAILABLE, "etcdserver: request timed out, possibly due to previous leader failure"),
            (UNAVAILABLE, "etcdserver: request timed out, possibly due to connection lost"),
            (UNAVAILABLE, "etcdserver: server stopped"),
            (UNAVAILABLE, "transport error"),
            (UNKNOWN, "h2 protocol error"),
            (DEADLINE_EXCEEDED, "context deadline exceeded"),
            (CANCELLED, "operation was canceled"),
            // The write that finds the quota used up is applied, and then answered with this.
            (RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
            // Said by our own side, about an answer.
            (RESOURCE_EXHAUSTED, "decoded message length too large"),
        ];
        for (code, message) in doubts {
            assert!(!is_refusal(code, message), "{message}");
        }
    }

    async fn put(address: SocketAddr) -> Ending {
        let client = Access::Plain.client(address, ConnectOptions::new()).await;
        let mut client = client.expect("it is lazy");
        of(&client.put("key", "value", None).await.expect_err("no etcd is there"))
    }

    #[tokio::test]
    async fn a_refused_connection_is_a_failure_and_a_broken_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let breaking = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream)
            }
        });
        let broken = put(address).await;
        assert!(matches!(broken, Ending::Unknown { .. }), "{broken:?}");
        breaking.abort();
        let _ = breaking.await;
        let refused = put(address).await;
        assert!(matches!(refused, Ending::Failed { .. }), "{refused:?}");
    }
}
