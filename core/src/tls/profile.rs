//! What each certificate of a cluster has to be like.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::certificate::BACKDATED;
use super::{Purpose, Source, Transport};
use crate::api::{Certificates, KeyAlgorithm, MAX_VALIDITY_SECONDS, MIN_VALIDITY_SECONDS, Tls};
use crate::auth::User;
use crate::member::MAX_SIZE;
use crate::names::Names;
use crate::observed::Ordinal;

const AUTHORITY_VALIDITY_SECONDS: u64 = 10 * 365 * 24 * 3600;
/// kubelets bring a renewed Secret into pods within a minute and a half.
const LATEST_RENEWAL_SECONDS: u64 = 300;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    pub common_name: String,
    /// In this order: etcd looks up one after the other until an address fits.
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<String>,
    pub usage: Usage,
    pub validity_seconds: u64,
    pub key_algorithm: KeyAlgorithm,
    #[serde(default, skip_serializing_if = "Source::is_operator")]
    pub source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Usage {
    Authority,
    /// Of a port. etcd's own gateway connects to its client port with the certificate of that port, and members connect
    /// to each other with that of the peer port.
    Both,
    Client,
}

/// Of all Secrets that a cluster needs; empty without TLS.
pub type Profiles = BTreeMap<Purpose, Profile>;

pub fn profiles(names: &Names, transport: Transport) -> Profiles {
    chosen_profiles(names, transport, &Tls::default(), &BTreeSet::new())
}

/// With what users chose, and the addresses of nodes through which clients connect. Whether a certificate that they issue
/// themselves has these is for users to decide.
pub fn chosen_profiles(names: &Names, transport: Transport, tls: &Tls, nodes: &BTreeSet<IpAddr>) -> Profiles {
    let mut chosen = tls.certificates.clone().unwrap_or_default();
    let named: BTreeSet<IpAddr> = chosen.ip_addresses.iter().filter_map(|it| it.parse().ok()).collect();
    let own = IpAddr::from(Ipv4Addr::LOCALHOST);
    let source = Source::of(tls, names);
    let is_asked_for = !source.is_user();
    let further = nodes.iter().filter(|it| is_asked_for && **it != own && !named.contains(it));
    chosen.ip_addresses.extend(further.map(ToString::to_string));
    let needed = Purpose::ALL.into_iter().filter(|purpose| purpose.is_needed(transport));
    let mut profiles: Profiles = needed.map(|purpose| (purpose, profile(purpose, names, &chosen))).collect();
    // Peers accept nothing but their own authority.
    profiles.get_mut(&Purpose::Server).into_iter().for_each(|server| server.source = source.clone());
    profiles
}

fn profile(purpose: Purpose, names: &Names, chosen: &Certificates) -> Profile {
    let Names { namespace, cluster, .. } = names;
    let mut profile = Profile {
        common_name: String::new(),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        usage: Usage::Client,
        // An API server without CEL keeps no rules, and a life of no length would be renewed all the time.
        validity_seconds: chosen
            .validity_seconds
            .clamp(MIN_VALIDITY_SECONDS, MAX_VALIDITY_SECONDS)
            .unsigned_abs(),
        key_algorithm: chosen.key_algorithm,
        source: Source::Operator,
    };
    match purpose {
        Purpose::PeerAuthority | Purpose::ClientAuthority => {
            profile.common_name = format!("{namespace}/{cluster} {}", purpose.suffix());
            profile.usage = Usage::Authority;
            profile.validity_seconds = AUTHORITY_VALIDITY_SECONDS;
        }
        Purpose::Peer => {
            profile.common_name = names.peer_service();
            profile.usage = Usage::Both;
            profile.dns_names = names_of_members(names);
        }
        Purpose::Server => {
            profile.common_name = names.client_service();
            profile.usage = Usage::Both;
            profile.dns_names = names_of_members(names);
            profile.dns_names.extend(names.client_hosts());
            profile.dns_names.push("localhost".into());
            profile.dns_names.extend(chosen.dns_names.iter().cloned());
            let chosen = chosen.ip_addresses.iter().filter_map(|it| it.parse().ok());
            let addresses = std::iter::once(IpAddr::from(Ipv4Addr::LOCALHOST)).chain(chosen);
            profile.ip_addresses = addresses.map(|it| it.to_string()).collect();
        }
        // etcd takes the common name for the name of a user.
        Purpose::Operator => profile.common_name = User::Operator.name().into(),
        Purpose::Client => profile.common_name = User::Client.name().into(),
    }
    profile
}

