//! Which authorities the ports of members trust, and how an authority gives way to its successor.
//!
//! etcd reads the authorities that it trusts only when it starts, and names them in every handshake. So what is in effect is
//! what ports show. Two rules keep members and clients connected: a certificate of an authority is issued only when every
//! member trusts that authority, and an authority is withdrawn only when nothing is in use that it signed.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::judgement::{Cause, State, States};
use super::{Authority, Certificate, Profiles, Purpose};
use crate::observed::{Handshake, Observed, Ordinal, Pod, Secret, Seen};

/// Within this time a kubelet brings what a Secret holds into pods.
pub const KUBELET_REFRESH: SignedDuration = SignedDuration::from_secs(120);

/// A step from an authority to its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// A new authority is trusted, and signs nothing yet.
    Introduce,
    /// It signs from now on.
    Promote,
    /// The one before is not trusted any more.
    Withdraw,
    /// The authorities that a user gives now are trusted, too. Those of before stay until nothing of them is in use.
    Accept,
}

/// What one authority's port has to trust.
#[derive(Clone, Copy)]
pub struct Trust<'a> {
    authority: Purpose,
    seen: &'a Observed,
    pub certificate: &'a Certificate,
    pub signer: &'a str,
    pub next: Option<&'a Authority>,
    /// Those of a user.
    pub given: &'a BTreeSet<Authority>,
    pub bundle: &'a BTreeSet<Authority>,
}

/// What members showed, by their ordinals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub yes: Vec<Ordinal>,
    pub no: Vec<Ordinal>,
    /// Nothing is known of these.
    pub unknown: Vec<Ordinal>,
}

impl Tally {
    pub fn is_unanimous(&self) -> bool {
        self.no.is_empty() && self.unknown.is_empty()
    }

    pub fn members(&self) -> usize {
        self.yes.len() + self.no.len() + self.unknown.len()
    }
}

/// Where a rotation is.
pub(crate) enum Rotation {
    /// Only the signer is trusted, or certificates are issued first.
    None,
    Due(Stage),
    /// Members have to trust the authority that is to sign.
    AwaitsTrust(Tally),
    /// Members have to serve the new certificate.
    AwaitsUse(Purpose, Tally),
    /// Clients have to read their new certificate.
    AwaitsClients(Purpose, Timestamp),
}

impl<'a> Trust<'a> {
    /// None if the Secret of this authority does not hold one that trusts itself.
    pub fn of(authority: Purpose, seen: &'a Observed) -> Option<Self> {
        let secret: &Secret = seen.secrets.get(&authority)?;
        let certificate = secret.certificate.known()?;
        let signer = certificate.signed_by.as_deref().filter(|it| certificate.trusts(it))?;
        let next = secret.next.as_ref().filter(|it| certificate.trusts(&it.key));
        let (given, bundle) = (&secret.given, &certificate.trusts);
        Some(Self { authority, seen, certificate, signer, next, given, bundle })
    }

    /// The certificate that members show on the port which trusts this.
    fn served(&self) -> Purpose {
        match self.authority {
            Purpose::PeerAuthority | Purpose::Peer => Purpose::Peer,
            Purpose::ClientAuthority | Purpose::Server | Purpose::Operator | Purpose::Client => {
                Purpose::Server
            }
        }
    }

