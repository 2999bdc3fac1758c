//! Rules about consent to the loss of data.

use super::{Rule, Server, syntax};
use crate::api::{AUTO, AcceptDataLoss, EtcdClusterSpec};

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    Rule {
        at: "recovery.acceptDataLoss.clusterID",
        server: Server::Schema,
        message: "must be status.clusterID: up to 16 hexadecimal digits in lower case",
        broken: |spec| consent(spec).is_some_and(|it| !is_cluster_id(&it.cluster_id)),
    },
    Rule {
        at: "recovery.acceptDataLoss.survivor",
        server: Server::Schema,
        message: "must be Auto or the name of a pod of this cluster, such as kv-1",
        broken: |spec| consent(spec).is_some_and(|it| it.survivor != AUTO && !is_pod(&it.survivor)),
    },
];

fn consent(spec: &EtcdClusterSpec) -> Option<&AcceptDataLoss> {
    spec.recovery.as_ref()?.accept_data_loss.as_ref()
}

pub(super) fn is_cluster_id(text: &str) -> bool {
    let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
    (1..=16).contains(&text.len()) && text.bytes().all(is_digit)
}

fn is_pod(name: &str) -> bool {
    let parts = name.rsplit_once('-');
    name.len() <= 63
        && parts.is_some_and(|(cluster, ordinal)| {
            syntax::is_service_name(cluster)
                && ordinal.len() == 1
                && ordinal.bytes().all(|it| it.is_ascii_digit())
        })
}
