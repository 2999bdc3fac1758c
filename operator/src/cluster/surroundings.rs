//! What surrounds the members: Services and the disruption budget. They are corrected whenever they differ, and need no
//! decision.

use etcd_operator_core::api::EtcdCluster;
use etcd_operator_core::desired::{Desired, contained, services};
use etcd_operator_core::names::{FIELD_MANAGER, Names};
use etcd_operator_core::observed::{Observed, Seen};
use etcd_operator_core::round::{SideWrite, SideWrites};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use super::failure::{Failure, is_code};
use super::objects::belongs_to;
use crate::caches::Caches;
use crate::kind::Kind;

pub struct Surroundings<'a> {
    pub client: &'a Client,
    pub caches: &'a Caches,
    pub cluster: &'a EtcdCluster,
    pub desired: &'a Desired<'a>,
}

/// One of them, as failures name it.
pub fn peer_service(names: &Names) -> SideWrite {
    write::<Service>(&names.peer_service())
}

fn write<K: Kind>(name: &str) -> SideWrite {
    SideWrite::Object(format!("{} {name}", K::kind(&())))
}

impl Surroundings<'_> {
    /// Each by itself: one that fails holds up nothing else.
    pub async fn keep(&self, seen: &Observed, writes: &mut SideWrites) {
        let wanted = services(self.desired);
        for service in &wanted {
            self.keep_one(&self.caches.services, service, writes).await;
        }
        let outside = self.desired.names.node_port_service();
        if !wanted.iter().any(|service| service.name_any() == outside) {
            self.remove_one(&self.caches.services, &outside, writes).await;
        }
        // The budget follows the voters that are there, so it changes only when they are known.
        let voters = match &seen.etcd.members {
            Seen::Known(members) => members.voters().count(),
            Seen::Unknown(_) if seen.pods.is_empty() => 0,
            Seen::Unknown(_) => return,
        };
        match self.desired.disruption_budget(voters) {
            Some(budget) => self.keep_one(&self.caches.budgets, &budget, writes).await,
            None => self.remove_one(&self.caches.budgets, &self.desired.names.cluster, writes).await,
        }
    }

    async fn keep_one<K: Kind>(&self, store: &Store<K>, wanted: &K, writes: &mut SideWrites) {
        let write = write::<K>(&wanted.name_any());
        if writes.is_due(&write, Timestamp::now()) {
            let kept = self.put(store, wanted).await;
            super::record(writes, write, kept);
        }
    }

    async fn remove_one<K: Kind>(&self, store: &Store<K>, name: &str, writes: &mut SideWrites) {
        let write = write::<K>(name);
        if writes.is_due(&write, Timestamp::now()) {
            let removed = self.remove(store, name).await;
            super::record(writes, write, removed);
        }
    }

    async fn put<K: Kind>(&self, store: &Store<K>, wanted: &K) -> Result<(), Failure> {
        let name = wanted.name_any();
        let what = format!("{} {name}", K::kind(&()));
        let objects = self.api::<K>();
        let written = match self.cached(store, &name) {
            Some(there) if !belongs_to(&*there, self.cluster) => {
                return Err(Failure::in_the_way(&*there, self.cluster));
            }
            Some(there) if is_as_wanted(wanted, &*there) => return Ok(()),
            Some(_) => {
                let parameters = PatchParams::apply(FIELD_MANAGER).force();
                objects.patch(&name, &parameters, &Patch::Apply(wanted)).await
            }
            None => {
                let parameters =
                    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
                match objects.create(&parameters, wanted).await {
                    // Either the cache is old, or somebody else created it without our label.
                    Err(error) if is_code(&error, 409) => match objects.get_opt(&name).await {
                        Ok(Some(there)) if !belongs_to(&there, self.cluster) => {
                            return Err(Failure::in_the_way(&there, self.cluster));
                        }
                        Ok(_) => return Ok(()),
                        Err(error) => Err(error),
                    },
                    written => written,
                }
            }
        };
        written.map(drop).map_err(|source| Failure::Kubernetes { what: format!("write {what}"), source })
    }

    async fn remove<K: Kind>(&self, store: &Store<K>, name: &str) -> Result<(), Failure> {
        let there = self.cached(store, name).filter(|there| belongs_to(&**there, self.cluster));
        let Some(there) = there.filter(|there| there.meta().deletion_timestamp.is_none()) else {
            return Ok(());
        };
        let preconditions = Preconditions { uid: there.uid(), resource_version: None };
        let parameters = DeleteParams::background().preconditions(preconditions);
        match self.api::<K>().delete(name, &parameters).await {
            Err(error) if !is_code(&error, 404) && !is_code(&error, 409) => {
                Err(Failure::Kubernetes { what: format!("delete {} {name}", K::kind(&())), source: error })
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn cached<K: Kind>(&self, store: &Store<K>, name: &str) -> Option<std::sync::Arc<K>> {
        store.get(&ObjectRef::new(name).within(&self.desired.names.namespace))
    }

    fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.desired.names.namespace)
    }
}

fn is_as_wanted(wanted: &impl Serialize, there: &impl Serialize) -> bool {
    let value = |object: serde_json::Result<serde_json::Value>| object.unwrap_or_default();
    contained(&value(serde_json::to_value(wanted)), &value(serde_json::to_value(there)))
}