    fn subject(&self, key: &str) -> Option<&'a str> {
        self.bundle.iter().find(|it| it.key == key).map(|it| it.subject.as_str())
    }

    /// Which members trust the authority with this key.
    pub fn trusting(&self, key: &str) -> Tally {
        let subject = self.subject(key);
        self.tally(|handshake| subject.is_some_and(|it| handshake.trusts.contains(it)))
    }

    /// Which members trust all of these.
    pub fn trusting_all(&self, authorities: &BTreeSet<Authority>) -> Tally {
        self.tally(|handshake| authorities.iter().all(|it| handshake.trusts.contains(&it.subject)))
    }

    /// Whether every member is seen to trust what signs. Without members that is nobody's concern.
    pub fn is_signer_trusted(&self) -> bool {
        self.trusting(self.signer).is_unanimous()
    }

    /// Whether a member is seen not to trust what signs.
    pub fn is_signer_refused(&self) -> bool {
        !self.trusting(self.signer).no.is_empty()
    }

    /// Which members serve what the Secret holds.
    pub fn serving(&self) -> Tally {
        let held = self.held(self.served());
        self.tally(|handshake| held.is_some_and(|it| handshake.certificate == it.fingerprint))
    }

    fn tally(&self, is_so: impl Fn(&Handshake) -> bool) -> Tally {
        let mut tally = Tally::default();
        let pods = &self.seen.pods;
        let all: BTreeSet<Ordinal> =
            Ordinal::below(self.seen.replicas()).chain(pods.keys().copied()).collect();
        for ordinal in all {
            // In plain text a port trusts nobody. One that is prepared for TLS trusts authorities, and shows nothing.
            if self.seen.transport_of(ordinal).is_some_and(|it| !self.authority.is_needed(it)) {
                continue;
            }
            let pod = pods.get(&ordinal).filter(|pod| !pod.terminating);
            match pod.and_then(|pod| self.handshake(pod)) {
                None => tally.unknown.push(ordinal),
                Some(handshake) if is_so(handshake) => tally.yes.push(ordinal),
                Some(_) => tally.no.push(ordinal),
            }
        }
        tally
    }

    fn handshake(&self, pod: &'a Pod) -> Option<&'a Handshake> {
        pod.handshakes.get(&self.served()).and_then(Seen::known)
    }

    fn held(&self, purpose: Purpose) -> Option<&'a Certificate> {
        self.seen.secrets.get(&purpose)?.certificate.known()
    }

    /// When clients have had their time to read what they trust; none if they cannot know these authorities yet.
    pub(super) fn clients_until(
        &self,
        profiles: &Profiles,
        authorities: &BTreeSet<Authority>,
    ) -> Option<Timestamp> {
        let held = self.held(Purpose::Client).filter(|it| it.trusts.is_superset(authorities))?;
        let pickup = profiles.get(&Purpose::Client)?.pickup();
        Some(held.issued().checked_add(pickup).unwrap_or(Timestamp::MAX))
    }

    /// Whether this pod trusts something else than it would after a restart. One that was created after its Secret was written
    /// got an older one from its kubelet, and might again: it has to wait.
    pub fn differs(&self, pod: &'a Pod) -> bool {
        let is_written = self.held(self.served()).is_some_and(|it| it.trusts == *self.bundle);
        let written = self.seen.secrets.get(&self.served()).and_then(Secret::written);
        let Some(written) = written.filter(|_| is_written && !self.is_shown(pod)) else { return false };
        let is_settled = |created: Timestamp| {
            created < written || self.seen.now.duration_since(created) >= KUBELET_REFRESH
        };
        pod.created.is_none_or(is_settled)
    }

    /// Whether nothing is known of this pod, or it trusts what it should.
    pub fn is_shown(&self, pod: &'a Pod) -> bool {
        let wanted: BTreeSet<&String> = self.bundle.iter().map(|it| &it.subject).collect();
        let shown = self.handshake(pod).map(|it| it.trusts.iter().collect::<BTreeSet<_>>());
        shown.is_none_or(|shown| shown == wanted)
    }

    /// Whether this pod was seen not to trust an authority of a user that it should.
    pub fn lacks_given(&self, pod: &'a Pod) -> bool {
        let shown = self.handshake(pod).map(|it| &it.trusts);
        shown.is_some_and(|shown| self.given.iter().any(|it| !shown.contains(&it.subject)))
    }

    /// Whether a rotation is under way: something is trusted that neither signs nor is given.
    pub fn is_rotating(&self) -> bool {
        self.bundle.iter().any(|it| it.key != self.signer && !self.given.contains(it))
    }

    /// When its successor has to be introduced: after two thirds of its life, and so early that what it signs can live its
    /// whole life.
    pub fn rotation(&self, profiles: &Profiles) -> Timestamp {
        let Certificate { not_before, not_after, .. } = self.certificate;
        let third = not_after.duration_since(*not_before) / 3;
        let leafs = profiles.iter().filter(|(purpose, _)| purpose.issuer() == Some(self.authority));
        let longest = leafs.map(|(_, it)| it.lifetime()).max().unwrap_or(SignedDuration::ZERO);
        not_after.checked_sub(third.max(longest)).unwrap_or(*not_before)
    }

    /// What has to happen before the certificate that a user gives is copied.
    fn awaited_for_given(&self, profiles: &Profiles, states: &States) -> Option<Rotation> {
        let server = profiles.get(&Purpose::Server).filter(|_| self.served() == Purpose::Server)?;
        let (_, authorities) = super::given::usable(server, self.seen)?;
        match states.get(&Purpose::Server)? {
            State::AwaitsTrust => Some(Rotation::AwaitsTrust(self.trusting_all(&authorities))),
            State::AwaitsClients(until) => Some(Rotation::AwaitsClients(Purpose::Client, *until)),
            State::Valid { .. }
            | State::Issued(_)
            | State::Copied(_)
            | State::Kept { .. }
            | State::AwaitsAuthority
            | State::AwaitsGiven
            | State::AuthorityLost => None,
        }
    }

    pub(crate) fn next_step(&self, profiles: &Profiles, states: &States) -> Rotation {
        let leafs = profiles.iter().filter(|(purpose, _)| purpose.issuer() == Some(self.authority));
        let held: Option<Vec<_>> =
            leafs.map(|(&purpose, profile)| Some((purpose, profile, self.held(purpose)?))).collect();
        let Some(held) = held else { return Rotation::None };
        if let Some(next) = self.next {
            // Whatever starts from now on trusts it.
            if !held.iter().all(|(_, _, it)| it.trusts(&next.key)) {
                return Rotation::None;
            }
            let tally = self.trusting(&next.key);
            return if tally.is_unanimous() {
                Rotation::Due(Stage::Promote)
            } else {
                Rotation::AwaitsTrust(tally)
            };
        }
        if let Some(awaited) = self.awaited_for_given(profiles, states) {
            return awaited;
        }
        if !self.is_rotating() {
            return Rotation::None;
        }
        let awaits_trust = |purpose: &Purpose| states.get(purpose) == Some(&State::AwaitsTrust);
        if held.iter().any(|(purpose, _, _)| awaits_trust(purpose)) {
            return Rotation::AwaitsTrust(self.trusting(self.signer));
        }
        // What is to be withdrawn might have signed what is kept.
        let is_current = |purpose: &Purpose| {
            matches!(states.get(purpose), Some(State::Valid { .. } | State::Issued(Cause::Due)))
        };
        if !held.iter().all(|(purpose, _, _)| is_current(purpose)) {
            return Rotation::None;
        }
        let serving = self.serving();
        if !serving.is_unanimous() {
            return Rotation::AwaitsUse(self.served(), serving);
        }
        let until = |profile: &super::Profile, it: &Certificate| {
            it.issued().checked_add(profile.pickup()).unwrap_or(Timestamp::MAX)
        };
        let clients = held.iter().filter(|(purpose, _, _)| *purpose == Purpose::Client);
        let clients = clients.map(|&(purpose, profile, it)| (until(profile, it), purpose)).max();
        match clients.filter(|(until, _)| *until > self.seen.now) {
            Some((until, purpose)) => Rotation::AwaitsClients(purpose, until),
            None => Rotation::Due(Stage::Withdraw),
        }
    }
}

/// Whether members that use it run or are about to. Volumes alone trust no authority, and neither do pods that a previous
/// cluster left.
pub fn is_in_use(purpose: Purpose, seen: &Observed) -> bool {
    let own_pods = seen.set.is_some() || seen.transport.is_some();
    let there = seen.set.as_ref().is_some_and(|set| set.replicas > 0) || own_pods && !seen.pods.is_empty();
    let of_new_pods = seen.set.as_ref().and_then(|set| set.transport);
    let of_pods = seen.pods.values().filter_map(|pod| pod.transport);
    let mut known = of_pods.chain(of_new_pods).chain(seen.transport).peekable();
    there && (known.peek().is_none() || known.any(|transport| purpose.is_needed(transport)))
}
