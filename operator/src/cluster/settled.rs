//! A settled cluster is looked at again and again. As long as it looks the same, there is nothing to compute.

use std::time::{Duration, Instant};

use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{Observed, Seen};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};

use super::look::Look;
use crate::caches::Caches;
use crate::kind::Kind;

/// The status has a heartbeat, and whatever else depends on time must have its turn, too.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// What a cluster looked like when there was nothing to do.
pub struct Settled {
    observed: Observed,
    versions: [Option<String>; 6],
    since: Instant,
}

impl Settled {
    pub fn now(look: &Look, caches: &Caches, names: &Names) -> Self {
        Self {
            observed: timeless(&look.observed),
            versions: versions(look, caches, names),
            since: Instant::now(),
        }
    }

    pub fn still_holds(&self, look: &Look, caches: &Caches, names: &Names) -> bool {
        self.since.elapsed() < GOOD_FOR
            && self.versions == versions(look, caches, names)
            && self.observed == timeless(&look.observed)
    }
}

/// Without what changes although nothing happens.
fn timeless(observed: &Observed) -> Observed {
    let mut observed = Observed { now: Timestamp::UNIX_EPOCH, ..observed.clone() };
    for answer in observed.etcd.answers.values_mut() {
        if let Seen::Known(answer) = answer {
            answer.applied_index = 0;
        }
    }
    observed
}

/// Of the objects whose content matters and is not part of the snapshot.
fn versions(look: &Look, caches: &Caches, names: &Names) -> [Option<String>; 6] {
    [
        look.objects.cluster.resource_version(),
        look.objects.set.as_ref().and_then(|set| set.metadata.generation).map(|it| it.to_string()),
        version(&caches.services, names, &names.peer_service()),
        version(&caches.services, names, &names.client_service()),
        version(&caches.services, names, &names.node_port_service()),
        generation(&caches.budgets, names, &names.cluster),
    ]
}

fn version<K: Kind>(store: &Store<K>, names: &Names, name: &str) -> Option<String> {
    store.get(&ObjectRef::new(name).within(&names.namespace))?.resource_version()
}

/// For objects whose status changes by itself.
fn generation<K: Kind>(store: &Store<K>, names: &Names, name: &str) -> Option<String> {
    let object = store.get(&ObjectRef::new(name).within(&names.namespace))?;
    Some(format!("{:?} {:?}", object.uid(), object.meta().generation))
}
