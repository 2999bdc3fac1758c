//! What the operator and the agents in the members' pods agree on: paths, and the messages that they exchange. They
//! can be of different versions (ADR 27).

pub mod metrics;
pub mod restoration;

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::member::PeerAddress;
use crate::names::AGENT_ANNOTATION;
use crate::observed::{Process, Unanswered};
use crate::start::{Answer, Reply, Waiting};

/// The version of the formats in which operator and agents write to each other. A format only gains fields and values,
/// and a reader ignores fields that it does not know; so every version reads every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Protocol(pub u32);

impl Protocol {
    /// What this version writes.
    pub const CURRENT: Self = Self(5);

    /// The first version did not write its number.
    pub(crate) fn first() -> Self {
        Self(1)
    }

    /// The oldest agent that this operator can work with. A member with an older one is restarted, which every user of
    /// one or two members has to agree to: so it stays as low as possible.
    pub(crate) fn lowest() -> Self {
        Self::first()
    }

    /// Of the agent in a pod, or in the pods that a template describes. When etcd runs, its agent is gone and cannot be
    /// asked.
    pub fn on(metadata: &ObjectMeta) -> Self {
        let written = metadata.annotations.as_ref().and_then(|it| it.get(AGENT_ANNOTATION));
        written.and_then(|number| number.parse().ok()).map_or_else(Self::first, Self)
    }
}

impl Default for Protocol {
    fn default() -> Self {
        Self::CURRENT
    }
}

/// Variables of the etcd container. Without a default they must be set.
pub mod environment {
    /// A [`MemberConfig`](crate::etcd_config::MemberConfig) as JSON.
    pub const CONFIG: &str = "ETCD_AGENT_CONFIG";
    /// The pod's name (`metadata.name`).
    pub const POD: &str = "ETCD_AGENT_POD";
    /// The pod's address (`status.podIP`).
    pub const ADDRESS: &str = "ETCD_AGENT_ADDRESS";
    /// The name or address of this member for the others; by default the pod's name below the peer Service.
    pub const HOST: &str = "ETCD_AGENT_HOST";
    /// The address that etcd and the agent listen on; by default all.
    pub const LISTEN: &str = "ETCD_AGENT_LISTEN";
    /// The program to start; by default the `etcd` in `PATH`.
    pub const ETCD: &str = "ETCD_AGENT_ETCD";
    /// Each of the paths below can be elsewhere.
    pub const VOLUME: &str = "ETCD_AGENT_VOLUME";
    pub const RUN: &str = "ETCD_AGENT_RUN";
    pub const ORDER: &str = "ETCD_AGENT_ORDER";
    pub const TLS: &str = "ETCD_AGENT_TLS";
    pub const TERMINATION_LOG: &str = "ETCD_AGENT_TERMINATION_LOG";
}

/// Paths in the etcd container.
pub mod path {
    /// The member's volume.
    pub const VOLUME: &str = "/var/lib/etcd";
    /// etcd's own directory, below the volume.
    pub const DATA: &str = "data";
    /// Whose data it is, below the volume; and below [`RUN`], what was started in this pod.
    pub const IDENTITY: &str = "identity.json";
    /// Data without a log is moved here, below the volume.
    pub const DISCARDED: &str = "discarded";
    /// A writable emptyDir: the init container puts the agent here, and the agent records here what it started.
    pub const RUN: &str = "/run/etcd-agent";
    /// The program, below [`RUN`].
    pub const PROGRAM: &str = "etcd-agent";
    /// The mounted ConfigMap with the bootstrap order: a directory, because a mounted file would not be updated.
    pub const ORDER: &str = "/etc/etcd-bootstrap";
    /// The mounted Secrets, each in a directory of its own.
    pub const TLS: &str = "/etc/etcd-tls";
    pub const TERMINATION_LOG: &str = "/dev/termination-log";
}

/// The page of a waiting agent on the metrics port: GET returns a [`Report`], POST accepts [`News`] first.
pub const PAGE: &str = "/agent";

/// What a waiting agent reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    #[serde(default = "Protocol::first")]
    pub protocol_version: Protocol,
    pub cluster_uid: String,
    /// The pod's name.
    pub name: String,
    pub peer_url: String,
    /// etcd was started before with this volume or in this pod, so it might have run.
    pub ever_started: bool,
    #[serde(flatten)]
    pub waiting: Reason,
    /// The same as a sentence.
    pub message: String,
    /// Since when it waits for this.
    pub since: Timestamp,
}

/// Why an agent waits, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reason {
    Known(Waiting),
    /// A reason, or details of one, that this version does not know.
    Unknown {
        reason: String,
    },
}

