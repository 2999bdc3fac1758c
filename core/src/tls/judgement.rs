//! Which certificates are as they should be, and which the operator issues.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Certificate, Profile, Profiles, Purpose};
use crate::observed::{Observed, Secret, Seen};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Valid {
        until: Timestamp,
        renewal: Timestamp,
    },
    /// The operator issues it, for this reason.
    Issued(Cause),
    /// The Secret of its authority comes first.
    AwaitsAuthority,
    /// Pods trust an authority whose key is gone, so no certificate that they accept can be issued.
    AuthorityLost,
}

/// Why the operator issues a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    Missing,
    Malformed,
    /// It is not for the names that it should be for.
    OtherNames,
    /// It is not signed by the authority that is there.
    OtherAuthority,
    /// It is valid for longer than users want now.
    OtherLifetime,
    /// It expires before long.
    Due,
}

impl Cause {
    pub fn words(self) -> &'static str {
        match self {
            Self::Missing => "there is none",
            Self::Malformed => "what is there cannot be read",
            Self::OtherNames => "the names in it are not those of the cluster",
            Self::OtherAuthority => "another authority issued the one that is there",
            Self::OtherLifetime => "the one that is there is valid for too long",
            Self::Due => "the one that is there expires before long",
        }
    }
}

/// Of every Secret that the cluster needs. A Secret that pods trust is never issued again by another authority: etcd reads
/// authorities only when it starts, so members would not accept each other.
pub fn judge(profiles: &Profiles, seen: &Observed) -> BTreeMap<Purpose, State> {
    let state = |(&purpose, profile): (&Purpose, &Profile)| {
        let in_use = is_in_use(purpose, seen);
        let own = seen.secrets.get(&purpose);
        let state = match purpose.issuer() {
            None => of_authority(profile, own, in_use, seen.now),
            Some(issuer) => of_leaf(profile, own, seen.secrets.get(&issuer), in_use, seen.now),
        };
        (purpose, state)
    };
    profiles.iter().map(state).collect()
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

fn of_authority(profile: &Profile, secret: Option<&Secret>, in_use: bool, now: Timestamp) -> State {
    let issue = |cause| if in_use { State::AuthorityLost } else { State::Issued(cause) };
    match secret.map(|it| &it.certificate) {
        None => issue(Cause::Missing),
        Some(Seen::Unknown(_)) => issue(Cause::Malformed),
        Some(Seen::Known(it)) if it.not_after <= now => issue(Cause::Due),
        Some(Seen::Known(it)) => valid(profile, it),
    }
}

fn of_leaf(
    profile: &Profile,
    secret: Option<&Secret>,
    issuer: Option<&Secret>,
    in_use: bool,
    now: Timestamp,
) -> State {
    let Some(authority) = issuer.and_then(|it| it.certificate.known()) else {
        return if in_use { State::AuthorityLost } else { State::AwaitsAuthority };
    };
    match secret.map(|it| &it.certificate) {
        None => State::Issued(Cause::Missing),
        Some(Seen::Unknown(_)) => State::Issued(Cause::Malformed),
        Some(Seen::Known(it)) if !is_of(it, authority) && in_use => State::AuthorityLost,
        Some(Seen::Known(it)) if !is_of(it, authority) => State::Issued(Cause::OtherAuthority),
        Some(Seen::Known(it)) if !has_names(it, profile) => State::Issued(Cause::OtherNames),
        Some(Seen::Known(it)) if profile.is_exceeded(it.not_after, now) => {
            State::Issued(Cause::OtherLifetime)
        }
        Some(Seen::Known(it)) if profile.renewal(it.not_after) <= now => State::Issued(Cause::Due),
        Some(Seen::Known(it)) => valid(profile, it),
    }
}

fn valid(profile: &Profile, certificate: &Certificate) -> State {
    State::Valid { until: certificate.not_after, renewal: profile.renewal(certificate.not_after) }
}

/// An authority signs itself.
fn is_of(certificate: &Certificate, authority: &Certificate) -> bool {
    let signer = authority.signed_by.as_ref();
    certificate.signed_by.as_ref() == signer && signer.is_some_and(|it| certificate.trusts.contains(it))
}

fn has_names(certificate: &Certificate, profile: &Profile) -> bool {
    (&certificate.common_name, &certificate.dns_names, &certificate.ip_addresses)
        == (&profile.common_name, &profile.dns_names, &profile.ip_addresses)
}

/// When the next certificate has to be renewed.
pub fn next_renewal(profiles: &Profiles, seen: &Observed) -> Option<Timestamp> {
    let renewal = |state: State| match state {
        State::Valid { renewal, .. } => Some(renewal),
        State::Issued(_) | State::AwaitsAuthority | State::AuthorityLost => None,
    };
    let leafs = judge(profiles, seen).into_iter().filter(|(purpose, _)| purpose.issuer().is_some());
    leafs.filter_map(|(_, state)| renewal(state)).min()
}
