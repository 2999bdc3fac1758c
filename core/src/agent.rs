//! What the operator and the agent in a member's pod agree on: where things lie, and what they tell each other.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::observed::Process;
use crate::start::Waiting;

/// Variables of the etcd container. Without a default they must be set.
pub mod environment {
    /// A [`MemberConfig`](crate::etcd_config::MemberConfig) as JSON.
    pub const CONFIG: &str = "ETCD_AGENT_CONFIG";
    /// The pod's name (`metadata.name`).
    pub const POD: &str = "ETCD_AGENT_POD";
    /// The pod's address (`status.podIP`).
    pub const ADDRESS: &str = "ETCD_AGENT_ADDRESS";
    /// Under which name or address the others reach this member; by default the pod's name below the peer Service.
    pub const HOST: &str = "ETCD_AGENT_HOST";
    /// Which address etcd and the agent listen on; by default all.
    pub const LISTEN: &str = "ETCD_AGENT_LISTEN";
    /// The program to start; by default the `etcd` in `PATH`.
    pub const ETCD: &str = "ETCD_AGENT_ETCD";
    /// Each of the paths below can be elsewhere.
    pub const VOLUME: &str = "ETCD_AGENT_VOLUME";
    pub const RUN: &str = "ETCD_AGENT_RUN";
    pub const ORDER: &str = "ETCD_AGENT_ORDER";
    pub const TERMINATION_LOG: &str = "ETCD_AGENT_TERMINATION_LOG";
}

/// Where things lie in the etcd container.
pub mod path {
    /// The member's volume.
    pub const VOLUME: &str = "/var/lib/etcd";
    /// etcd's own directory, below the volume.
    pub const DATA: &str = "data";
    /// Whose data it is, below the volume; and below [`RUN`], what was started in this pod.
    pub const IDENTITY: &str = "identity.json";
    /// Where data without a log is put aside, below the volume.
    pub const DISCARDED: &str = "discarded";
    /// An emptyDir, writable: the init container puts the agent here, and the agent remembers here what it did.
    pub const RUN: &str = "/run/etcd-agent";
    /// The program, below [`RUN`].
    pub const PROGRAM: &str = "etcd-agent";
    /// Where the ConfigMap with the bootstrap order is mounted, as a directory, so that its coming and going is seen.
    pub const ORDER: &str = "/etc/etcd-bootstrap";
    pub const TERMINATION_LOG: &str = "/dev/termination-log";
}

/// Where the agent answers on the metrics port while it waits: GET tells a [`Report`], POST takes [`News`] first.
pub const PAGE: &str = "/agent";

/// What a waiting agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub cluster_uid: String,
    /// The pod's name.
    pub name: String,
    pub peer_url: String,
    /// etcd was started before with this volume or in this pod, so it may have run.
    pub ever_started: bool,
    #[serde(flatten)]
    pub waiting: Waiting,
    /// The same in words.
    pub message: String,
    /// Since when it waits for this.
    pub since: Timestamp,
}

impl Report {
    /// What it means for the cluster.
    pub fn process(&self) -> Process {
        match &self.waiting {
            Waiting::DataLost { .. } | Waiting::OrderUsed { .. } => Process::DataLost,
            // A cluster has formed, and this agent will not follow the order that it formed by.
            Waiting::NotAMember
            | Waiting::NeverPublished { .. }
            | Waiting::NoQuorum
            | Waiting::ClustersDisagree { .. }
            | Waiting::Turn { .. }
            | Waiting::Names { .. } => Process::Waiting,
            Waiting::NoOrder | Waiting::OrderForOthers { .. } | Waiting::OrderVoid { .. }
                if self.ever_started =>
            {
                Process::DataLost
            }
            Waiting::NoOrder | Waiting::OrderForOthers { .. } | Waiting::OrderVoid { .. } => Process::Waiting,
            Waiting::Fetching { .. } => Process::Started,
            // It has an order, or will have read it in a moment.
            Waiting::Looking
            | Waiting::MalformedOrder { .. }
            | Waiting::OrderNotArmed
            | Waiting::PeersMissing { .. }
            | Waiting::FirstStarter { .. }
            | Waiting::OthersNotReady { .. } => Process::Forming,
        }
    }
}

