//! The Secret with the password of etcd's root, which is the user's own. Nothing reports that it changed, so it is read by its
//! name from time to time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_operator_core::auth::{RootPassword, Wanted};
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::Objects;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

const EVERY: Duration = Duration::from_secs(60);
/// While there is no password in it.
const MISSING_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct RootPasswordSecret {
    /// Of the cluster with this UID.
    cluster: Option<String>,
    name: Option<String>,
    found: Option<Arc<Secret>>,
    read_at: Option<Instant>,
}

impl RootPasswordSecret {
    /// For a cluster that is being deleted it is not read: nothing may block its deletion.
    pub async fn add_to(
        &mut self,
        objects: &mut Objects,
        client: &Client,
        names: &Names,
    ) -> Result<(), kube::Error> {
        let metadata = &objects.cluster.metadata;
        let wanted = Wanted::of(objects.cluster.spec.security.auth.as_ref());
        let name = wanted.root_password_secret().filter(|_| metadata.deletion_timestamp.is_none());
        if self.is_due(metadata.uid.as_deref(), name, Instant::now())
            && let Some(name) = name
        {
            let secrets = Api::<Secret>::namespaced(client.clone(), &names.namespace);
            self.found = secrets.get_opt(name).await?.map(|mut secret| {
                secret.metadata.managed_fields = None;
                Arc::new(secret)
            });
            self.read_at = Some(Instant::now());
        }
        objects.root_password = self.found.clone();
        Ok(())
    }

    fn is_due(&mut self, cluster: Option<&str>, name: Option<&str>, now: Instant) -> bool {
        if (self.cluster.as_deref(), self.name.as_deref()) != (cluster, name) {
            let (cluster, name) = (cluster.map(str::to_owned), name.map(str::to_owned));
            *self = Self { cluster, name, ..Self::default() };
        }
        let given = RootPassword::of(self.found.as_deref()) == RootPassword::Given;
        let rest = if given { EVERY } else { MISSING_EVERY };
        name.is_some() && self.read_at.is_none_or(|at| now.saturating_duration_since(at) >= rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use etcd_operator_core::auth::PASSWORD_KEY;
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn the_secret_is_read_once_a_minute_more_often_while_it_is_missing_and_at_once_if_it_is_another() {
        let mut password = RootPasswordSecret::default();
        let begun = Instant::now();
        let due = |password: &mut RootPasswordSecret, name, seconds| {
            password.is_due(Some("uid"), name, begun + Duration::from_secs(seconds))
        };
        assert!(!due(&mut password, None, 0) && due(&mut password, Some("root"), 0));
        password.read_at = Some(begun);
        assert!(!due(&mut password, Some("root"), 9) && due(&mut password, Some("root"), 10));
        let data = BTreeMap::from([(PASSWORD_KEY.to_owned(), ByteString(b"x".to_vec()))]);
        password.found = Some(Arc::new(Secret { data: Some(data), ..Secret::default() }));
        assert!(!due(&mut password, Some("root"), 59) && due(&mut password, Some("root"), 60));
        assert!(due(&mut password, Some("another"), 1));
        assert!(password.found.is_none(), "it has no password of the one before");
    }
}
