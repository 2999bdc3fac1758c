//! Whether connections are encrypted as the spec asks for, and how long the certificates last.

use jiff::Timestamp;

use super::conditions::Value;
use super::facts::Finding;
use super::view::View;
use crate::api::EtcdCluster;
use crate::names::reason;
use crate::request::Object;
use crate::tls::{Cause, Purpose, State, Transport, judge};

/// None where the spec does not ask for TLS and there is none.
pub(super) fn ready(view: &View<'_>, cluster: &EtcdCluster) -> Option<Finding> {
    let asked_for = Transport::asked_for(&cluster.spec.security.tls);
    let in_effect = view.seen().transport.unwrap_or(asked_for);
    // Of a cluster that is being deleted, no Secret is read.
    if in_effect.is_plain() && asked_for.is_plain() || view.seen().cluster.deleting {
        return None;
    }
    let states = judge(&view.basis.goal.certificates, view.seen());
    let title = |purpose: Purpose| Object::Secret(purpose).title(view.basis.names);
    let lost = states.keys().find(|it| it.issuer().is_none() && states[*it] == State::AuthorityLost);
    if let Some(&authority) = lost {
        return Some((Value::False, reason::AUTHORITY_LOST, authority_lost(view, &title(authority))));
    }
    if in_effect != asked_for {
        let message = format!(
            "spec.security.tls is not in effect: {in_effect}, as when the cluster was created, and this version of the \
             operator does not change that while members run; set spec.security.tls back, or create a new cluster"
        );
        return Some((Value::False, reason::TLS_NOT_IN_EFFECT, message));
    }
    let strays = states.iter().find(|(_, state)| **state == State::AuthorityLost);
    if let Some((&purpose, _)) = strays {
        return Some((Value::False, reason::AUTHORITY_LOST, authority_lost(view, &title(purpose))));
    }
    let expired = |purpose: &Purpose| not_after(view, *purpose).is_some_and(|it| it <= view.seen().now);
    if let Some(&purpose) = states.keys().find(|it| expired(it)) {
        let message = format!("the certificate in {} has expired; the operator renews it", title(purpose));
        return Some((Value::False, reason::CERTIFICATE_EXPIRED, message));
    }
    let is_pending = |state: &State| {
        matches!(state, State::Issued(cause) if *cause != Cause::Due) || *state == State::AwaitsAuthority
    };
    let pending: Vec<_> =
        states.iter().filter(|(_, it)| is_pending(it)).map(|(&purpose, _)| title(purpose)).collect();
    if !pending.is_empty() && view.prepares_formation() {
        return None;
    }
    if !pending.is_empty() {
        let message = format!("the operator issues certificates: {}", pending.join(", "));
        return Some((Value::False, reason::CERTIFICATES_PENDING, message));
    }
    let first = states.keys().filter_map(|&it| Some((not_after(view, it)?, it))).min()?;
    let message =
        format!("{in_effect}; the first certificate to expire is {} at {:.0}", title(first.1), first.0);
    Some((Value::True, reason::CERTIFICATES_VALID, message))
}

fn not_after(view: &View<'_>, purpose: Purpose) -> Option<Timestamp> {
    Some(view.seen().secrets.get(&purpose)?.certificate.known()?.not_after)
}

/// Until the first of the certificates in use expires, members and clients do not notice.
fn authority_lost(view: &View<'_>, secret: &str) -> String {
    let leafs = Purpose::ALL.into_iter().filter(|it| it.issuer().is_some());
    let until = leafs.filter_map(|it| not_after(view, it)).min();
    let until = until.map(|it| format!(" until {it:.0}")).unwrap_or_default();
    format!(
        "{secret} does not hold the authority that the members trust, so no certificate can be renewed; those in use are \
         valid{until}: restore the Secret"
    )
}
