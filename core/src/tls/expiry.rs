//! Certificates that expire before long although they should have been renewed.

use jiff::{SignedDuration, Timestamp};

use super::judgement::users_renewal;
use super::{Certificate, Profiles, Purpose, Trust};
use crate::observed::Observed;

const EARLY: SignedDuration = SignedDuration::from_hours(30 * 24);
const LATE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// In the order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Of one that lasts for less than 30 days.
    Overdue,
    Within30Days,
    Within7Days,
}

impl Urgency {
    pub fn words(self) -> &'static str {
        match self {
            Self::Overdue => "soon",
            Self::Within30Days => "within 30 days",
            Self::Within7Days => "within 7 days",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiring {
    pub purpose: Purpose,
    pub not_after: Timestamp,
    pub urgency: Urgency,
}

/// The most urgent one comes first. One that is about to be renewed is not among them.
pub fn expiring(profiles: &Profiles, seen: &Observed) -> Vec<Expiring> {
    let mut found: Vec<Expiring> = Vec::new();
    for (purpose, certificate, renewal) in renewals(profiles, seen) {
        let urgency = urgency(certificate, renewal, seen.now);
        let not_after = certificate.not_after;
        found.extend(urgency.map(|urgency| Expiring { purpose, not_after, urgency }));
    }
    found.sort_by_key(|it| (std::cmp::Reverse(it.urgency), it.not_after));
    found
}

/// The certificates that there are, and when each is renewed or, of an authority, its successor introduced.
pub fn renewals<'a>(
    profiles: &'a Profiles,
    seen: &'a Observed,
) -> impl Iterator<Item = (Purpose, &'a Certificate, Timestamp)> {
    profiles.iter().filter_map(|(&purpose, profile)| {
        let secret = seen.secrets.get(&purpose)?;
        let certificate = secret.certificate.known()?;
        let renewal = match purpose.issuer() {
            None => Trust::of(purpose, seen).map(|trust| trust.rotation(profiles)),
            Some(_) if secret.copied.is_some() => Some(users_renewal(certificate)),
            Some(_) => Some(profile.renewal(certificate.not_after)),
        };
        Some((purpose, certificate, renewal.unwrap_or(certificate.not_after)))
    })
}

fn urgency(certificate: &Certificate, renewal: Timestamp, now: Timestamp) -> Option<Urgency> {
    let Certificate { not_before, not_after, .. } = certificate;
    let (life, left) = (not_after.duration_since(*not_before), not_after.duration_since(now));
    // A renewal takes its time.
    let grace = not_after.duration_since(renewal) / 10;
    if left <= SignedDuration::ZERO || now.duration_since(renewal) <= grace {
        return None;
    }
    if life <= EARLY {
        let is_late = life > LATE && left <= LATE;
        return Some(if is_late { Urgency::Within7Days } else { Urgency::Overdue });
    }
    match left {
        left if left <= LATE => Some(Urgency::Within7Days),
        left if left <= EARLY => Some(Urgency::Within30Days),
        _ => None,
    }
}

/// Whether the authority that signs has to be replaced now, whatever that costs.
pub(crate) fn is_urgent(trust: &Trust<'_>, now: Timestamp) -> bool {
    trust.certificate.not_after.duration_since(now) <= LATE
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DAY: i64 = 24 * 3600;

    /// Of a certificate that is valid for so many days and renewed when a third of them is left.
    fn after(life_days: i64, days: i64) -> Option<Urgency> {
        let at = |days: i64| Timestamp::from_second(days * DAY).expect("a time");
        let certificate = Certificate {
            common_name: String::new(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            not_before: at(0),
            not_after: at(life_days),
            signed_by: None,
            trusts: BTreeSet::new(),
            fingerprint: String::new(),
        };
        urgency(&certificate, at(life_days - life_days / 3), at(days))
    }

    #[test]
    fn what_is_renewed_in_time_is_no_concern() {
        assert_eq!([after(90, 59), after(90, 61), after(90, 63)], [None; 3]);
        assert_eq!([after(3, 2), after(3650, 3000)], [None; 2]);
    }

    #[test]
    fn what_is_not_renewed_is_reported_at_30_and_at_7_days() {
        assert_eq!(after(90, 64), Some(Urgency::Within30Days));
        assert_eq!(after(90, 83), Some(Urgency::Within7Days));
        assert_eq!(after(3650, 3619), None, "31 days are left");
        assert_eq!(after(3650, 3621), Some(Urgency::Within30Days));
        assert_eq!(after(90, 90), None, "that is reported as expired");
    }

    #[test]
    fn what_lasts_for_less_is_reported_when_its_renewal_is_overdue() {
        assert_eq!(after(27, 19), Some(Urgency::Overdue));
        assert_eq!(after(27, 21), Some(Urgency::Within7Days));
        assert_eq!(after(6, 5), Some(Urgency::Overdue));
    }
}
