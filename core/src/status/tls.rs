//! Whether connections are encrypted as the spec asks for, whether members use the certificates of their Secrets, and how long
//! these last.

use jiff::Timestamp;

use super::conditions::Value;
use super::facts::Finding;
use super::view::View;
use crate::api::EtcdCluster;
use crate::asked::APPLY;
use crate::auth::loses_identity;
use crate::names::ANNOTATION_OF;
use crate::names::reason;
use crate::observed::{Ordinal, Seen};
use crate::plan::Action;
use crate::request::Object;
use crate::tls::{
    Cause, Expiring, KUBELET_REFRESH, Purpose, Rejection, Schemes, Section, State, States, Switch, Transport,
    Trust, expiring, judge, problems,
};

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
    if let Some((reason, rejected)) = certificate_rejected(view, &states) {
        return Some((Value::False, reason, rejected));
    }
    let strays = states.iter().find(|(_, state)| **state == State::AuthorityLost);
    if let Some((&purpose, _)) = strays {
        return Some((Value::False, reason::AUTHORITY_LOST, authority_lost(view, &title(purpose))));
    }
    let expired = |purpose: &Purpose| not_after(view, *purpose).is_some_and(|it| it <= view.seen().now);
    if let Some(&purpose) = states.keys().find(|it| expired(it)) {
        let message =
            format!("the certificate in {} has expired; {}", title(purpose), renewed_by(view, purpose));
        return Some((Value::False, reason::CERTIFICATE_EXPIRED, message));
    }
    let is_pending = |state: &State| {
        matches!(state, State::Issued(cause) if *cause != Cause::Due)
            || matches!(state, State::AwaitsAuthority | State::Copied(_))
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
    let expiry = format!("the first certificate to expire is {} at {:.0}", title(first.1), first.0);
    let mut overdue = expiring(&view.basis.goal.certificates, view.seen()).into_iter();
    if let Some(overdue) = overdue.find(|it| !is_renewed_now(view, it.purpose)) {
        return Some((Value::True, reason::RENEWAL_OVERDUE, renewal_overdue(view, &overdue)));
    }
    if let Some((reason, unused)) = not_in_use(view) {
        return Some((Value::True, reason, format!("{in_effect}; {unused}; {expiry}")));
    }
    let authorities = states.keys().filter(|it| it.issuer().is_none());
    let mut trusts = authorities.filter_map(|&it| Trust::of(it, view.seen()));
    let differs = |trust: &Trust<'_>| view.seen().pods.values().any(|pod| !trust.is_shown(pod));
    let (reason, rotating) = match trusts.any(|trust| trust.is_rotating() || differs(&trust)) {
        true => (reason::ROTATING_AUTHORITIES, "authorities give way to their successors; "),
        false => (reason::CERTIFICATES_VALID, ""),
    };
    Some((Value::True, reason, format!("{in_effect}; {rotating}{expiry}")))
}

/// Everything that is wrong with what a user or cert-manager gives, and what is in use instead.
fn certificate_rejected(view: &View<'_>, states: &States) -> Option<(&'static str, String)> {
    let server = view.basis.goal.certificates.get(&Purpose::Server)?;
    let problems = problems(server, view.seen());
    let rejection = Rejection::of(&problems)?;
    let problems: Vec<_> = problems.iter().map(|it| it.words(&server.source)).collect();
    let instead = match (states.get(&Purpose::Server), not_after(view, Purpose::Server)) {
        (Some(State::AwaitsGiven), _) | (_, None) => "no pod starts without it".to_owned(),
        (_, Some(until)) => format!("members keep the one that they have, which is valid until {until:.0}"),
    };
    let what = match server.source.issuer() {
        None => "the certificate that you give cannot be used".into(),
        Some(issuer) => format!("there is no certificate of {} {} to use", issuer.kind, issuer.name),
    };
    Some((rejection.reason(), format!("{what}, {instead}: {}", problems.join("; "))))
}