impl Report {
    /// What it means for the cluster.
    ///
    /// An agent with an unknown reason counts as one that has started etcd, of which the least can be concluded: its
    /// volume can hold data, and it cannot join. Plans wait for it.
    pub fn process(&self) -> Process {
        let waiting = match &self.waiting {
            Reason::Known(waiting) => waiting,
            Reason::Unknown { .. } => return Process::Started,
        };
        match waiting {
            Waiting::DataLost { .. } | Waiting::OrderUsed { .. } => Process::DataLost,
            // A cluster has bootstrapped, and this agent will not use the order of that bootstrap.
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
            // Nothing is known of the volume. An operator that does not know this reason concludes the same.
            Waiting::Certificates { .. } => Process::Started,
            // It has an order, or will have read it soon.
            Waiting::Looking
            | Waiting::MalformedOrder { .. }
            | Waiting::OrderNotArmed
            | Waiting::PeersMissing { .. }
            | Waiting::FirstStarter { .. }
            | Waiting::OthersNotReady { .. } => Process::Forming,
        }
    }

    /// Why the operator gets no answer of etcd.
    pub fn unanswered(&self) -> Unanswered {
        match &self.waiting {
            Reason::Known(Waiting::Certificates { error }) => Unanswered::CertificatesUnusable(error.clone()),
            Reason::Known(_) | Reason::Unknown { .. } => Unanswered::AgentWaiting(self.message.clone()),
        }
    }

    /// What it means for the agent of another pod, which reads it at this address.
    pub fn reply(&self, address: IpAddr) -> Reply {
        let started = self.process() == Process::Started;
        Reply {
            address,
            peer_address: PeerAddress::parse(&self.peer_url),
            ready: matches!(self.waiting, Reason::Known(Waiting::FirstStarter { .. })),
            answer: if started { Answer::Unknown } else { Answer::Waiting },
        }
    }
}

/// What the operator sends to a waiting agent, which then checks again at once.
///
/// The agent also finds its peers by the name of the peer Service. But a lookup before all pods are published returns a
/// partial answer, which caches repeat for up to half a minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct News {
    #[serde(default = "Protocol::first")]
    pub protocol_version: Protocol,
    /// The addresses that the peer Service lists now.
    pub addresses: Vec<IpAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(waiting: Waiting) -> Report {
        Report {
            protocol_version: Protocol::CURRENT,
            cluster_uid: "uid-1".into(),
            name: "kv-1".into(),
            peer_url: "http://kv-1:2380".into(),
            ever_started: false,
            message: waiting.to_string(),
            waiting: Reason::Known(waiting),
            since: Timestamp::UNIX_EPOCH,
        }
    }

    /// An upgrade of the operator restarts nothing. Whoever raises this has a reason that is worth the restart of every
    /// member.
    #[test]
    fn no_agent_is_too_old() {
        assert_eq!(Protocol::lowest(), Protocol::first());
        assert!(Protocol::lowest() <= Protocol::CURRENT);
    }

    #[test]
    fn the_protocol_of_an_agent_is_read_from_its_pod() {
        let pod = |value: &str| ObjectMeta {
            annotations: Some([(AGENT_ANNOTATION.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(Protocol::on(&pod("7")), Protocol(7));
        for unmarked in [ObjectMeta::default(), pod("new")] {
            assert_eq!(Protocol::on(&unmarked), Protocol::first());
        }
    }

    #[test]
    fn an_empty_volume_without_an_order_is_lost_data_if_etcd_ever_ran_on_it() {
        let fresh = report(Waiting::NoOrder);
        assert_eq!(fresh.process(), Process::Waiting);
        assert_eq!(Report { ever_started: true, ..fresh }.process(), Process::DataLost);
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

    /// What the operator and another agent conclude.
    fn conclusions(report: &Report) -> (Process, Answer) {
        (report.process(), report.reply(IpAddr::from([10, 0, 0, 1])).answer)
    }

    #[test]
    fn an_agent_whose_etcd_receives_data_neither_waits_for_membership_nor_has_no_data() {
        let fetching = report(Waiting::Fetching { applied: 0, wanted: 312 });
        for ever_started in [false, true] {
            let fetching = Report { ever_started, ..fetching.clone() };
            assert_eq!(conclusions(&fetching), (Process::Started, Answer::Unknown));
        }
        assert_eq!(conclusions(&report(Waiting::NoOrder)), (Process::Waiting, Answer::Waiting));
    }

    #[test]
    fn a_reason_that_this_version_does_not_know_is_still_a_report_of_an_agent_that_waits() {
        let known =
            serde_json::to_value(report(Waiting::OrderUsed { nonce: "n1".into() })).expect("plain data");
        let (mut of_later_version, mut with_other_details) = (known.clone(), known);
        of_later_version["reason"] = "CertificateMissing".into();
        with_other_details["nonce"] = 1.into();
        for (value, reason) in [(of_later_version, "CertificateMissing"), (with_other_details, "OrderUsed")] {
            let report: Report = serde_json::from_value(value).expect("a report");
            assert_eq!(report.waiting, Reason::Unknown { reason: reason.into() });
            assert!(report.message.starts_with("a new bootstrap order"), "{}", report.message);
            assert_eq!(conclusions(&report), (Process::Started, Answer::Unknown));
        }
    }

    #[test]
    fn an_agent_is_ready_once_it_waits_for_the_first_pod_only() {
        let ready = |waiting| report(waiting).reply(IpAddr::from([10, 0, 0, 1])).ready;
        assert!(ready(Waiting::FirstStarter { first: "kv-0".into() }));
        assert!(!ready(Waiting::PeersMissing { missing: vec![] }));
    }
}
