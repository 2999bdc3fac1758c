//! etcd's own authentication.

use etcd_operator_core::auth::{Auth, RootPassword, User, Users, Wanted};
use etcd_operator_core::decide::Goal;
use etcd_operator_core::observed::Observed;

use super::Result;

/// What is wanted, what etcd reports, and what there is to give root a password from.
pub fn read_auth(words: &[&str], goal: &mut Goal, seen: &mut Observed) -> Result<()> {
    for word in words {
        let mut auth = seen.auth.take().unwrap_or(Auth { enabled: false, users: None, root_logs_in: None });
        match word.split_once('=').unwrap_or((word, "")) {
            ("wanted", "") => goal.auth = Wanted::Enabled { root_password_secret: None },
            ("wanted", secret) => goal.auth = Wanted::Enabled { root_password_secret: Some(secret.into()) },
            ("unwanted", "") => goal.auth = Wanted::Disabled,
            ("unknown", "") => continue,
            ("enabled", "") => (auth.enabled, auth.users) = (true, None),
            ("disabled", "") => auth.enabled = false,
            ("users", names) => auth.users = Some(users(names)?),
            ("root-logs-in", "") => auth.root_logs_in = Some(true),
            ("root-fails", "") => auth.root_logs_in = Some(false),
            ("password", "given") => seen.root_password = Some(RootPassword::Given),
            ("password", "no-secret") => seen.root_password = Some(RootPassword::NoSecret),
            ("password", "no-key") => seen.root_password = Some(RootPassword::NoKey),
            ("password", "unusable") => seen.root_password = Some(RootPassword::Unusable),
            ("password", "ineffective") => seen.root_password = Some(RootPassword::Ineffective),
            _ => return Err(format!("{word} is not understood")),
        }
        seen.auth = Some(auth);
    }
    Ok(())
}

/// `none`, or names with a `+` behind those that have the root role. With any of them, the role is there.
fn users(names: &str) -> Result<Users> {
    let mut users = Users { root_role: names != "none", ..Users::default() };
    for name in names.split(',').filter(|name| !["none", "role"].contains(name)) {
        let (name, has_role) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
        let user = User::ALL.into_iter().find(|it| it.name() == name).ok_or(format!("no user {name}"))?;
        users.there.insert(user, has_role);
    }
    Ok(users)
}
