//! Whether and how etcd starts in a pod. The agent asks before every start.
//!
//! The rule behind all rules: a member that has lost its log must never run again under its old identity. It would
//! vote against its earlier votes, and acknowledged writes would be lost.

mod evidence;
mod memory;
mod natural;
mod verdict;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

pub use evidence::{Answer, Evidence, Identity, Member, MemberList, Order, Peer, Volume};
pub use memory::{Memory, Reply};
pub use natural::Natural;
pub use verdict::{Refusal, Start, Waiting};

use crate::member::{MemberProgress, PeerAddress};
use crate::order::BootstrapOrder;
use crate::quorum::quorum;
use crate::recovery::RecoveryOrder;

/// How long an order's pods wait for the last ones after a quorum of them has been met. A later one finds a cluster that
/// has bootstrapped and has to be replaced, so this is long enough to pull an image.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the others let the first pod start alone while its agent still waits, and how long the first pod gives them
/// to find each other.
const FIRST_STARTER: Duration = Duration::from_secs(3);
/// How long a learner lets another one start before it, which takes less than a second.
const TURN: Duration = Duration::from_secs(5);
/// The same if nothing listens there, as between the agent and its etcd.
const MOMENT: Duration = Duration::from_secs(1);

/// How long DNS can return a previous address of a member.
const FORMER_ADDRESS: Duration = Duration::from_secs(35);

pub fn decide_start(evidence: &Evidence) -> Start {
    if let Some(refusal) = against_volume(evidence) {
        return Start::Refuse(refusal);
    }
    if evidence.volume.has_log {
        if let Some(order) = forced_by(evidence) {
            return Start::Force { order: order.clone() };
        }
        let adopt =
            evidence.volume.identity.as_ref().is_some_and(|it| it.cluster_uid != evidence.cluster_uid);
        return Start::Restart { adopt };
    }
    let formed: Vec<&MemberList> = formed_lists(evidence).collect();
    if formed.is_empty() { without_cluster(evidence) } else { beside_cluster(evidence, &formed) }
}

/// The order by which a cluster has bootstrapped, if a member of it responds now. The order stays void if none responds
/// later.
pub fn voided_order(evidence: &Evidence) -> Option<&str> {
    let order = order_of(evidence)?;
    let listed = |pod: &String| order.address_of(pod);
    let knows_us = |list: &MemberList| {
        order.members.keys().filter_map(listed).any(|address| list.at(&address).is_some())
    };
    formed_lists(evidence).any(knows_us).then_some(&order.nonce)
}

/// The order by which this member continues without the others, unless it has used it.
fn forced_by(evidence: &Evidence) -> Option<&RecoveryOrder> {
    let order = evidence.recovery.as_ref().filter(|order| order.cluster_uid == evidence.cluster_uid)?;
    let survives = order.start.as_ref().is_some_and(|start| start.survivor == evidence.name);
    (survives && !evidence.used_nonces.contains(&order.nonce)).then_some(order)
}

fn order_of(evidence: &Evidence) -> Option<&BootstrapOrder> {
    match &evidence.order {
        Order::There(order) => Some(order),
        Order::None | Order::Malformed(_) => None,
    }
}

/// A cluster counts as bootstrapped unless it is certainly one that bootstraps by our order now.
fn formed_lists(evidence: &Evidence) -> impl Iterator<Item = &MemberList> {
    let order = order_of(evidence);
    evidence
        .lists()
        .filter(move |list| !list.members.is_empty() && !order.is_some_and(|order| list.is_forming(order)))
}

fn against_volume(evidence: &Evidence) -> Option<Refusal> {
    let Volume { has_log, has_remains, identity } = &evidence.volume;
    let Some(identity) = identity else {
        return (*has_log || *has_remains).then_some(Refusal::UnknownOwner);
    };
    let adopted = evidence.adopts.as_ref() == Some(&identity.cluster_uid);
    if identity.cluster_uid != evidence.cluster_uid && !adopted {
        return Some(Refusal::ForeignCluster {
            found: identity.cluster_uid.clone(),
            expected: evidence.cluster_uid.clone(),
        });
    }
    (identity.name != evidence.name)
        .then(|| Refusal::ForeignPod { found: identity.name.clone(), expected: evidence.name.clone() })
}

