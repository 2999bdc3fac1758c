//! etcd's own authentication: whether it is enabled, its users, and each change of them.

use std::collections::BTreeMap;

use etcd_client::UserAddOptions;
use etcd_operator_core::auth::{Auth, Password, Questions, ROOT_ROLE, Step, User, Users};
use hyper::http::uri::PathAndQuery;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use super::{CHANGE_DEADLINE, DEADLINE, Error, Member};

const STATUS: &str = "/etcdserverpb.Auth/AuthStatus";
const NOT_ENABLED: &str = "authentication is not enabled";
/// What was to be created is there: its answer was lost, or somebody else created it.
const THERE: [&str; 2] = ["role name already exists", "user name already exists"];
/// Twice as many characters, which is less than what bcrypt accepts.
const RANDOM_BYTES: usize = 32;

/// The client has no call for it.
#[derive(Clone, PartialEq, prost::Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(bool, tag = "2")]
    enabled: bool,
}

impl Member {
    pub async fn auth(&self, questions: Questions, password: Option<&Password>) -> Result<Auth, Error> {
        let enabled = match questions.wanted {
            true => self.auth_status().await,
            false => self.logs_in(User::Root, None).await.map(|login| login.is_some()),
        };
        let enabled = match enabled {
            Err(error) if error.is_denied() => true,
            answer => answer?,
        };
        let mut auth = Auth { enabled, users: None, root_logs_in: None };
        if questions.users {
            auth.users = match self.users().await {
                Err(error) if error.is_denied() => None,
                answer => Some(answer?),
            };
        }
        if questions.password && enabled {
            auth.root_logs_in = self.logs_in(User::Root, password).await?;
        }
        Ok(auth)
    }

    /// etcd agrees on the answer with an entry in its log.
    async fn auth_status(&self) -> Result<bool, Error> {
        let call = "report whether authentication is enabled";
        let answer = async {
            let mut grpc = Grpc::new(self.channel.clone());
            grpc.ready().await.map_err(tonic::Status::from_error)?;
            let codec = ProstCodec::<StatusRequest, StatusResponse>::default();
            let path = PathAndQuery::from_static(STATUS);
            let answer = grpc.unary(tonic::Request::new(StatusRequest {}), path, codec).await?;
            Ok(answer.into_inner().enabled)
        };
        self.within(CHANGE_DEADLINE, call, answer).await
    }

    /// Whether the user can log in with this password; none if authentication is not enabled. That costs no entry in the log
    /// of etcd, and no line in what it prints.
    async fn logs_in(&self, user: User, password: Option<&Password>) -> Result<Option<bool>, Error> {
        let mut auth = self.client.auth_client();
        let password = password.map(Password::reveal).unwrap_or_default();
        let login = auth.authenticate(user.name().into(), password.into());
        match self.within(CHANGE_DEADLINE, "log in", login).await {
            Ok(_) => Ok(Some(true)),
            Err(Error::Refused { reason, .. }) if reason == NOT_ENABLED => Ok(None),
            Err(Error::Refused { .. }) => Ok(Some(false)),
            Err(error) => Err(error),
        }
    }

    /// All that matters of them.
    async fn users(&self) -> Result<Users, Error> {
        let mut auth = self.client.auth_client();
        let roles = self.within(DEADLINE, "list the roles", auth.role_list()).await?;
        let users = self.within(DEADLINE, "list the users", auth.user_list()).await?;
        let mut there = BTreeMap::new();
        for user in User::ALL.into_iter().filter(|it| users.users().iter().any(|name| name == it.name())) {
            let found =
                self.within(DEADLINE, "report the roles of a user", auth.user_get(user.name())).await?;
            there.insert(user, found.roles().iter().any(|role| role == ROOT_ROLE));
        }
        Ok(Users { root_role: roles.roles().iter().any(|role| role == ROOT_ROLE), there })
    }

    /// Without a password for root it gets one that nobody knows, so that it can get another one later.
    pub async fn change_auth(&self, step: Step, root_password: Option<Password>) -> Result<(), Error> {
        let mut auth = self.client.auth_client();
        let password = match (step, root_password) {
            // Its Secret is gone by now.
            (Step::SetRootPassword, None) => return Ok(()),
            (_, given) => given.unwrap_or_else(random_password),
        };
        let changed = match step {
            Step::AddRootRole => {
                self.within(CHANGE_DEADLINE, "create a role", auth.role_add(ROOT_ROLE)).await.map(drop)
            }
            Step::AddUser(User::Root) => {
                let added = auth.user_add(User::Root.name(), password.reveal(), None);
                self.within(CHANGE_DEADLINE, "create a user", added).await.map(drop)
            }
            Step::AddUser(user) => {
                let options = UserAddOptions::new().with_no_pwd();
                let added = auth.user_add(user.name(), "", Some(options));
                self.within(CHANGE_DEADLINE, "create a user", added).await.map(drop)
            }
            Step::GrantRootRole(user) => {
                let granted = auth.user_grant_role(user.name(), ROOT_ROLE);
                self.within(CHANGE_DEADLINE, "grant a role", granted).await.map(drop)
            }
            Step::Enable => {
                self.within(CHANGE_DEADLINE, "enable authentication", auth.auth_enable()).await.map(drop)
            }
            Step::Disable => {
                self.within(CHANGE_DEADLINE, "disable authentication", auth.auth_disable()).await.map(drop)
            }
            Step::SetRootPassword => {
                let set = auth.user_change_password(User::Root.name(), password.reveal());
                self.within(CHANGE_DEADLINE, "change a password", set).await.map(drop)
            }
        };
        match changed {
            Err(Error::Refused { reason, .. }) if THERE.contains(&reason.as_str()) => Ok(()),
            changed => changed,
        }
    }
}

pub(crate) fn random_password() -> Password {
    let mut bytes = [0; RANDOM_BYTES];
    aws_lc_rs::default_provider().secure_random.fill(&mut bytes).expect("the system has random numbers");
    Password::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_password_is_long_and_never_the_same() {
        let (one, other) = (random_password(), random_password());
        assert_eq!(one.reveal().len(), 64);
        assert_ne!(one, other);
    }
}
