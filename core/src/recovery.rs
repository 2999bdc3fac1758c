//! What users say and what is recorded about a recovery from a lost quorum: the consent in the spec, and the order by which
//! one member continues alone.

use serde::{Deserialize, Serialize};

use crate::agent::Protocol;
use crate::api::{AUTO, AcceptDataLoss};
use crate::observed::{ClusterId, Ordinal};

/// The key of the order in the ConfigMap of bootstrap orders, and the name of the file where that is mounted. Agents that do not know it
/// find no bootstrap order there.
pub const KEY: &str = "recovery.json";

/// The first version of agents that understand the order.
pub const UNDERSTOOD_FROM: Protocol = Protocol(5);

/// `spec.recovery.acceptDataLoss`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    pub cluster: ClusterId,
    pub survivor: Survivor,
}

/// Whose data continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Survivor {
    /// The member that has the most.
    Auto,
    Pod(Ordinal),
    /// No pod of this cluster has this name.
    Unknown(String),
}

impl Consent {
    /// None if a rule is broken.
    pub(crate) fn of(given: &AcceptDataLoss, cluster: &str) -> Option<Self> {
        let ordinal = |name: &str| name.strip_prefix(cluster)?.strip_prefix('-')?.parse().ok().map(Ordinal);
        let survivor = match given.survivor.as_str() {
            AUTO => Survivor::Auto,
            name => ordinal(name).map_or_else(|| Survivor::Unknown(name.into()), Survivor::Pod),
        };
        Some(Self { cluster: ClusterId(u64::from_str_radix(&given.cluster_id, 16).ok()?), survivor })
    }
}

/// What the agents of a cluster without quorum read. It is created when the operator observes the loss, and armed with the consent
/// of a user that came later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryOrder {
    #[serde(default = "Protocol::first")]
    pub protocol_version: Protocol,
    /// The EtcdCluster that it was created for.
    pub cluster_uid: String,
    /// Never the same twice: the UID of the ConfigMap. A volume that has used it does not use it again.
    pub nonce: String,
    /// None until a user has agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<ForcedStart>,
}

/// One start of etcd without the other members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForcedStart {
    /// The name of the pod.
    pub survivor: String,
    /// The UID of the pod that ran before, which is ended for it.
    pub replaces: String,
}

impl RecoveryOrder {
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub fn render(&self) -> String {
        serde_json::to_string(self).expect("text and numbers are always JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_is_a_pod_of_this_cluster() {
        let given = |survivor: &str| AcceptDataLoss { cluster_id: "c1".into(), survivor: survivor.into() };
        for (survivor, expected) in [
            ("Auto", Survivor::Auto),
            ("kv-1", Survivor::Pod(Ordinal(1))),
            ("other-1", Survivor::Unknown("other-1".into())),
            ("kv", Survivor::Unknown("kv".into())),
            ("kv-x", Survivor::Unknown("kv-x".into())),
        ] {
            let consent = Consent::of(&given(survivor), "kv").expect("the ID is valid");
            assert_eq!(consent, Consent { cluster: ClusterId(0xc1), survivor: expected });
        }
        let nonsense = AcceptDataLoss { cluster_id: "x".into(), survivor: AUTO.into() };
        assert_eq!(Consent::of(&nonsense, "kv"), None);
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let order = RecoveryOrder {
            protocol_version: Protocol::CURRENT,
            cluster_uid: "uid-1".into(),
            nonce: "uid-2".into(),
            start: None,
        };
        let start = Some(ForcedStart { survivor: "kv-1".into(), replaces: "uid-3".into() });
        for order in [RecoveryOrder { start, ..order.clone() }, order] {
            assert_eq!(RecoveryOrder::parse(&order.render()).expect("it was rendered by us"), order);
        }
        assert!(RecoveryOrder::parse("{}").is_err());
    }
}
