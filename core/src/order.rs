//! The bootstrap order: which pods bootstrap a cluster together. Each volume uses it at most once.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::agent::Protocol;
use crate::member::PeerAddress;

/// The key of the order in its ConfigMap, and the name of the file where that is mounted.
pub const KEY: &str = "order.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapOrder {
    #[serde(default = "Protocol::first")]
    pub protocol_version: Protocol,
    /// The EtcdCluster that it was created for.
    pub cluster_uid: String,
    /// Always 1 today. Agents require it, so it stays.
    pub attempt: u32,
    /// An order is created first and armed then, for good. Agents use no order that is not armed.
    #[serde(default)]
    pub armed: bool,
    /// Never the same twice. A volume that has used it does not use it again.
    pub nonce: String,
    /// Peer URLs by the names of the pods.
    pub members: BTreeMap<String, String>,
}

/// Why a text is no order.
#[derive(Debug)]
pub enum Malformed {
    NotJson(serde_json::Error),
    NoNonce,
    NoMembers,
}

impl BootstrapOrder {
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let order: Self = serde_json::from_str(text).map_err(Malformed::NotJson)?;
        if order.nonce.is_empty() {
            return Err(Malformed::NoNonce);
        }
        if order.members.is_empty() {
            return Err(Malformed::NoMembers);
        }
        Ok(order)
    }

    pub fn render(&self) -> String {
        serde_json::to_string(self).expect("text and numbers are always JSON")
    }

    /// Where the order lists a pod.
    pub fn address_of(&self, pod: &str) -> Option<PeerAddress> {
        PeerAddress::parse(self.members.get(pod)?)
    }

    /// Members of two orders never take each other for one cluster, even when the same pods are in both.
    pub fn token(&self) -> String {
        format!("{}-{}", self.cluster_uid, self.nonce)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(error) => write!(f, "invalid JSON: {error}"),
            Self::NoNonce => f.write_str("the nonce is missing"),
            Self::NoMembers => f.write_str("the list of members is empty"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> BootstrapOrder {
        BootstrapOrder {
            protocol_version: Protocol::CURRENT,
            cluster_uid: "uid-1".into(),
            attempt: 2,
            armed: true,
            nonce: "n1".into(),
            members: [("kv-0", "http://kv-0.kv-peer.ns.svc.cluster.local:2380")]
                .map(|(name, url)| (name.to_owned(), url.to_owned()))
                .into(),
        }
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let text = order().render();
        assert_eq!(
            text,
            r#"{"protocolVersion":5,"clusterUid":"uid-1","attempt":2,"armed":true,"nonce":"n1","members":{"kv-0":"http://kv-0.kv-peer.ns.svc.cluster.local:2380"}}"#
        );
        assert_eq!(BootstrapOrder::parse(&text).expect("it was rendered by us"), order());
    }

    #[test]
    fn half_an_order_is_none() {
        let without_nonce = BootstrapOrder { nonce: String::new(), ..order() };
        assert!(matches!(BootstrapOrder::parse(&without_nonce.render()), Err(Malformed::NoNonce)));
        let without_members = BootstrapOrder { members: BTreeMap::new(), ..order() };
        assert!(matches!(BootstrapOrder::parse(&without_members.render()), Err(Malformed::NoMembers)));
        let unsaid = order().render().replace(r#""armed":true,"#, "");
        assert!(!BootstrapOrder::parse(&unsaid).expect("it can be read").armed);
        for torn in ["", "{}", r#"{"clusterUid":"uid-1","attem"#] {
            assert!(matches!(BootstrapOrder::parse(torn), Err(Malformed::NotJson(_))), "{torn}");
        }
    }
}
