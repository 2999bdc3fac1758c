//! What an agent waits for, as it is logged and reported.

use std::time::Duration;

use etcd_operator_core::start::Waiting;

use crate::{log, tls};

#[derive(Clone, PartialEq, Eq)]
pub struct Awaited {
    pub waiting: Waiting,
    /// The same as a phrase.
    pub message: String,
}

impl From<Waiting> for Awaited {
    fn from(waiting: Waiting) -> Self {
        Self { message: waiting.to_string(), waiting }
    }
}

impl From<&tls::Error> for Awaited {
    /// Nothing is known of the cluster until they can be read.
    fn from(error: &tls::Error) -> Self {
        Waiting::Certificates { error: log::chain(error) }.into()
    }
}

impl Awaited {
    pub fn name(&self) -> &'static str {
        self.waiting.reason()
    }

    /// Short while other pods start soon, long while the operator or a person has to act first.
    pub fn pause(&self, waited: Duration) -> Duration {
        let until_somebody_acts = if waited < Duration::from_secs(60) { 250 } else { 1000 };
        Duration::from_millis(match &self.waiting {
            // A cluster of several bootstraps within a quarter of a second, and a pod that misses it is too late.
            Waiting::Looking
            | Waiting::OrderNotArmed
            | Waiting::PeersMissing { .. }
            | Waiting::FirstStarter { .. }
            | Waiting::OthersNotReady { .. } => 50,
            Waiting::Turn { .. } | Waiting::NoQuorum | Waiting::Names { .. } | Waiting::Fetching { .. } => {
                100
            }
            Waiting::DataLost { .. }
            | Waiting::NeverPublished { .. }
            | Waiting::NotAMember
            | Waiting::Certificates { .. }
            | Waiting::ClustersDisagree { .. }
            | Waiting::NoOrder
            | Waiting::MalformedOrder { .. }
            | Waiting::OrderForOthers { .. }
            | Waiting::OrderVoid { .. }
            | Waiting::OrderUsed { .. } => until_somebody_acts,
        })
    }
}
