//! Whether connections are encrypted as the spec asks for, and how long the certificates last.

use jiff::Timestamp;

use super::conditions::Value;
use super::facts::Finding;
use super::view::View;
use crate::api::EtcdCluster;
use crate::asked::APPLY;
use crate::names::ANNOTATION_OF;
use crate::names::reason;
use crate::request::Object;
use crate::tls::{Cause, Purpose, Schemes, Section, State, Switch, Transport, judge};

/// None where the spec does not ask for TLS and there is none.
pub(super) fn ready(view: &View<'_>, cluster: &EtcdCluster) -> Option<Finding> {
    let asked_for = Transport::towards(&cluster.spec.security.tls, view.seen().transport);
    let in_effect = view.seen().transport.unwrap_or(asked_for);
    let switching = switching(view);
    // Of a cluster that is being deleted, no Secret is read.
    let is_plain = in_effect.is_plain() && asked_for.is_plain() && switching.is_none();
    if is_plain || view.seen().cluster.deleting {
        return None;
    }
    let states = judge(&view.basis.goal.certificates, view.seen());
    let title = |purpose: Purpose| Object::Secret(purpose).title(view.basis.names);
    let lost = states.keys().find(|it| it.issuer().is_none() && states[*it] == State::AuthorityLost);
    if let Some(&authority) = lost {
        return Some((Value::False, reason::AUTHORITY_LOST, authority_lost(view, &title(authority))));
    }
    if let Some(dormant) = dormant(view, in_effect, asked_for) {
        return Some((Value::False, reason::TLS_NOT_IN_EFFECT, dormant));
    }
    if let Some(switching) = switching {
        return Some((Value::False, reason::SWITCHING_TLS, switching));
    }
    // A spec that breaks rules changes nothing.
    if in_effect != asked_for {
        let message = format!("spec.security.tls is not in effect: {in_effect}; correct the spec first");
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

/// What the spec asks for and does not get, because an upgrade of the operator alone changes nothing.
fn dormant(view: &View<'_>, in_effect: Transport, asked_for: Transport) -> Option<String> {
    let Section::Dormant(_) = view.basis.goal.switch.as_ref()?.section else { return None };
    (in_effect != asked_for).then(|| {
        format!(
            "spec.security.tls is not in effect: {in_effect}, because an upgrade of the operator alone does not change \
             that; edit spec.security.tls, or set the annotation {ANNOTATION_OF}{APPLY} to security.tls"
        )
    })
}

/// From what to what the operator changes the transport, and what is left to do.
pub(super) fn switching(view: &View<'_>) -> Option<String> {
    let seen = view.seen();
    let Switch { target, .. } = view.basis.goal.switch.as_ref()?;
    let in_effect = seen.transport.filter(|_| seen.cluster.formed.is_some())?;
    let differs = |transport: Transport| transport != *target;
    let others = seen.pods.values().filter(|pod| pod.transport.is_some_and(differs)).count();
    let members = view.facts.listed().into_iter().flat_map(|members| members.list.values());
    let wanted = Schemes::only(target.peers.scheme());
    let urls = members.filter(|it| !it.schemes.is_empty() && it.schemes != wanted).count();
    if !differs(in_effect) && others == 0 && urls == 0 {
        return None;
    }
    if view.size() == 0 {
        return Some(format!("{in_effect}; when the cluster starts, the operator switches to: {target}"));
    }
    let mut left = Vec::new();
    if others > 0 {
        left.push(format!("pods to restart: {others}"));
    }
    if urls > 0 {
        left.push(format!("members with other peer URLs: {urls}"));
    }
    let left = if left.is_empty() { String::new() } else { format!("; {}", left.join(", ")) };
    Some(format!("the operator switches from: {in_effect}; to: {target}{left}"))
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
