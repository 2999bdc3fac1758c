//! Certificates that are missing come before everything else: no pod starts without them. Those that expire before long are
//! renewed whenever there is nothing else to do.

use super::Goal;
use crate::observed::Observed;
use crate::plan::{Action, Plan};
use crate::tls::{Cause, Purpose, State, is_in_use, judge};

/// Before the bootstrap a certificate that expires counts as missing: pods that start with it might never bootstrap. So does
/// one that no pod uses yet, which might be left from an earlier time with TLS.
pub fn missing(goal: &Goal, seen: &Observed) -> Plan {
    issue(goal, seen, |purpose, cause| {
        cause != Cause::Due || seen.cluster.formed.is_none() || !is_in_use(purpose, seen)
    })
}

pub fn renewals(goal: &Goal, seen: &Observed) -> Plan {
    issue(goal, seen, |_, cause| cause == Cause::Due)
}

fn issue(goal: &Goal, seen: &Observed, is_meant: impl Fn(Purpose, Cause) -> bool) -> Plan {
    let states = judge(&goal.certificates, seen).into_iter();
    let actions = states.filter_map(|(purpose, state)| match state {
        State::Issued(cause) if is_meant(purpose, cause) => Some(Action::IssueCertificate { purpose, cause }),
        State::Issued(_) | State::Valid { .. } | State::AwaitsAuthority | State::AuthorityLost => None,
    });
    Plan { actions: actions.collect(), ..Plan::default() }
}
