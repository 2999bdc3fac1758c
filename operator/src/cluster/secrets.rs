//! The Secrets that one cluster needs: those of the operator with certificates, and those of users and of cert-manager with a
//! certificate or a password.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::auth::{self, RootPassword};
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::{GivenSecrets, Objects, ours};
use etcd_operator_core::request::Object;
use etcd_operator_core::tls::{Chain, Key, Purpose, Source, Transport, Verified};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use super::secret_reader::{SecretReader, Wanted};
use crate::certificates::verify;
use crate::credentials::{Credentials, Unusable};

/// What users write into their Secrets takes effect within this time.
const OF_USERS: Duration = Duration::from_secs(60);
/// The same while there is nothing in it that could be used.
const OF_USERS_UNUSABLE: Duration = Duration::from_secs(10);
/// Nobody but the operator writes its own, so this is for what somebody deletes or breaks. No member notices that before it
/// starts again.
const OURS: Duration = Duration::from_secs(300);
/// The same while a pod is not ready: it might lack one.
const OURS_UNSETTLED: Duration = Duration::from_secs(60);
/// While one is not there, or another object has its name. What we create ourselves need not be read: the API server creates
/// nothing twice.
const MISSING: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Secrets {
    /// Of the cluster with this UID.
    cluster: Option<String>,
    reader: SecretReader,
    /// What signatures and keys of a user's certificate show, of these Secrets.
    verified: Option<(Source, Verified)>,
    credentials: Option<Prepared>,
}

/// Credentials are prepared once for each content of a Secret.
struct Prepared {
    of: Arc<Secret>,
    credentials: Result<Credentials, Unusable>,
}

/// Of everything that pods have, will have or should have.
fn needed(objects: &Objects) -> Vec<Purpose> {
    let transport = objects.transports().reduce(Transport::or_more).unwrap_or_default();
    Purpose::ALL.into_iter().filter(|it| it.is_needed(transport)).collect()
}

impl Secrets {
    /// Adds those that a cluster needs to its objects, read now if that is due. For a cluster that is being deleted none is
    /// read: nothing may block its deletion.
    pub async fn add_to(
        &mut self,
        objects: &mut Objects,
        client: &Client,
        names: &Names,
    ) -> Result<(), kube::Error> {
        let cluster = Arc::clone(&objects.cluster);
        if self.cluster != cluster.metadata.uid {
            *self = Self { cluster: cluster.metadata.uid.clone(), ..Self::default() };
        }
        if cluster.metadata.deletion_timestamp.is_some() {
            self.reader.forget_all();
            return Ok(());
        }
        let needed = needed(objects);
        let (source, password) = (source(objects, names), password_secret(&cluster));
        let every = if objects.pods_are_ready() { OURS } else { OURS_UNSETTLED };
        let mut wanted = self.ours(&needed, names, &cluster, every);
        wanted.extend(self.of_users(&source, password.as_deref()));
        if self.reader.read(&wanted, client, &names.namespace).await? {
            self.verified = None;
        }
        let mut taken = BTreeSet::new();
        for purpose in needed {
            let found = self.reader.get(&names.secret(purpose)).cloned();
            let ours = ours(Object::Secret(purpose), found, &cluster, &mut taken);
            objects.secrets.extend(ours.map(|it| (purpose, it)));
        }
        objects.taken.extend(taken);
        objects.root_password = password.and_then(|name| self.reader.get(&name).cloned());
        objects.given = self.given(&source);
        Ok(())
    }

    fn ours(&self, needed: &[Purpose], names: &Names, cluster: &EtcdCluster, every: Duration) -> Vec<Wanted> {
        let wanted = |&purpose: &Purpose| {
            let name = names.secret(purpose);
            let found = self.reader.get(&name).cloned();
            let is_ours = ours(Object::Secret(purpose), found, cluster, &mut BTreeSet::new()).is_some();
            Wanted { name, every: if is_ours { every } else { MISSING } }
        };
        needed.iter().map(wanted).collect()
    }