fn renewed_by(view: &View<'_>, purpose: Purpose) -> String {
    match given_secret(view, purpose) {
        Some((secret, true)) => format!("cert-manager renews the one in Secret {secret}"),
        Some((secret, false)) => format!("renew the one in Secret {secret}"),
        None => "the operator renews it".into(),
    }
}

/// The Secret that this certificate is copied from, and whether cert-manager writes it.
fn given_secret<'a>(view: &View<'a>, purpose: Purpose) -> Option<(&'a str, bool)> {
    view.seen().secrets.get(&purpose).filter(|it| it.copied.is_some())?;
    let source = &view.basis.goal.certificates.get(&purpose)?.source;
    let (certificate, _) = source.secrets()?;
    Some((certificate, source.issuer().is_some()))
}

fn is_renewed_now(view: &View<'_>, renewed: Purpose) -> bool {
    let renews = |it: &Action| matches!(it, Action::IssueCertificate { purpose, .. } if *purpose == renewed);
    view.basis.trouble.is_none() && view.basis.plan.actions.iter().any(renews)
}

/// The next step depends on what keeps the operator from renewing it.
fn renewal_overdue(view: &View<'_>, Expiring { purpose, not_after, urgency }: &Expiring) -> String {
    let secret = Object::Secret(*purpose).title(view.basis.names);
    if let Some((given, is_issued)) = given_secret(view, *purpose) {
        let way_out = if is_issued { "check why cert-manager does not renew" } else { "renew" };
        return format!(
            "the certificate in {secret} expires {} at {not_after:.0}: {way_out} the one in Secret {given}, from which \
             the operator copies it",
            urgency.words()
        );
    }
    let way_out = match (view.basis.goal.paused, purpose.issuer()) {
        (true, _) => ", but the cluster is paused: set spec.paused to false",
        (false, None) => ", but its rotation has not finished: see condition Reconciling",
        (false, Some(_)) => ": see condition Reconciling and the log of the operator",
    };
    format!(
        "the certificate in {secret} expires {} at {not_after:.0} and should have been renewed{way_out}",
        urgency.words()
    )
}

/// Serving members that show another certificate than their Secrets hold, on any port.
fn not_in_use(view: &View<'_>) -> Option<(&'static str, String)> {
    let seen = view.seen();
    for purpose in Purpose::ALL.into_iter().filter(|it| it.port().is_some()) {
        let Some(secret) = seen.secrets.get(&purpose) else { continue };
        let Some((held, since)) = secret.certificate.known().zip(secret.written()) else { continue };
        let shows_it = |ordinal: &Ordinal| {
            let shown = seen.pods.get(ordinal).and_then(|pod| pod.handshakes.get(&purpose));
            shown.and_then(Seen::known).is_some_and(|it| it.certificate == held.fingerprint)
        };
        let members = view.facts.listed();
        let serving = view.facts.serving().filter_map(|id| members?.list.get(&id)?.ordinal);
        let serving = serving.filter(|it| seen.transport_of(*it).is_none_or(|it| purpose.is_shown(it)));
        let others: Vec<Ordinal> = serving.filter(|it| !shows_it(it)).collect();
        if others.is_empty() {
            continue;
        }
        let (secret, pods) = (Object::Secret(purpose).title(view.basis.names), view.terms().pods(&others));
        let not_yet = format!("the certificate in {secret} is not seen in use on {pods}");
        return Some(match seen.now.duration_since(since) > KUBELET_REFRESH {
            false => (reason::RENEWAL_UNDER_WAY, not_yet),
            true => {
                let way_out = "check the kubelets of their nodes, or restart them with the annotation \
                               etcd.etcd.io/restart=TOKEN/POD";
                (
                    reason::PREVIOUS_CERTIFICATE_SERVED,
                    format!("{not_yet}, although it was issued at {since:.0}: {way_out}"),
                )
            }
        });
    }
    None
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
    let is_auth_enabled = seen.auth.as_ref().is_some_and(|auth| auth.enabled);
    if is_auth_enabled && loses_identity(Some(in_effect), Some(*target)) {
        left.push(
            "etcd authentication is enabled and has to be disabled before, see spec.security.auth.enabled"
                .into(),
        );
    }
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