/// The name of the peer Service returns the addresses of all members, so it is the first: one look-up is enough for any of
/// them. A wildcard would fit only where addresses are looked up in reverse.
fn names_of_members(names: &Names) -> Vec<String> {
    let members = Ordinal::below(MAX_SIZE).map(|ordinal| names.pod_host(ordinal));
    std::iter::once(names.peer_host()).chain(members).collect()
}

impl Profile {
    /// From when until when a certificate is valid that is issued now.
    pub fn validity(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        self.validity_within(now, Timestamp::MAX)
    }

    /// The same for what an authority signs that expires then: nothing outlives it.
    pub fn validity_within(&self, now: Timestamp, end: Timestamp) -> (Timestamp, Timestamp) {
        let lifetime = self.lifetime().min(end.duration_since(now)).max(SignedDuration::ZERO);
        let since = now.checked_sub(BACKDATED.min(lifetime / 10)).unwrap_or(now);
        (since, now.checked_add(lifetime).unwrap_or(Timestamp::MAX))
    }

    pub(super) fn lifetime(&self) -> SignedDuration {
        SignedDuration::from_secs(i64::try_from(self.validity_seconds).unwrap_or(i64::MAX))
    }

    /// So long after a certificate was issued, whatever uses it has read it.
    pub fn pickup(&self) -> SignedDuration {
        let seconds = LATEST_RENEWAL_SECONDS.min(self.validity_seconds / 3);
        SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
    }

    /// The authority that is to follow the one of this profile. Its name tells them apart.
    pub fn successor(&self, now: Timestamp) -> Self {
        Self { common_name: format!("{} {now:.0}", self.common_name), ..self.clone() }
    }

    /// Whether a certificate that expires then was issued for a longer life than this.
    pub fn is_exceeded(&self, expires: Timestamp, now: Timestamp) -> bool {
        expires > self.validity(now).1
    }

