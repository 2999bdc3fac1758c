//! Which certificates are as they should be, and which the operator issues.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::given::usable;
use super::{Certificate, Profile, Profiles, Purpose, Trust, is_in_use};
use crate::observed::{Observed, Secret, Seen};

pub type States = BTreeMap<Purpose, State>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Valid {
        until: Timestamp,
        renewal: Timestamp,
    },
    /// The operator issues it, for this reason.
    Issued(Cause),
    /// The operator copies one that a user has issued.
    Copied(Copy),
    /// One that a user has issued stays in use, because what the user gives now cannot be used.
    Kept {
        until: Timestamp,
    },
    /// The Secret of its authority comes first.
    AwaitsAuthority,
    /// Another authority signs now, and not every member is seen to trust that one.
    AwaitsTrust,
    /// Until then clients might not trust the authority of the one that a user gives.
    AwaitsClients(Timestamp),
    /// There is none, and what a user gives cannot be used.
    AwaitsGiven,
    /// Pods trust an authority whose key is gone, so no certificate that they accept can be issued.
    AuthorityLost,
}

/// Which certificate of a user is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Copy {
    /// The one that the user gives, into a Secret that does not exist.
    First,
    /// The one that the user gives, instead of the one that is there.
    Given,
    /// The one that is there, with other authorities: the user might not give it any more.
    Held,
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
    /// It comes with other authorities than its port should trust.
    OtherTrust,
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
            Self::OtherTrust => "other authorities are to be trusted with it",
            Self::OtherLifetime => "the one that is there is valid for too long",
            Self::Due => "the one that is there expires before long",
        }
    }
}

/// Of every Secret that the cluster needs. A Secret that pods trust is never issued again by another authority: etcd reads
/// authorities only when it starts, so members would not accept each other.
pub fn judge(profiles: &Profiles, seen: &Observed) -> States {
    let state = |(&purpose, profile): (&Purpose, &Profile)| {
        let in_use = is_in_use(purpose, seen);
        let own = seen.secrets.get(&purpose);
        let state = match purpose.issuer() {
            None => of_authority(own, Trust::of(purpose, seen), profiles, seen.now, in_use),
            Some(issuer) if profile.source.is_operator() => {
                of_leaf(profile, own, Trust::of(issuer, seen), in_use, seen.now)
            }
            Some(issuer) => of_given(profiles, profile, own, Trust::of(issuer, seen), in_use, seen),
        };
        (purpose, state)
    };
    profiles.iter().map(state).collect()
}

fn of_authority(
    secret: Option<&Secret>,
    trust: Option<Trust<'_>>,
    profiles: &Profiles,
    now: Timestamp,
    in_use: bool,
) -> State {
    let issue = |cause| if in_use { State::AuthorityLost } else { State::Issued(cause) };
    match (secret, trust) {
        (None, _) => issue(Cause::Missing),
        (Some(_), None) => issue(Cause::Malformed),
        (Some(_), Some(trust)) if trust.certificate.not_after <= now => issue(Cause::Due),
        (Some(_), Some(trust)) => {
            State::Valid { until: trust.certificate.not_after, renewal: trust.rotation(profiles) }
        }
    }
}

fn of_leaf(
    profile: &Profile,
    secret: Option<&Secret>,
    issuer: Option<Trust<'_>>,
    in_use: bool,
    now: Timestamp,
) -> State {
    let Some(authority) = issuer else {
        return if in_use { State::AuthorityLost } else { State::AwaitsAuthority };
    };
    // Pods might not start without it, so only what is known speaks against it.
    let issue = |cause| match in_use && authority.is_signer_refused() {
        true => State::AuthorityLost,
        false => State::Issued(cause),
    };
    match secret.map(|it| &it.certificate) {
        None => issue(Cause::Missing),
        Some(Seen::Unknown(_)) => issue(Cause::Malformed),
        Some(Seen::Known(it)) if it.signed_by.as_deref() != Some(authority.signer) => {
            // An intermediate authority can have signed the one of a user.
            let is_copy = secret.is_some_and(|it| it.copied.is_some());
            let rotates =
                is_copy || it.signed_by.as_ref().is_some_and(|key| authority.certificate.trusts(key));
            match (in_use, rotates) {
                (true, false) => State::AuthorityLost,
                (true, true) if !authority.is_signer_trusted() => State::AwaitsTrust,
                (true, true) | (false, _) => State::Issued(Cause::OtherAuthority),
            }
        }
        Some(Seen::Known(it)) if it.trusts != *authority.bundle => State::Issued(Cause::OtherTrust),
        Some(Seen::Known(it)) if !has_names(it, profile) => State::Issued(Cause::OtherNames),
        Some(Seen::Known(it)) if profile.is_exceeded(it.not_after, now) => {
            State::Issued(Cause::OtherLifetime)
        }
        Some(Seen::Known(it)) if is_due(profile, it, &authority, now) => State::Issued(Cause::Due),
        Some(Seen::Known(it)) => valid(profile, it),
    }
}