/// A member of a bootstrapped cluster responds, so the order does not matter: the member lists decide.
fn beside_cluster(evidence: &Evidence, formed: &[&MemberList]) -> Start {
    let own = &evidence.peer_address;
    let clusters: BTreeSet<u64> =
        formed.iter().filter(|list| list.at(own).is_some()).map(|list| list.cluster_id).collect();
    if clusters.len() > 1 {
        let clusters = clusters.iter().map(|id| format!("{id:x}")).collect();
        return Start::Wait(Waiting::ClustersDisagree { clusters });
    }
    // A confirmed list is not stale, so it overrides the others.
    let confirmed: Vec<&MemberList> = formed.iter().copied().filter(|list| list.confirmed).collect();
    let believed = if confirmed.is_empty() { formed } else { &confirmed };
    let one = |progress| {
        let mut members = believed.iter().filter_map(|list| list.at(own));
        members.find(|member| member.progress() == progress).map(|member| format!("{:x}", member.id))
    };
    if let Some(member) = one(MemberProgress::Published) {
        return Start::Wait(Waiting::DataLost { member });
    }
    if let Some(member) = one(MemberProgress::Listed) {
        return Start::Wait(Waiting::NeverPublished { member });
    }
    if believed.iter().any(|list| list.at(own).is_none()) {
        return Start::Wait(Waiting::NotAMember);
    }
    match confirmed.first() {
        Some(list) => join(evidence, list, confirmed.iter().filter_map(|list| list.applied).max()),
        None => Start::Wait(Waiting::NoQuorum),
    }
}

fn join(evidence: &Evidence, list: &MemberList, applied: Option<u64>) -> Start {
    let before: Vec<String> = list
        .members
        .iter()
        .filter(|member| member.progress() == MemberProgress::Added)
        .filter(|member| {
            let lower = |address: &PeerAddress| Natural(&address.host) < Natural(&evidence.peer_address.host);
            member.peer_addresses().any(|address| lower(&address) && is_starting(evidence, &address))
        })
        .filter_map(|member| member.peer_urls.first().cloned())
        .collect();
    if !before.is_empty() {
        return Start::Wait(Waiting::Turn { before });
    }
    let astray = names_astray(evidence, list);
    if !astray.is_empty() && evidence.added_for < FORMER_ADDRESS {
        return Start::Wait(Waiting::Names { astray });
    }
    let fetch_until = applied.filter(|&applied| applied > evidence.whole_log_until);
    Start::Join { members: list.members.clone(), fetch_until }
}

/// Names for which DNS returns no address of a responding member, while a member responds at an address without a name.
/// After a pod was re-created, DNS can return its previous address for half a minute, and an etcd that joins meanwhile
/// finds no peer and exits. If a member responds nowhere, its name is not the cause.
fn names_astray(evidence: &Evidence, list: &MemberList) -> Vec<String> {
    let in_cluster = |peer: &&Peer| matches!(&peer.answer, Answer::Members(theirs) if theirs.cluster_id == list.cluster_id);
    let answering: BTreeSet<IpAddr> =
        evidence.peers.iter().filter(in_cluster).map(|peer| peer.address).collect();
    let leads_to = |host: &String| evidence.names.get(host).into_iter().flatten();
    let found: BTreeSet<&IpAddr> = list.started_hosts().flat_map(|host| leads_to(&host)).collect();
    if answering.iter().all(|address| found.contains(address)) {
        return Vec::new();
    }
    let astray = |host: &String| !leads_to(host).any(|address| answering.contains(address));
    list.started_hosts().filter(astray).collect()
}

/// Whether another learner starts now or soon. A joining etcd asks every listed member for its version before it
/// responds to anything itself, so two that start at the same time wait for each other until they time out.
fn is_starting(evidence: &Evidence, address: &PeerAddress) -> bool {
    let known = evidence.peers.iter().filter(|peer| peer.peer_address.as_ref() == Some(address));
    let nameless = evidence.peers.iter().filter(|peer| peer.peer_address.is_none());
    let limit = known
        .map(|peer| match peer.answer {
            Answer::Members(_) => Duration::ZERO,
            Answer::Refused => MOMENT,
            Answer::Waiting | Answer::Silent | Answer::Unknown => TURN,
        })
        .max()
        .or_else(|| {
            // It can be any pod that listens without a response.
            nameless.map(|peer| if peer.answer == Answer::Silent { TURN } else { Duration::ZERO }).max()
        });
    limit.is_some_and(|limit| evidence.added_for < limit)
}

