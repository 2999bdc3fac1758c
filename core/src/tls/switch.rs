//! From plain text to TLS and back while members run.
//!
//! The client port can serve both schemes, so clients choose when they change. The peer port serves one. So members get their
//! certificates first (`Prepared`), then etcd lists every member with both URLs, and only then do listeners change, one
//! after the other. Members that connect to each other try one URL after the other. In the end etcd lists one URL again. The
//! way back has the same stages in the opposite order, and each stage is recorded when all members have reached it: a user
//! who changes their mind turns around at any of them.

use serde::{Deserialize, Serialize};

use super::{ClientPort, PeerPort, Scheme, Schemes, Transport};
use crate::api::Tls;
use crate::auth::loses_identity;
use crate::observed::{Member, Observed};

/// What comes next on the way from what is in effect to what a spec asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// What members should be made with now.
    pub form: Transport,
    /// What they should be made with in the end.
    pub target: Transport,
    pub section: Section,
    /// Some members serve their peer port in plain text, or might be about to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
}

/// Whether `spec.security.tls` takes effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Section {
    InForce,
    /// The spec said this when an operator that can change the transport first saw the cluster, and members were made with
    /// something else. That waits for an edit: an upgrade of the operator alone changes nothing.
    Dormant(Box<Tls>),
}

impl Section {
    /// `applied`: a user asks for it by an annotation, or the cluster bootstraps, so that every edit is one of its own time.
    /// `recorded` is none before such an operator has recorded it.
    pub fn of(tls: &Tls, applied: bool, in_effect: Option<Transport>, recorded: Option<&Self>) -> Self {
        let Some(in_effect) = in_effect.filter(|_| !applied) else { return Self::InForce };
        match recorded {
            Some(Self::Dormant(then)) if **then == *tls => Self::Dormant(then.clone()),
            Some(Self::InForce | Self::Dormant(_)) => Self::InForce,
            // Only a switch that has begun leads there.
            None if in_effect.peers == PeerPort::Prepared => Self::InForce,
            None if Transport::towards(tls, Some(in_effect)) == in_effect => Self::InForce,
            None => Self::Dormant(Box::new(tls.clone())),
        }
    }

    pub fn target(&self, tls: &Tls, in_effect: Option<Transport>) -> Transport {
        match (self, in_effect) {
            (Self::Dormant(_), Some(in_effect)) => in_effect,
            (Self::Dormant(_) | Self::InForce, _) => Transport::towards(tls, in_effect),
        }
    }
}

impl Switch {
    /// Of a cluster of which nothing exists yet.
    pub fn at_creation(tls: &Tls) -> Self {
        let target = Transport::asked_for(tls);
        Self { form: target, target, section: Section::InForce, mixed: false }
    }

    pub fn of(tls: &Tls, applied: bool, seen: &Observed) -> Self {
        let recorded = seen.record.as_ref().and_then(|record| record.tls.as_ref());
        let bootstraps = seen.order.is_some() && !seen.set.as_ref().is_some_and(|set| set.unmarked);
        let section = Section::of(tls, applied || bootstraps, seen.transport, recorded);
        let target = section.target(tls, seen.transport);
        let form = match seen.transport {
            None => target,
            // Members of a bootstrap have the URLs of its order.
            Some(in_effect) if seen.cluster.formed.is_none() => in_effect,
            Some(in_effect) => Transport {
                clients: next_clients(target, in_effect, seen),
                peers: next_peers(target, in_effect.peers, seen),
            },
        };
        let mixed = form.peers == PeerPort::Https && is_anywhere(Scheme::Http, seen);
        Self { form, target, section, mixed }
    }
}

