//! The agent that will guard every start of etcd in a member's pod.
//!
//! It runs in etcd's own image, which has no shell and no libc, so it is static and stays small: it links
//! no Kubernetes client and holds no token.

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!(
        "etcd-agent {}: there is nothing in here yet. It will guard every start of etcd in a member's pod: \
         check that the volume belongs to this member, write etcd's config from the live member list, and only \
         then start etcd.",
        env!("CARGO_PKG_VERSION")
    );
    ExitCode::from(2)
}