fn without_cluster(evidence: &Evidence) -> Start {
    let order = match &evidence.order {
        Order::There(order) => order,
        Order::None => return Start::Wait(Waiting::NoOrder),
        Order::Malformed(error) => return Start::Wait(Waiting::MalformedOrder { error: error.clone() }),
    };
    if let Some(why) = not_for_us(evidence, order) {
        return Start::Wait(Waiting::OrderForOthers { why });
    }
    if evidence.used_nonces.contains(&order.nonce) {
        return Start::Wait(Waiting::OrderUsed { nonce: order.nonce.clone() });
    }
    if evidence.void_nonces.contains(&order.nonce) {
        return Start::Wait(Waiting::OrderVoid { nonce: order.nonce.clone() });
    }
    if !order.armed {
        return Start::Wait(Waiting::OrderNotArmed);
    }
    match missing_for_bootstrap(evidence, order) {
        Some(waiting) => Start::Wait(waiting),
        None => Start::Bootstrap { order: order.clone() },
    }
}

fn not_for_us(evidence: &Evidence, order: &BootstrapOrder) -> Option<String> {
    if order.cluster_uid != evidence.cluster_uid {
        return Some(format!("the current order is for cluster UID {}", order.cluster_uid));
    }
    if let Some(attempt) = evidence.attempt.filter(|&attempt| attempt != order.attempt) {
        return Some(format!(
            "the current order is for attempt {}, this pod was created for attempt {attempt}",
            order.attempt
        ));
    }
    match order.members.get(&evidence.name) {
        None => Some("the current order does not list it".into()),
        Some(_) if order.address_of(&evidence.name).as_ref() == Some(&evidence.peer_address) => None,
        Some(url) => Some(format!("the current order lists it at {url}")),
    }
}

/// What is still missing before this pod starts by the order.
///
/// A quorum of the order's pods, this one included, must have been met without a bootstrapped cluster; a silent pod is not
/// known to have none. All should start together, because a cluster that bootstraps leaves out the late ones. One
/// starts first, because each etcd asks the others whether it is new and waits a second for those that listen without
/// a response. The time between its agent and its etcd is head start enough: a pod that waits longer can miss the
/// bootstrap. So can a pod that has just started and does not know the others yet, although they have seen it: the
/// first pod gives it time to find them.
fn missing_for_bootstrap(evidence: &Evidence, order: &BootstrapOrder) -> Option<Waiting> {
    let forming = |peer: &Peer| matches!(&peer.answer, Answer::Members(list) if list.is_forming(order));
    let mut met: Vec<(Option<&str>, Duration)> = Vec::new();
    let is_at =
        |peer: &Peer, name: &str| peer.peer_address.is_some() && peer.peer_address == order.address_of(name);
    for name in order.members.keys().filter(|name| **name != evidence.name) {
        let seen = evidence.peers.iter().filter(|peer| is_at(peer, name));
        met.extend(seen.filter_map(|peer| peer.met_for).max().map(|met_for| (Some(name.as_str()), met_for)));
    }
    let nameless = evidence.peers.iter().filter(|peer| peer.peer_address.is_none() && forming(peer));
    met.extend(nameless.filter_map(|peer| Some((None, peer.met_for?))));
    met.sort_by_key(|&(_, met_for)| std::cmp::Reverse(met_for));
    let there: BTreeSet<&str> = met.iter().filter_map(|&(name, _)| name).collect();

    let quorum = quorum(order.members.len());
    let missing = || {
        let others = order.members.keys().filter(|name| **name != evidence.name);
        let missing = others.filter(|name| !there.contains(name.as_str())).cloned().collect();
        Some(Waiting::PeersMissing { missing })
    };
    // How long ago the last of this number of others was met.
    let met_others = |count: usize| match count {
        0 => Some(Duration::MAX),
        count => met.get(count - 1).map(|&(_, met_for)| met_for),
    };
    let Some(quorum_for) = met_others(quorum - 1) else {
        return missing();
    };
    if evidence.peers.iter().any(forming) {
        return None;
    }
    let complete_for = match met_others(order.members.len() - 1) {
        Some(complete_for) => complete_for,
        None if quorum_for < PATIENCE => return missing(),
        None => quorum_for - PATIENCE,
    };
    let first = there.iter().copied().chain([evidence.name.as_str()]).min_by_key(|name| Natural(name))?;
    if complete_for >= FIRST_STARTER {
        return None;
    }
    let waits = |peer: &Peer, name: &str| is_at(peer, name) && peer.answer == Answer::Waiting;
    if first != evidence.name {
        let still_waits = evidence.peers.iter().any(|peer| waits(peer, first));
        return still_waits.then(|| Waiting::FirstStarter { first: first.to_owned() });
    }
    let is_unready = |name: &str| evidence.peers.iter().any(|peer| waits(peer, name) && !peer.ready);
    let others: Vec<String> = there.into_iter().filter(|name| is_unready(name)).map(str::to_owned).collect();
    (!others.is_empty()).then_some(Waiting::OthersNotReady { others })
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