/// In plain text the operator has no name, so etcd's authentication is disabled before. While etcd has not reported that, a
/// member in plain text proves it: none is created before.
fn next_clients(target: Transport, in_effect: Transport, seen: &Observed) -> ClientPort {
    // What is remembered from before a quorum was lost proves nothing.
    let might_deny = match seen.auth.as_ref().filter(|_| seen.etcd.members.known().is_some()) {
        Some(auth) => auth.enabled,
        None => transports(seen).all(|it| it.clients.is_tls()),
    };
    if loses_identity(Some(in_effect), Some(target)) && might_deny {
        in_effect.clients
    } else {
        target.clients
    }
}

fn next_peers(target: Transport, in_effect: PeerPort, seen: &Observed) -> PeerPort {
    match (target.peers.scheme(), in_effect) {
        (Scheme::Https, PeerPort::Http) => PeerPort::Prepared,
        (Scheme::Https, PeerPort::Prepared) if all_are_listed_with(Scheme::Https, seen) => PeerPort::Https,
        (Scheme::Https, PeerPort::Prepared) => PeerPort::Prepared,
        (Scheme::Https, PeerPort::Https) => PeerPort::Https,
        (Scheme::Http, PeerPort::Https) if all_are_listed_with(Scheme::Http, seen) => PeerPort::Prepared,
        (Scheme::Http, PeerPort::Https) => PeerPort::Https,
        // Without certificates nothing can connect to a member that uses TLS.
        (Scheme::Http, PeerPort::Prepared) if is_anywhere(Scheme::Https, seen) => PeerPort::Prepared,
        (Scheme::Http, PeerPort::Prepared | PeerPort::Http) => PeerPort::Http,
    }
}

/// Whether others find every member when it serves this. While no quorum lists the members, pods that serve it prove that:
/// none is created before.
fn all_are_listed_with(scheme: Scheme, seen: &Observed) -> bool {
    match seen.etcd.members.known() {
        Some(members) => members.list.values().all(|member| member.schemes.contains(scheme)),
        None => ports(seen).any(|port| port.scheme() == scheme),
    }
}

/// Whether a member serves this, might soon, or is listed with it. While no quorum lists the members, pods without
/// certificates prove that none is listed with TLS.
fn is_anywhere(scheme: Scheme, seen: &Observed) -> bool {
    let is_listed = |member: &Member| member.schemes.contains(scheme);
    let listed = match seen.etcd.members.known() {
        Some(members) => members.list.values().any(is_listed),
        None => scheme == Scheme::Https && ports(seen).all(PeerPort::has_certificates),
    };
    listed || ports(seen).any(|port| port.scheme() == scheme)
}

/// Of all pods, and of those that the StatefulSet creates.
fn transports(seen: &Observed) -> impl Iterator<Item = Transport> {
    let of_pods = seen.pods.values().filter_map(|pod| pod.transport);
    let of_new_pods = seen.set.as_ref().and_then(|set| set.transport);
    of_pods.chain(of_new_pods)
}

fn ports(seen: &Observed) -> impl Iterator<Item = PeerPort> {
    transports(seen).map(|transport| transport.peers)
}

/// The peer URLs that every member should have, in this state of their pods; none while that is open.
pub fn wanted_schemes(target: Transport, seen: &Observed) -> Option<Schemes> {
    let in_effect = seen.transport?.peers;
    let all = |fits: fn(PeerPort) -> bool| ports(seen).all(fits);
    match (target.peers.scheme(), in_effect) {
        (Scheme::Https, PeerPort::Https) if all(|it| it == PeerPort::Https) => {
            Some(Schemes::only(Scheme::Https))
        }
        (Scheme::Https, PeerPort::Prepared) if all(PeerPort::has_certificates) => Some(Schemes::BOTH),
        (Scheme::Http, PeerPort::Https) => Some(Schemes::BOTH),
        (Scheme::Http, PeerPort::Prepared | PeerPort::Http) if all(|it| it.scheme() == Scheme::Http) => {
            Some(Schemes::only(Scheme::Http))
        }
        (Scheme::Https | Scheme::Http, _) => None,
    }
}

#[cfg(test)]
mod tests;
