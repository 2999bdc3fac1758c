//! etcd's own authentication: the users that the operator creates, what it observes of them, and the step that comes next.
//!
//! etcd takes the common name of a client's certificate for the name of a user, so the operator needs no password. It must
//! never enable authentication before its own user has the root role: it would lock itself out.

mod memory;
mod password;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api;
use crate::observed::Observed;
use crate::tls::Transport;
pub use memory::{Memory, Questions};
pub use password::{PASSWORD_KEY, Password, RootPassword};

/// Its users are allowed everything.
pub const ROOT_ROLE: &str = "root";

/// A user that the operator creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum User {
    /// etcd enables authentication only if it has the root role.
    Root,
    /// The certificate in `NAME-operator-tls`.
    Operator,
    /// The certificate in `NAME-client-tls`, without any rights until a user grants it some.
    Client,
}

impl User {
    pub const ALL: [Self; 3] = [Self::Root, Self::Operator, Self::Client];

    /// The common name of its certificate, too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Operator => "etcd-operator",
            Self::Client => "etcd-client",
        }
    }

    pub fn has_root_role(self) -> bool {
        match self {
            Self::Root | Self::Operator => true,
            Self::Client => false,
        }
    }
}

/// What a spec asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// The spec says nothing of it, or is invalid: everything stays as it is. An operator that learns to manage authentication
    /// must not disable what somebody enabled.
    #[default]
    Unknown,
    Disabled,
    Enabled {
        /// The Secret with the password of root. Without one nobody knows the password.
        root_password_secret: Option<String>,
    },
}

impl Wanted {
    pub fn of(auth: Option<&api::Auth>) -> Self {
        match auth {
            Some(api::Auth { enabled: true, root_password_secret }) => {
                Self::Enabled { root_password_secret: root_password_secret.clone() }
            }
            Some(api::Auth { enabled: false, .. }) => Self::Disabled,
            None => Self::Unknown,
        }
    }

    pub fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }

    pub fn is_enabled(&self) -> bool {
        matches!(self, Self::Enabled { .. })
    }

    pub fn root_password_secret(&self) -> Option<&str> {
        if let Self::Enabled { root_password_secret } = self { root_password_secret.as_deref() } else { None }
    }
}

/// What etcd reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    pub enabled: bool,
    /// Asked only until all are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Users>,
    /// Whether root can log in with the password of the Secret; asked once for each content of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_logs_in: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// Whether the role exists.
    pub root_role: bool,
    /// Those that exist, and whether each of them has the root role.
    pub there: BTreeMap<User, bool>,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    AddRootRole,
    AddUser(User),
    GrantRootRole(User),
    Enable,
    Disable,
    SetRootPassword,
}

/// The step that comes next. Each is observed before the next one, because a response can be lost.
pub fn next(wanted: &Wanted, seen: &Observed) -> Option<Step> {
    let auth = seen.auth.as_ref().filter(|_| !seen.is_access_denied())?;
    match (wanted, auth.enabled) {
        (Wanted::Unknown, _) | (Wanted::Disabled, false) => None,
        (Wanted::Disabled, true) => Some(Step::Disable),
        // In plain text the operator has no identity.
        (Wanted::Enabled { .. }, false) if !clients_use_tls(seen) => None,
        (Wanted::Enabled { .. }, false) => auth.users.as_ref().map(|it| it.missing().unwrap_or(Step::Enable)),
        // Somebody enabled it by hand, and forgot a user.
        (Wanted::Enabled { .. }, true) => auth.users.as_ref().and_then(Users::missing).or_else(|| {
            let differs = seen.root_password == Some(RootPassword::Given) && auth.root_logs_in == Some(false);
            differs.then_some(Step::SetRootPassword)
        }),
    }
}

/// What is in effect on all members, not what is asked for.
pub fn clients_use_tls(seen: &Observed) -> bool {
    let is_tls = |transport: Transport| transport.clients.is_tls();
    let of_pods = seen.pods.values().filter_map(|pod| pod.transport);
    seen.transport.is_some_and(is_tls) && of_pods.into_iter().all(is_tls)
}

/// Whether the client port is to change from TLS to plain text, in which the operator has no name.
pub fn loses_identity(in_effect: Option<Transport>, target: Option<Transport>) -> bool {
    in_effect.is_some_and(|it| it.clients.is_tls()) && target.is_some_and(|it| !it.clients.is_tls())
}

impl Users {
    /// What comes before authentication is enabled, if anything.
    pub fn missing(&self) -> Option<Step> {
        if !self.root_role {
            return Some(Step::AddRootRole);
        }
        let missing = |user: User| match self.there.get(&user) {
            None => Some(Step::AddUser(user)),
            Some(false) if user.has_root_role() => Some(Step::GrantRootRole(user)),
            Some(_) => None,
        };
        User::ALL.into_iter().find_map(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authentication_is_enabled_only_when_every_user_is_there_with_its_role() {
        use Step::{AddRootRole, AddUser, GrantRootRole};
        use User::{Client, Operator, Root};
        let mut users = Users::default();
        let steps = std::iter::from_fn(|| {
            let step = users.missing()?;
            match step {
                AddRootRole => users.root_role = true,
                AddUser(user) => drop(users.there.insert(user, false)),
                GrantRootRole(user) => drop(users.there.insert(user, true)),
                Step::Enable | Step::Disable | Step::SetRootPassword => return None,
            }
            Some(step)
        });
        let before = [AddUser(Root), GrantRootRole(Root), AddUser(Operator), GrantRootRole(Operator)];
        let expected = [&[AddRootRole], &before[..], &[AddUser(Client)]].concat();
        assert_eq!(steps.collect::<Vec<_>>(), expected);
        assert_eq!(users.missing(), None);
        for user in [Root, Operator] {
            let mut revoked = users.clone();
            revoked.there.insert(user, false);
            assert_eq!(revoked.missing(), Some(GrantRootRole(user)));
        }
    }
}
