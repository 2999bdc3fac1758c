//! The numbers of backups. They belong to the task that takes care of all EtcdBackups, and disappear with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use etcd_operator_core::api::EtcdBackup;
use etcd_operator_core::metrics::{Sample, Scope, of_backup};
use etcd_operator_core::runs::cluster_namespace;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::clusters::lock;
use super::{Metrics, series};
use crate::caches::Key;

#[derive(Clone, Debug, Default)]
pub struct Backups(Arc<Mutex<Weak<BackupMeter>>>);

/// The numbers of all EtcdBackups.
#[derive(Debug, Default)]
pub struct BackupMeter(Mutex<BTreeMap<Key, Numbers>>);

/// The values of the labels of [`Scope::Backup`], and the samples.
type Numbers = ([String; 4], Vec<Sample>);

impl Metrics {
    /// Its series are served until it is dropped.
    pub fn backup_meter(&self) -> Arc<BackupMeter> {
        let meter = Arc::default();
        *lock(&self.backups.0) = Arc::downgrade(&meter);
        meter
    }
}

impl BackupMeter {
    pub fn reported(&self, key: &Key, backup: &EtcdBackup) {
        let Key { namespace, name } = key.clone();
        let labels = [cluster_namespace(backup), backup.spec.cluster_name.clone(), namespace, name];
        lock(&self.0).insert(key.clone(), (labels, of_backup(backup)));
    }

    pub fn deleted(&self, key: &Key) {
        lock(&self.0).remove(key);
    }
}

impl Collector for Backups {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let meter = lock(&self.0).upgrade();
        let backups: Vec<_> =
            meter.iter().flat_map(|it| lock(&it.0).values().cloned().collect::<Vec<_>>()).collect();
        series::encode(&mut encoder, Scope::Backup, &backups)
    }
}