    fn of_users(&self, source: &Source, password: Option<&str>) -> Vec<Wanted> {
        let is_usable = self
            .verified
            .as_ref()
            .is_some_and(|(_, it)| *it == Verified { key: Key::Matches, chain: Chain::Complete });
        let is_given =
            |name: &str| RootPassword::of(self.reader.get(name).map(|it| &**it)) == RootPassword::Given;
        let every = |usable: bool| if usable { OF_USERS } else { OF_USERS_UNUSABLE };
        let wanted = |name: &str, usable| Wanted { name: name.to_owned(), every: every(usable) };
        let certificates = source.secrets().map(|(one, other)| [one, other].map(|it| wanted(it, is_usable)));
        let password = password.map(|name| wanted(name, is_given(name)));
        certificates.into_iter().flatten().chain(password).collect()
    }

    /// Verified once after each read, because time passes.
    fn given(&mut self, source: &Source) -> Option<GivenSecrets> {
        let (certificate, authorities) = source.secrets()?;
        let [certificate, authorities] = [certificate, authorities].map(|it| self.reader.get(it).cloned());
        let known = self.verified.take().filter(|(of, _)| of == source).map(|(_, verified)| verified);
        let now = || verify(certificate.as_deref(), authorities.as_deref(), Timestamp::now());
        let (_, verified) = self.verified.insert((source.clone(), known.unwrap_or_else(now)));
        Some(GivenSecrets { certificate, authorities, verified: verified.clone() })
    }

    /// The next observation reads those of the operator again.
    pub fn outdate(&mut self, names: &Names) {
        Purpose::ALL.into_iter().for_each(|it| self.reader.outdate(&names.secret(it)));
    }

    /// What became of a write: the API server responds with the Secret. Otherwise nothing is certain until the next read.
    pub fn wrote(&mut self, purpose: Purpose, response: Option<&Value>, names: &Names) {
        let name = names.secret(purpose);
        match response.and_then(|it| Secret::deserialize(it).ok()) {
            Some(secret) => self.reader.note(&name, Some(secret)),
            None => self.reader.outdate(&name),
        }
    }

    /// For connections to members that serve clients with TLS.
    pub fn credentials(&mut self, objects: &Objects, names: &Names) -> Result<Credentials, Unusable> {
        match objects.secrets.get(&Purpose::Operator) {
            Some(secret) => self.prepared(secret),
            None => Err(Unusable::Missing(names.secret(Purpose::Operator))),
        }
    }

    fn prepared(&mut self, secret: &Arc<Secret>) -> Result<Credentials, Unusable> {
        let version = |it: &Secret| (it.metadata.uid.clone(), it.metadata.resource_version.clone());
        let prepared = self.credentials.take().filter(|it| version(&it.of) == version(secret));
        let prepare = || Prepared { of: Arc::clone(secret), credentials: Credentials::read(secret) };
        self.credentials.insert(prepared.unwrap_or_else(prepare)).credentials.clone()
    }
}

/// Where the certificate of the client port comes from, if there is one.
pub fn source(objects: &Objects, names: &Names) -> Source {
    match needed(objects).contains(&Purpose::Server) {
        true => Source::of(&objects.cluster.spec.security.tls, names),
        false => Source::Operator,
    }
}