    /// When a certificate that expires then is renewed: after two thirds of its life, and so early that every pod has the
    /// new one in time.
    pub fn renewal(&self, expires: Timestamp) -> Timestamp {
        let third = self.validity_seconds / 3;
        let margin = third.max(LATEST_RENEWAL_SECONDS.min(third));
        let margin = SignedDuration::from_secs(i64::try_from(margin).unwrap_or(i64::MAX));
        expires.checked_sub(margin).unwrap_or(expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{ClientPort, PeerPort};

    fn names() -> Names {
        Names::new("ns", "kv", "cluster.local")
    }

    fn both() -> Transport {
        Transport::TLS
    }

    #[test]
    fn a_port_in_plain_text_needs_no_certificates() {
        assert!(profiles(&names(), Transport::default()).is_empty());
        let purposes = |transport| profiles(&names(), transport).into_keys().collect::<Vec<_>>();
        let peers = Transport { peers: PeerPort::Prepared, ..Transport::default() };
        assert_eq!(purposes(peers), [Purpose::PeerAuthority, Purpose::Peer]);
        let clients = Transport { clients: ClientPort::Both, ..Transport::default() };
        let expected = [Purpose::ClientAuthority, Purpose::Server, Purpose::Operator, Purpose::Client];
        assert_eq!(purposes(clients), expected);
        assert_eq!(purposes(both()), Purpose::ALL);
    }

    #[test]
    fn peers_are_named_by_their_service_first_and_then_each_and_by_no_pattern_or_address() {
        let peer = &profiles(&names(), both())[&Purpose::Peer];
        assert_eq!(peer.dns_names.len(), 10);
        assert_eq!(peer.dns_names[0], "kv-peer.ns.svc.cluster.local");
        assert_eq!(peer.dns_names[1], "kv-0.kv-peer.ns.svc.cluster.local");
        assert_eq!(peer.dns_names[9], "kv-8.kv-peer.ns.svc.cluster.local");
        assert_eq!((peer.ip_addresses.len(), peer.usage), (0, Usage::Both));
    }

    #[test]
    fn a_server_has_also_the_names_that_clients_use() {
        let server = &profiles(&names(), both())[&Purpose::Server];
        assert_eq!(server.dns_names[..10], profiles(&names(), both())[&Purpose::Peer].dns_names);
        assert_eq!(
            server.dns_names[10..],
            ["kv-client.ns.svc.cluster.local", "kv-client.ns.svc", "kv-client.ns", "kv-client", "localhost"]
        );
        assert_eq!((server.ip_addresses.as_slice(), server.usage), (&["127.0.0.1".into()][..], Usage::Both));
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life() {
        let renewed_before_expiry = |validity_seconds| {
            let mut profile = profiles(&names(), both())[&Purpose::Client].clone();
            profile.validity_seconds = validity_seconds;
            let (_, expires) = profile.validity(Timestamp::UNIX_EPOCH);
            assert_eq!(expires.as_second(), i64::try_from(validity_seconds).expect("a number"));
            expires.as_second() - profile.renewal(expires).as_second()
        };
        assert_eq!(renewed_before_expiry(90), 30);
        assert_eq!(renewed_before_expiry(9000), 3000);
        assert_eq!(renewed_before_expiry(90 * 24 * 3600), 30 * 24 * 3600);
    }

    #[test]
    fn nothing_outlives_its_authority_and_when_it_was_issued_is_known() {
        let profile = profiles(&names(), both())[&Purpose::Client].clone();
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        for (now, end) in [(1000, 1100), (1000, 1_000_000_000), (1000, 5000)] {
            let (not_before, not_after) = profile.validity_within(at(now), at(end));
            assert!(not_after <= at(end), "{not_after}");
            let certificate = crate::tls::Certificate {
                common_name: String::new(),
                dns_names: Vec::new(),
                ip_addresses: Vec::new(),
                not_before,
                not_after,
                signed_by: None,
                trusts: Default::default(),
                fingerprint: String::new(),
            };
            assert_eq!(certificate.issued(), at(now), "expires at {end}");
        }
        let successor = profile.successor(at(0));
        assert_eq!(successor.common_name, format!("{} 1970-01-01T00:00:00Z", profile.common_name));
    }

    #[test]
    fn users_choose_lifetime_key_and_the_names_that_clients_use() {
        let certificates = Certificates {
            validity_seconds: 3600,
            key_algorithm: KeyAlgorithm::ECDSAP384,
            dns_names: vec!["etcd.example.com".into()],
            ip_addresses: vec!["2001:DB8::0:1".into()],
        };
        let tls = Tls { certificates: Some(certificates), ..Tls::default() };
        let nodes = ["192.0.2.1", "2001:db8::1", "127.0.0.1"].map(|it| it.parse().expect("an address"));
        let chosen = chosen_profiles(&names(), both(), &tls, &BTreeSet::from(nodes));
        let defaults = profiles(&names(), both());
        let server = &chosen[&Purpose::Server];
        assert_eq!(server.dns_names.last().map(String::as_str), Some("etcd.example.com"));
        assert_eq!(server.ip_addresses, ["127.0.0.1", "2001:db8::1", "192.0.2.1"], "each once");
        let own = Tls { certificate_secret: Some("own".into()), ..tls };
        let own = chosen_profiles(&names(), both(), &own, &BTreeSet::from(nodes));
        assert_eq!(
            own[&Purpose::Server].ip_addresses,
            ["127.0.0.1", "2001:db8::1"],
            "nobody asked for nodes"
        );
        assert_eq!((server.validity_seconds, server.key_algorithm), (3600, KeyAlgorithm::ECDSAP384));
        assert_eq!(chosen[&Purpose::Peer].dns_names, defaults[&Purpose::Peer].dns_names);
        let authority = Purpose::ClientAuthority;
        assert_eq!(chosen[&authority].validity_seconds, defaults[&authority].validity_seconds);
    }
}
