//! Whether etcd's own authentication is as the spec asks for.

use super::conditions::Value;
use super::facts::Finding;
use super::view::View;
use crate::auth::{PASSWORD_KEY, RootPassword, User, Wanted, clients_use_tls};
use crate::names::reason;
use crate::plan::Refusal;

/// None where the spec does not ask for anything and where it is disabled as asked for, and before there is anything to report.
pub(super) fn ready(view: &View<'_>) -> Option<Finding> {
    let seen = view.seen();
    if seen.cluster.deleting {
        return None;
    }
    if seen.is_access_denied() {
        let refusal = Refusal::AccessDenied { identified: clients_use_tls(seen) };
        return Some((Value::False, reason::ACCESS_DENIED, view.terms().refused(&refusal)));
    }
    let enabled = seen.auth.as_ref().map(|auth| auth.enabled);
    match (&view.basis.goal.auth, enabled) {
        (Wanted::Unknown, _) | (Wanted::Disabled, Some(false) | None) => None,
        (Wanted::Disabled, Some(true)) => {
            let message = "etcd authentication is enabled, and spec.security.auth.enabled is false: the operator disables it; to \
                           keep it, set the field to true, or remove spec.security.auth";
            Some((Value::False, reason::AUTH_NOT_WANTED, message.into()))
        }
        (Wanted::Enabled { .. }, _) if seen.cluster.formed.is_none() => None,
        (Wanted::Enabled { .. }, None) => {
            let message = "etcd has not reported yet whether authentication is enabled";
            Some((Value::Unknown, reason::AUTH_PENDING, message.into()))
        }
        (Wanted::Enabled { .. }, Some(false)) if !clients_use_tls(seen) => {
            let message = "etcd authentication is not enabled: it needs TLS for clients, which is not in effect, see condition \
                           TLSReady";
            Some((Value::False, reason::TLS_NOT_IN_EFFECT, message.into()))
        }
        (Wanted::Enabled { .. }, Some(false)) => {
            pending(view).map(|it| (Value::False, reason::AUTH_PENDING, it))
        }
        (Wanted::Enabled { root_password_secret }, Some(true)) => {
            Some(enabled_with(view, root_password_secret.as_deref()))
        }
    }
}

/// What is left to do before authentication is enabled, if it can be.
pub(super) fn pending(view: &View<'_>) -> Option<String> {
    let seen = view.seen();
    let off = seen.auth.as_ref().is_some_and(|auth| !auth.enabled);
    let can = seen.cluster.formed.is_some() && !seen.is_access_denied() && clients_use_tls(seen);
    (view.basis.goal.auth.is_enabled() && off && can)
        .then(|| "the operator enables etcd authentication, which is disabled".into())
}

fn enabled_with(view: &View<'_>, secret: Option<&str>) -> Finding {
    let Some(secret) = secret else {
        let message = format!("etcd authentication is enabled; nobody can log in as {}", User::Root.name());
        return (Value::True, reason::AUTH_ENABLED, message);
    };
    let without = |why: String| {
        let message = format!(
            "etcd authentication is enabled, and the password of root was not set: {why}; or remove \
             spec.security.auth.rootPasswordSecret"
        );
        (Value::False, reason::ROOT_PASSWORD_MISSING, message)
    };
    let logs_in = view.seen().auth.as_ref().and_then(|auth| auth.root_logs_in);
    match view.seen().root_password {
        Some(RootPassword::NoSecret) => {
            without(format!("Secret {secret} does not exist; create it with the key {PASSWORD_KEY}"))
        }
        Some(RootPassword::NoKey) => without(format!("Secret {secret} has no key {PASSWORD_KEY}; add it")),
        Some(RootPassword::Unusable) => without(format!(
            "{PASSWORD_KEY} of Secret {secret} is not text of 1 to 72 bytes, which is what etcd accepts; change it"
        )),
        Some(RootPassword::Ineffective) => {
            let message = format!(
                "etcd authentication is enabled, and root cannot log in with the password of Secret {secret}, because \
                 somebody created root without a password: set spec.security.auth.enabled to false, run etcdctl user \
                 delete root, and set it to true again"
            );
            (Value::False, reason::ROOT_PASSWORD_INEFFECTIVE, message)
        }
        Some(RootPassword::Given) | None if logs_in == Some(true) => {
            let message = format!("etcd authentication is enabled; root has the password of Secret {secret}");
            (Value::True, reason::AUTH_ENABLED, message)
        }
        Some(RootPassword::Given) | None => {
            let message = format!(
                "etcd authentication is enabled; the operator sets the password of root to that of Secret {secret}"
            );
            (Value::False, reason::ROOT_PASSWORD_PENDING, message)
        }
    }
}
