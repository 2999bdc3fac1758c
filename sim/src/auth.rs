//! etcd's own authentication, as far as operators see it: for a whole cluster at once, as etcd agrees on it.
//! `tests/conformance/auth.rs` holds it against real etcd.

use std::collections::BTreeMap;

use etcd_operator_core::auth::{Auth, Questions, Step, User, Users, Wanted};
use etcd_operator_core::observed::ClusterId;

use crate::problem::Violation;
use crate::world::World;

/// What etcd answers to a step that it rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    RoleExists,
    UserExists,
    /// There is no such user.
    NotFound,
    RootUserNotExist,
    /// The user root does not have the role.
    RootRoleNotExist,
    PermissionDenied,
}

/// Users and roles of one cluster. Passwords are numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    pub enabled: bool,
    pub root_role: bool,
    /// Whether each of them has the root role.
    pub users: BTreeMap<User, bool>,
    pub root_password: Option<u64>,
}

impl Store {
    /// As a client with the name of this user asks for it; none if it has no name.
    pub fn apply(&mut self, step: Step, caller: Option<User>, password: Option<u64>) -> Result<(), Error> {
        if !self.allows(caller) {
            return Err(Error::PermissionDenied);
        }
        match step {
            Step::AddRootRole if self.root_role => return Err(Error::RoleExists),
            Step::AddRootRole => self.root_role = true,
            Step::AddUser(user) if self.users.contains_key(&user) => return Err(Error::UserExists),
            Step::AddUser(user) => {
                self.users.insert(user, false);
                if user == User::Root {
                    self.root_password = password;
                }
            }
            Step::GrantRootRole(user) => {
                *self.users.get_mut(&user).ok_or(Error::NotFound)? = true;
            }
            Step::Enable => match self.users.get(&User::Root) {
                None => return Err(Error::RootUserNotExist),
                Some(false) => return Err(Error::RootRoleNotExist),
                Some(true) => self.enabled = true,
            },
            Step::Disable => self.enabled = false,
            Step::SetRootPassword if self.users.contains_key(&User::Root) => self.root_password = password,
            Step::SetRootPassword => return Err(Error::NotFound),
        }
        Ok(())
    }

    /// Whether this user is allowed everything.
    pub fn allows(&self, caller: Option<User>) -> bool {
        !self.enabled || caller.is_some_and(|user| self.has_root_role(user))
    }

    pub fn has_root_role(&self, user: User) -> bool {
        self.users.get(&user) == Some(&true)
    }

    pub fn answer(&self, questions: Questions, password: Option<u64>) -> Auth {
        let users = Users { root_role: self.root_role, there: self.users.clone() };
        Auth {
            enabled: self.enabled,
            users: questions.users.then_some(users),
            root_logs_in: (questions.password && self.enabled).then(|| self.root_password == password),
        }
    }
}

impl World {
    /// By their certificate; none where clients connect to any member in plain text.
    pub fn operators_name(&self) -> Option<User> {
        let objects = &self.kube.objects;
        let of_pods = objects.pods.values().map(|pod| pod.template.form.transport);
        let in_effect = objects.transport().unwrap_or_else(|| objects.target());
        of_pods.chain([in_effect]).all(|it| it.clients.is_tls()).then_some(User::Operator)
    }

    pub fn denies_operators(&self, cluster: ClusterId) -> bool {
        self.auth.get(&cluster).is_some_and(|store| !store.allows(self.operators_name()))
    }

    /// A step of an operator. What exists already counts as done.
    pub fn change_auth(
        &mut self,
        cluster: ClusterId,
        step: Step,
        password: Option<u64>,
    ) -> Result<(), Error> {
        let name = self.operators_name();
        let store = self.auth.entry(cluster).or_default();
        let changed = store.apply(step, name, password);
        if step == Step::Enable && changed.is_ok() && !store.allows(name) {
            self.violate(Violation::LockedOut);
        }
        match changed {
            Err(Error::RoleExists | Error::UserExists) => Ok(()),
            changed => changed,
        }
    }

    /// A user enables or disables authentication by hand, as root.
    pub fn toggle_auth(&mut self, enabled: bool) {
        let Some(cluster) = self.formed() else { return };
        self.note(|| format!("a user enables authentication by hand: {enabled}"));
        let store = self.auth.entry(cluster).or_default();
        store.root_role = true;
        store.users.insert(User::Root, true);
        store.enabled = enabled;
    }

    /// What a status asks for.
    pub fn give_operators_access(&mut self) {
        let Some(cluster) = self.formed().filter(|cluster| self.denies_operators(*cluster)) else { return };
        let named = self.operators_name();
        self.note(|| "a user gives the operator access".into());
        let store = self.auth.entry(cluster).or_default();
        match named {
            Some(user) => drop(store.users.insert(user, true)),
            None => store.enabled = false,
        }
    }

    pub fn edit_auth(&mut self, wanted: Wanted) {
        self.note(|| format!("a user edits authentication: {wanted:?}"));
        if let Some(cluster) = &mut self.kube.objects.cluster {
            cluster.goal.auth = wanted;
            cluster.version += 1;
        }
    }

    /// Another content of the Secret; nothing reports that to operators.
    pub fn edit_root_password(&mut self, password: u64) {
        if let Some(cluster) = &mut self.kube.objects.cluster {
            cluster.root_password = Some(password);
        }
    }

    /// Whether authentication is as the spec asks for, where that is possible.
    pub fn auth_is_as_wanted(&self) -> bool {
        let objects = &self.kube.objects;
        let (Some(cluster), Some(formed)) = (&objects.cluster, self.formed()) else { return true };
        let store = self.auth.get(&formed).cloned().unwrap_or_default();
        match &cluster.goal.auth {
            Wanted::Unknown => true,
            Wanted::Disabled => !store.enabled,
            Wanted::Enabled { .. } if self.operators_name().is_none() => !store.enabled,
            Wanted::Enabled { root_password_secret } => {
                let password = root_password_secret.as_ref().and(cluster.root_password);
                store.enabled
                    && User::ALL.iter().all(|user| store.users.contains_key(user))
                    && password.is_none_or(|it| store.root_password == Some(it))
            }
        }
    }
}