fn password_secret(cluster: &EtcdCluster) -> Option<String> {
    let wanted = auth::Wanted::of(cluster.spec.security.auth.as_ref());
    wanted.root_password_secret().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use etcd_operator_core::api::EtcdClusterSpec;
    use etcd_operator_core::auth::PASSWORD_KEY;
    use etcd_operator_core::desired::secret;
    use etcd_operator_core::tls::profiles;
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use crate::certificates::issue;

    const NEEDED: [Purpose; 2] = [Purpose::PeerAuthority, Purpose::Peer];

    fn names() -> Names {
        Names::new("ns", "kv", "cluster.local")
    }

    fn cluster(uid: &str) -> EtcdCluster {
        let mut cluster = EtcdCluster::new("kv", EtcdClusterSpec::default());
        cluster.metadata.uid = Some(uid.into());
        cluster
    }

    fn owned_by(uid: &str, purpose: Purpose) -> Secret {
        secret(purpose, &names(), uid, BTreeMap::new())
    }

    #[test]
    fn a_secret_of_the_operator_is_read_seldom_unless_it_is_missing_or_of_another_owner() {
        let mut secrets = Secrets::default();
        let every = |secrets: &Secrets| {
            let wanted = secrets.ours(&NEEDED, &names(), &cluster("uid"), OURS);
            wanted.into_iter().map(|it| it.every).collect::<Vec<_>>()
        };
        assert_eq!(every(&secrets), [MISSING; 2]);
        // The API server responds to a write with the object.
        for purpose in NEEDED {
            secrets.wrote(purpose, Some(&json!(owned_by("uid", purpose))), &names());
        }
        assert_eq!(every(&secrets), [OURS; 2]);
        secrets.wrote(Purpose::Peer, Some(&json!(owned_by("before", Purpose::Peer))), &names());
        assert_eq!(every(&secrets), [OURS, MISSING]);
    }

    #[test]
    fn a_password_is_read_once_a_minute_and_more_often_while_it_is_missing() {
        let mut secrets = Secrets::default();
        let every = |secrets: &Secrets| secrets.of_users(&Source::Operator, Some("root"))[0].every;
        assert_eq!(every(&secrets), OF_USERS_UNUSABLE);
        let data = BTreeMap::from([(PASSWORD_KEY.to_owned(), ByteString(b"x".to_vec()))]);
        secrets.reader.note("root", Some(Secret { data: Some(data), ..Secret::default() }));
        assert_eq!(every(&secrets), OF_USERS);
        assert!(secrets.of_users(&Source::Operator, None).is_empty());
    }

    #[test]
    fn a_certificate_of_a_user_is_read_once_a_minute_and_more_often_while_it_cannot_be_used() {
        let mut secrets = Secrets::default();
        let source =
            Source::Secrets { certificate: "own".into(), authorities: Some("ca".into()), issuer: None };
        let every = |secrets: &Secrets| secrets.of_users(&source, None).into_iter().map(|it| it.every).max();
        assert_eq!(every(&secrets), Some(OF_USERS_UNUSABLE));
        let verified = secrets.given(&source).expect("it is of a user").verified;
        assert_eq!(verified, Verified { key: Key::Unreadable, chain: Chain::Unknown });
        secrets.verified = Some((source.clone(), Verified { key: Key::Matches, chain: Chain::Complete }));
        assert_eq!(every(&secrets), Some(OF_USERS));
        let other = Source::Secrets { certificate: "other".into(), authorities: None, issuer: None };
        assert_eq!(secrets.given(&other).expect("it is of a user").verified, verified, "of the other Secret");
    }

    #[test]
    fn credentials_are_prepared_once_for_each_content_and_are_not_printed() {
        let profiles = profiles(&names(), Transport::TLS);
        let mut secrets = Secrets::default();
        let issued = |purpose: Purpose, authority: Option<&Secret>| {
            let content = issue(&profiles[&purpose], authority, Timestamp::now()).expect("it is issued");
            secret(purpose, &names(), "uid", content)
        };
        let authority = issued(Purpose::ClientAuthority, None);
        let mut secret = issued(Purpose::Operator, Some(&authority));
        secret.metadata.resource_version = Some("1".into());
        let mut prepared =
            |secret: &Secret| secrets.prepared(&Arc::new(secret.clone())).expect("they can be used");
        let first = prepared(&secret);
        assert!(Arc::ptr_eq(first.0.config(), prepared(&secret).0.config()));
        secret.metadata.resource_version = Some("2".into());
        assert!(!Arc::ptr_eq(first.0.config(), prepared(&secret).0.config()));
        assert_eq!(format!("{first:?}"), "Credentials");
    }
}
