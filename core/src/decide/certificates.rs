//! Certificates that are missing come before everything else: no pod starts without them. Those that expire before long are
//! renewed whenever there is nothing else to do.

use super::Goal;
use crate::observed::Observed;
use crate::plan::{Action, Plan};
use crate::tls::{Cause, State, judge};

/// Before the bootstrap a certificate that expires counts as missing: pods that start with it might never bootstrap.
pub fn missing(goal: &Goal, seen: &Observed) -> Plan {
    issue(goal, seen, |cause| cause != Cause::Due || seen.cluster.formed.is_none())
}

pub fn renewals(goal: &Goal, seen: &Observed) -> Plan {
    issue(goal, seen, |cause| cause == Cause::Due)
}

fn issue(goal: &Goal, seen: &Observed, is_meant: impl Fn(Cause) -> bool) -> Plan {
    let states = judge(&goal.certificates, seen).into_iter();
    let actions = states.filter_map(|(purpose, state)| match state {
        State::Issued(cause) if is_meant(cause) => Some(Action::IssueCertificate { purpose, cause }),
        State::Issued(_) | State::Valid { .. } | State::AwaitsAuthority | State::AuthorityLost => None,
    });
    Plan { actions: actions.collect(), ..Plan::default() }
}
