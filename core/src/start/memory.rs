//! What an agent remembers of earlier replies of the other pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::evidence::{Answer, Evidence, Order, Peer};
use super::voided_order;
use crate::member::{MemberProgress, PeerAddress};

/// What one pod replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The IP address of the pod.
    pub address: IpAddr,
    /// The address of its member, if its agent reported it.
    pub peer_address: Option<PeerAddress>,
    /// Its agent waits for nothing but the first pod to start.
    pub ready: bool,
    pub answer: Answer,
}

/// Lives as long as the process of the agent: it does not need to survive a start of etcd.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pods: BTreeMap<IpAddr, Known>,
    void_nonces: BTreeSet<String>,
    added_since: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    peer_address: Option<PeerAddress>,
    met_at: Option<Duration>,
}

impl Memory {
    /// Completes the evidence with what the other pods replied at the time `now`, which has any fixed beginning.
    ///
    /// A pod stays met while its address is published, whatever it replies later: between its agent and the first
    /// response of its etcd nothing responds, and a pod that waited for the response would miss the bootstrap.
    pub fn add(&mut self, replies: Vec<Reply>, evidence: Evidence, now: Duration) -> Evidence {
        self.pods.retain(|address, _| replies.iter().any(|reply| reply.address == *address));
        let peers = replies.into_iter().map(|reply| self.meet(reply, &evidence.order, now)).collect();
        let evidence = Evidence { peers, ..evidence };
        let added = evidence
            .lists()
            .any(|list| list.progress_of(&evidence.peer_address) == Some(MemberProgress::Added));
        self.added_since = added.then(|| self.added_since.unwrap_or(now));
        self.void_nonces.extend(voided_order(&evidence).map(str::to_owned));
        let added_for = self.added_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        Evidence { added_for, void_nonces: self.void_nonces.clone(), ..evidence }
    }

    fn meet(&mut self, reply: Reply, order: &Order, now: Duration) -> Peer {
        let Reply { address, peer_address, ready, answer } = reply;
        let known = self.pods.entry(address).or_default();
        known.peer_address = peer_address.or(known.peer_address.take());
        let without_cluster = match (&answer, order) {
            (Answer::Waiting, _) => true,
            (Answer::Members(list), Order::There(order)) => list.is_forming(order),
            (Answer::Members(_), Order::None | Order::Malformed(_))
            | (Answer::Refused | Answer::Silent | Answer::Unknown, _) => false,
        };
        if without_cluster {
            known.met_at.get_or_insert(now);
        }
        let met_for = known.met_at.map(|met_at| now.saturating_sub(met_at));
        Peer { address, peer_address: known.peer_address.clone(), met_for, ready, answer }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{address, at, evidence, list, nothing};
    use super::*;

    const ORDER: &str = "order: n1 for kv-0 kv-1 kv-2";
    const FORMING: &str = "kv-0 named, kv-1 named, kv-2 named";

    fn reply(pod: &str, answer: Answer) -> Reply {
        let peer_address = (answer == Answer::Waiting).then(|| at(pod));
        Reply { address: address(pod), peer_address, ready: false, answer }
    }

    /// How long kv-0 has been met, and where its member is, after these answers: one each second, none for a pod whose
    /// address is not published.
    fn after(order: &str, answers: &[Option<Answer>]) -> Option<(Option<u64>, Option<PeerAddress>)> {
        let mut memory = Memory::default();
        let mut peers = Vec::new();
        for (second, answer) in (100..).zip(answers) {
            let replies = answer.iter().cloned().map(|answer| reply("kv-0", answer)).collect();
            peers = memory.add(replies, evidence(order), Duration::from_secs(second)).peers;
        }
        let peer = peers.pop()?;
        Some((peer.met_for.map(|met_for| met_for.as_secs()), peer.peer_address))
    }

    #[test]
    fn a_pod_stays_met_while_its_agent_becomes_etcd() {
        let starts = [Answer::Waiting, Answer::Refused, Answer::Silent, Answer::Unknown].map(Some);
        assert_eq!(after(ORDER, &starts), Some((Some(3), Some(at("kv-0")))));
        assert_eq!(after(ORDER, &[Some(Answer::Silent), Some(Answer::Refused)]), Some((None, None)));
    }

    #[test]
    fn an_etcd_is_met_only_if_it_bootstraps_by_the_order() {
        let lists = |text: &str| [Some(Answer::Members(list(text)))];
        assert_eq!(after(ORDER, &lists(FORMING)), Some((Some(0), None)));
        assert_eq!(after("", &lists(FORMING)), Some((None, None)));
        assert_eq!(after(ORDER, &lists("kv-0 started, kv-1 named, kv-2 named")), Some((None, None)));
    }

    #[test]
    fn a_pod_is_forgotten_with_its_address() {
        assert_eq!(after(ORDER, &[Some(Answer::Waiting), None]), None);
        assert_eq!(after(ORDER, &[Some(Answer::Waiting), None, Some(Answer::Refused)]), Some((None, None)));
    }

    #[test]
    fn the_time_since_a_member_was_added_begins_again_with_the_next_addition() {
        let mut memory = Memory::default();
        let mut added_for = |second, text: &str| {
            let replies = vec![reply("kv-0", Answer::Members(list(text)))];
            memory.add(replies, nothing("kv-1"), Duration::from_secs(second)).added_for.as_secs()
        };
        assert_eq!(added_for(7, "kv-0 started, kv-1 added with TLS"), 0);
        assert_eq!(added_for(9, "kv-0 started, kv-1 added"), 2);
        assert_eq!(added_for(10, "kv-0 started"), 0);
        assert_eq!(added_for(12, "kv-0 started, kv-1 added"), 0);
    }

    #[test]
    fn an_order_stays_void_when_no_member_responds_any_more() {
        let mut memory = Memory::default();
        let mut void = |answer| {
            let after = memory.add(vec![reply("kv-0", answer)], evidence(ORDER), Duration::ZERO);
            after.void_nonces
        };
        assert_eq!(void(Answer::Members(list(FORMING))), BTreeSet::new());
        assert_eq!(void(Answer::Members(list("kv-0 started with TLS"))), BTreeSet::from(["n1".into()]));
        assert_eq!(void(Answer::Silent), BTreeSet::from(["n1".into()]));
    }
}