/// What the operator tells a waiting agent, which then looks again at once.
///
/// The agent finds its peers by the name of the peer Service, too. But whoever asks for that name before all pods
/// are in it is told half an answer, which caches then repeat for up to half a minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct News {
    /// The addresses that the peer Service lists now.
    pub addresses: Vec<IpAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(waiting: Waiting) -> Report {
        Report {
            cluster_uid: "uid-1".into(),
            name: "kv-1".into(),
            peer_url: "http://kv-1:2380".into(),
            ever_started: false,
            message: waiting.to_string(),
            waiting,
            since: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_empty_volume_without_an_order_is_lost_data_if_etcd_ever_ran_on_it() {
        let fresh = report(Waiting::NoOrder);
        assert_eq!(fresh.process(), Process::Waiting);
        assert_eq!(Report { ever_started: true, ..fresh }.process(), Process::DataLost);
    }

    #[test]
    fn a_report_is_flat() {
        let report = report(Waiting::PeersMissing { missing: vec!["kv-2".into()] });
        assert_eq!(
            serde_json::to_string(&report).expect("plain data"),
            r#"{"clusterUid":"uid-1","name":"kv-1","peerUrl":"http://kv-1:2380","everStarted":false,"reason":"PeersMissing","missing":["kv-2"],"message":"pods to start before bootstrap: kv-2","since":"1970-01-01T00:00:00Z"}"#
        );
    }

    #[test]
    fn whatever_is_waited_for_is_read_as_it_was_written() {
        let text = || "text".to_owned();
        for waiting in [
            Waiting::Looking,
            Waiting::DataLost { member: text() },
            Waiting::NeverPublished { member: text() },
            Waiting::NotAMember,
            Waiting::NoQuorum,
            Waiting::ClustersDisagree { clusters: vec![text()] },
            Waiting::Turn { before: vec![text()] },
            Waiting::Names { astray: vec![text()] },
            Waiting::Fetching { applied: 1, wanted: 2 },
            Waiting::NoOrder,
            Waiting::MalformedOrder { error: text() },
            Waiting::OrderForOthers { why: text() },
            Waiting::OrderNotArmed,
            Waiting::OrderVoid { nonce: text() },
            Waiting::OrderUsed { nonce: text() },
            Waiting::PeersMissing { missing: vec![text()] },
            Waiting::FirstStarter { first: text() },
            Waiting::OthersNotReady { others: vec![text()] },
        ] {
            let report = report(waiting);
            let value = serde_json::to_string(&report).expect("plain data");
            assert_eq!(serde_json::from_str::<Report>(&value).expect("it was just written"), report);
            let reason = &serde_json::from_str::<serde_json::Value>(&value).expect("it is JSON")["reason"];
            assert_eq!(reason, report.waiting.reason());
        }
    }

    #[test]
    fn a_start_on_record_without_data_is_data_lost_unless_a_cluster_says_otherwise() {
        let process = |waiting, ever_started| Report { ever_started, ..report(waiting) }.process();
        assert_eq!(process(Waiting::NoOrder, false), Process::Waiting);
        assert_eq!(process(Waiting::NoOrder, true), Process::DataLost);
        assert_eq!(process(Waiting::NotAMember, true), Process::Waiting);
        assert_eq!(process(Waiting::PeersMissing { missing: vec![] }, false), Process::Forming);
        assert_eq!(process(Waiting::DataLost { member: "1".into() }, false), Process::DataLost);
    }

    #[test]
    fn who_receives_data_is_neither_waiting_for_membership_nor_without_data() {
        let fetching = report(Waiting::Fetching { applied: 0, wanted: 312 });
        for ever_started in [false, true] {
            assert_eq!(Report { ever_started, ..fetching.clone() }.process(), Process::Started);
        }
    }
}
