//! The objects of one kind, from as many lists as are watched.

use std::sync::Arc;

use kube::runtime::reflector::store::WriterDropped;
use kube::runtime::reflector::{ObjectRef, Store};

use crate::kind::Kind;

/// One store for each list. A list that begins again replaces what its store has, so they cannot share one.
#[derive(Clone)]
pub struct Stores<K: Kind>(Vec<Store<K>>);

impl<K: Kind> Stores<K> {
    pub(super) fn new(stores: Vec<Store<K>>) -> Self {
        Self(stores)
    }

    pub fn get(&self, object: &ObjectRef<K>) -> Option<Arc<K>> {
        self.0.iter().find_map(|store| store.get(object))
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.0.iter().flat_map(Store::state).collect()
    }

    pub fn all_that(&self, is_wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.0.iter().flat_map(|store| store.state_filter(&is_wanted)).collect()
    }

    /// Completes when every list has been read once.
    pub async fn filled(&self) -> Result<(), WriterDropped> {
        for store in &self.0 {
            store.wait_until_ready().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn store_of(namespace: &str) -> Store<Pod> {
        let (store, mut writer) = reflector::store();
        let pod = json!({"metadata": {"name": "kv-0", "namespace": namespace}});
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value(pod).expect("it is a pod")));
        store
    }

    #[test]
    fn objects_of_every_namespace_are_found() {
        let stores = Stores::new(["a", "b"].map(store_of).to_vec());
        let get = |namespace: &str| stores.get(&ObjectRef::new("kv-0").within(namespace));
        for namespace in ["a", "b"] {
            assert_eq!(get(namespace).and_then(|pod| pod.namespace()).as_deref(), Some(namespace));
            let there = stores.all_that(|pod| pod.namespace().as_deref() == Some(namespace));
            assert_eq!(there.len(), 1, "{namespace}");
        }
        assert_eq!((get("c"), stores.all().len()), (None, 2));
    }
}
