//! The Secrets of one cluster. The operator may neither list nor watch Secrets, so it reads those that the cluster needs by
//! their names, and keeps them for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::names::Names;
use etcd_operator_core::observe::{Objects, ours};
use etcd_operator_core::observed::Taken;
use etcd_operator_core::request::Object;
use etcd_operator_core::tls::{Purpose, Transport};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use super::objects::read;
use crate::credentials::{Credentials, Unusable};

/// Nothing reports that somebody else changed a Secret.
const EVERY: Duration = Duration::from_secs(60);
/// While one is not there, or another object has its name. What we create ourselves need not be read: the API server creates
/// nothing twice.
const INCOMPLETE_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Secrets {
    /// Of the cluster with this UID.
    cluster: Option<String>,
    ours: BTreeMap<Purpose, Arc<Secret>>,
    taken: BTreeSet<Taken>,
    read_at: Option<Instant>,
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
        let (cluster, needed) = (Arc::clone(&objects.cluster), needed(objects));
        if self.is_due(&cluster, &needed, Instant::now()) {
            let reading = needed.iter().map(|&it| read::<Secret>(client, names, Object::Secret(it)));
            self.found(needed.iter().copied().zip(try_join_all(reading).await?), &cluster);
        }
        let there = self.ours.iter().filter(|(it, _)| needed.contains(it));
        objects.secrets = there.map(|(&purpose, secret)| (purpose, Arc::clone(secret))).collect();
        objects.taken.extend(self.taken.iter().cloned());
        Ok(())
    }

    fn is_due(&mut self, cluster: &EtcdCluster, needed: &[Purpose], now: Instant) -> bool {
        let ObjectMeta { uid, deletion_timestamp, .. } = &cluster.metadata;
        if self.cluster != *uid {
            *self = Self { cluster: uid.clone(), ..Self::default() };
        }
        let complete = needed.iter().all(|it| self.ours.contains_key(it));
        let rest = if complete { EVERY } else { INCOMPLETE_EVERY };
        let is_old = |read_at: Instant| now.saturating_duration_since(read_at) >= rest;
        !needed.is_empty() && deletion_timestamp.is_none() && self.read_at.is_none_or(is_old)
    }

    fn found(&mut self, found: impl Iterator<Item = (Purpose, Option<Arc<Secret>>)>, cluster: &EtcdCluster) {
        (self.ours, self.taken, self.read_at) = (BTreeMap::new(), BTreeSet::new(), Some(Instant::now()));
        for (purpose, found) in found {
            if let Some(secret) = ours(Object::Secret(purpose), found, cluster, &mut self.taken) {
                self.keep(purpose, Arc::unwrap_or_clone(secret));
            }
        }
    }

    /// The next observation reads them again.
    pub fn outdate(&mut self) {
        self.read_at = None;
    }

    /// What became of a write: the API server responds with the Secret. Otherwise nothing is certain until the next read.
    pub fn wrote(&mut self, purpose: Purpose, response: Option<&Value>) {
        match response.and_then(|it| Secret::deserialize(it).ok()) {
            Some(secret) => self.keep(purpose, secret),
            None => self.outdate(),
        }
    }

    /// Without what takes more memory than all the rest.
    fn keep(&mut self, purpose: Purpose, mut secret: Secret) {
        secret.metadata.managed_fields = None;
        self.ours.insert(purpose, Arc::new(secret));
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

#[cfg(test)]
mod tests {
    use etcd_operator_core::api::EtcdClusterSpec;
    use etcd_operator_core::desired::secret;
    use etcd_operator_core::observed::Owner;
    use etcd_operator_core::tls::profiles;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;
    use crate::certificates::issue;

    const NEEDED: [Purpose; 2] = [Purpose::PeerAuthority, Purpose::Peer];

    fn names() -> Names {
        Names { namespace: "ns".into(), cluster: "kv".into(), domain: "cluster.local".into() }
    }

    fn cluster(uid: &str) -> EtcdCluster {
        let mut cluster = EtcdCluster::new("kv", EtcdClusterSpec::default());
        cluster.metadata.uid = Some(uid.into());
        cluster
    }

    fn owned_by(uid: &str, purpose: Purpose) -> Option<Arc<Secret>> {
        Some(Arc::new(secret(purpose, &names(), uid, BTreeMap::new())))
    }

    #[test]
    fn secrets_are_read_once_a_minute_and_more_often_only_while_one_is_missing() {
        let mut secrets = Secrets::default();
        let due = |secrets: &mut Secrets, seconds| {
            let read_at = secrets.read_at.unwrap_or_else(Instant::now);
            secrets.is_due(&cluster("uid"), &NEEDED, read_at + Duration::from_secs(seconds))
        };
        assert!(due(&mut secrets, 0));
        assert!(!secrets.is_due(&cluster("uid"), &[], Instant::now()), "no TLS, no read");
        secrets.found(NEEDED.map(|it| (it, None)).into_iter(), &cluster("uid"));
        assert_eq!((due(&mut secrets, 0), due(&mut secrets, 1)), (false, true));
        // The API server responds to a write with the object.
        for purpose in NEEDED {
            secrets.wrote(purpose, Some(&json!(owned_by("uid", purpose).as_deref())));
        }
        assert_eq!((due(&mut secrets, 59), due(&mut secrets, 60)), (false, true));
        secrets.wrote(Purpose::Peer, None);
        assert!(due(&mut secrets, 0));
    }

    #[test]
    fn a_deleted_cluster_reads_none_and_the_next_one_of_its_name_reads_its_own() {
        let (mut secrets, mut first) = (Secrets::default(), cluster("uid"));
        assert!(secrets.is_due(&first, &NEEDED, Instant::now()));
        first.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
        assert!(!secrets.is_due(&first, &NEEDED, Instant::now()));
        secrets.found(NEEDED.map(|it| (it, owned_by("uid", it))).into_iter(), &first);
        assert!(secrets.is_due(&cluster("next"), &NEEDED, Instant::now()));
        assert!(secrets.ours.is_empty());
    }

    #[test]
    fn a_secret_of_another_owner_is_noted_and_its_content_is_not_kept() {
        let mut secrets = Secrets::default();
        let found = [
            (Purpose::PeerAuthority, owned_by("before", Purpose::PeerAuthority)),
            (Purpose::Peer, owned_by("uid", Purpose::Peer)),
            (Purpose::Server, Some(Arc::default())),
        ];
        secrets.found(found.into_iter(), &cluster("uid"));
        assert_eq!(secrets.ours.keys().collect::<Vec<_>>(), [&Purpose::Peer]);
        let taken = |purpose, owner| Taken { object: Object::Secret(purpose), owner };
        let expected =
            [taken(Purpose::PeerAuthority, Owner::PreviousCluster), taken(Purpose::Server, Owner::Other)];
        assert_eq!(secrets.taken, BTreeSet::from(expected));
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