/// A certificate of a user goes live when every member and every client can trust it. One that cannot be used changes nothing.
fn of_given(
    profiles: &Profiles,
    profile: &Profile,
    secret: Option<&Secret>,
    issuer: Option<Trust<'_>>,
    in_use: bool,
    seen: &Observed,
) -> State {
    let Some(authority) = issuer else {
        return if in_use { State::AuthorityLost } else { State::AwaitsAuthority };
    };
    let held = secret.and_then(|secret| Some((secret, secret.certificate.known()?)));
    let (Some((secret, held)), given) = (held, usable(profile, seen)) else {
        let given = usable(profile, seen).map(|(_, authorities)| authorities);
        return match given {
            None => State::AwaitsGiven,
            Some(authorities) if authorities != *authority.given => State::AwaitsAuthority,
            Some(_) => State::Copied(Copy::First),
        };
    };
    let is_copy = secret.copied.is_some();
    let Some((leaf, authorities)) = given else {
        return match is_copy {
            false => of_leaf(profile, Some(secret), issuer, in_use, seen.now),
            true if held.trusts != *authority.bundle => State::Copied(Copy::Held),
            true => State::Kept { until: held.not_after },
        };
    };
    let given = &leaf.certificate;
    if authorities != *authority.given {
        return State::AwaitsAuthority;
    }
    // Pods that start from now on have to trust what is to come.
    if held.trusts != *authority.bundle {
        return if is_copy { State::Copied(Copy::Held) } else { State::Issued(Cause::OtherTrust) };
    }
    if held.fingerprint == given.fingerprint {
        return State::Valid { until: held.not_after, renewal: users_renewal(held) };
    }
    // What accepts the one in use accepts this one, too, and nothing accepts one that has expired.
    let same_issuer = is_copy && held.signed_by.is_some() && held.signed_by == given.signed_by;
    if !in_use || same_issuer || held.not_after <= seen.now {
        return State::Copied(Copy::Given);
    }
    match authority.clients_until(profiles, &authorities) {
        Some(until) if authority.trusting_all(&authorities).is_unanimous() => match until > seen.now {
            true => State::AwaitsClients(until),
            false => State::Copied(Copy::Given),
        },
        Some(_) | None => State::AwaitsTrust,
    }
}

/// By then a user has usually renewed it: when a third of its life is left.
pub(super) fn users_renewal(certificate: &Certificate) -> Timestamp {
    let Certificate { not_before, not_after, .. } = *certificate;
    not_after.checked_sub(not_after.duration_since(not_before) / 3).unwrap_or(not_after)
}

/// A new one might not last longer, because its authority does not.
fn is_due(profile: &Profile, certificate: &Certificate, authority: &Trust<'_>, now: Timestamp) -> bool {
    let (_, until) = profile.validity_within(now, authority.certificate.not_after);
    profile.renewal(certificate.not_after) <= now && until > certificate.not_after
}

fn valid(profile: &Profile, certificate: &Certificate) -> State {
    State::Valid { until: certificate.not_after, renewal: profile.renewal(certificate.not_after) }
}

fn has_names(certificate: &Certificate, profile: &Profile) -> bool {
    (&certificate.common_name, &certificate.dns_names, &certificate.ip_addresses)
        == (&profile.common_name, &profile.dns_names, &profile.ip_addresses)
}

/// When the next certificate has to be renewed, or the next authority replaced.
pub fn next_renewal(profiles: &Profiles, seen: &Observed) -> Option<Timestamp> {
    let renewal = |state: State| if let State::Valid { renewal, .. } = state { Some(renewal) } else { None };
    // Nothing comes of waking up for one that a user renews.
    let is_ours = |purpose: &Purpose| seen.secrets.get(purpose).is_none_or(|it| it.copied.is_none());
    let states = judge(profiles, seen).into_iter().filter(|(purpose, _)| is_ours(purpose));
    states.filter_map(|(_, state)| renewal(state)).min()
}
