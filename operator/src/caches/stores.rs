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
