//! Rules about repair.

use super::{Rule, Server};
use crate::api::{EtcdClusterSpec, MAX_NODE_LOSS_GRACE_SECONDS, MIN_NODE_LOSS_GRACE_SECONDS};

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[Rule {
    at: "repair.nodeLossGraceSeconds",
    server: Server::Schema,
    message: "must be from 10 to 2592000 (30 days)",
    broken: |spec| {
        let range = MIN_NODE_LOSS_GRACE_SECONDS..=MAX_NODE_LOSS_GRACE_SECONDS;
        spec.repair.as_ref().is_some_and(|it| !range.contains(&it.node_loss_grace_seconds))
    },
}];
