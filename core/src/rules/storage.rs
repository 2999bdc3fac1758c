//! Rules about volumes.

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;

use super::{ChangeRule, Rule, Server, syntax};
use crate::api::{EtcdClusterSpec, Quantity, StopPolicy};

pub(super) const RULES: &[Rule<EtcdClusterSpec>] = &[
    Rule {
        at: "storage.size",
        server: Server::Schema,
        message: "must be a quantity such as 10Gi",
        broken: |spec| match &spec.storage.size {
            size @ Quantity::Text(text) => size.nano().is_none() || text.len() > 32,
            Quantity::Number(_) => false,
        },
    },
    Rule {
        at: "storage.size",
        // The first digit that is not zero, if there is one.
        server: Server::Cel("string(self).matches('^[+]?[0.]*[1-9]')"),
        message: "must be more than zero: 10Gi is usual",
        broken: |spec| match &spec.storage.size {
            Quantity::Number(number) => *number <= 0,
            size @ Quantity::Text(_) => size.nano() == Some(0),
        },
    },
    Rule {
        at: "storage.storageClassName",
        server: Server::Schema,
        message: "must be the name of a StorageClass, with at most 253 characters",
        broken: |spec| spec.storage.storage_class_name.as_ref().is_some_and(|name| name.len() > 253),
    },
    Rule {
        at: "storage",
        server: Server::Cel(
            "!has(self.storageClassName) || !has(self.volumeClaimTemplate) || \
             !has(self.volumeClaimTemplate.spec.storageClassName) || \
             self.storageClassName == self.volumeClaimTemplate.spec.storageClassName",
        ),
        message: "storageClassName and volumeClaimTemplate.spec.storageClassName differ: keep one of them",
        broken: |spec| {
            let Some(beside) = &spec.storage.storage_class_name else { return false };
            claim(spec).and_then(|claim| claim.storage_class_name.as_ref()).is_some_and(|it| it != beside)
        },
    },
    Rule {
        at: "storage.volumeClaimTemplate",
        server: Server::Cel("!has(self.spec.volumeMode) || self.spec.volumeMode == 'Filesystem'"),
        message: "etcd needs a file system: remove spec.volumeMode or set it to Filesystem",
        broken: |spec| {
            claim(spec).and_then(|claim| claim.volume_mode.as_ref()).is_some_and(|mode| mode != "Filesystem")
        },
    },
    Rule {
        at: "storage.volumeClaimTemplate",
        server: Server::Nothing,
        message: "etcd needs write access: remove spec.accessModes or add ReadWriteOnce",
        broken: |spec| {
            claim(spec)
                .and_then(|claim| claim.access_modes.as_ref())
                .is_some_and(|modes| !modes.iter().any(|mode| mode.starts_with("ReadWrite")))
        },
    },
    Rule {
        at: "storage.volumeClaimTemplate",
        server: Server::Nothing,
        message: "spec.resources.requests.storage must be a quantity above zero such as 10Gi, and equal to \
            storage.size if both are set: keep one of them",
        broken: |spec| {
            spec.storage.requested_by_template().is_some_and(|requested| {
                let differs = requested.nano() != spec.storage.size.nano();
                requested.nano().unwrap_or(0) == 0 || differs && !spec.storage.has_default_size()
            })
        },
    },
    Rule {
        at: "storage.volumeClaimTemplate",
        server: Server::Nothing,
        message: "metadata has an invalid label or annotation: keys must look like example.org/name, label \
            values have at most 63 letters, digits, dots, dashes and underscores",
        broken: |spec| {
            let template = spec.storage.volume_claim_template.as_ref();
            template.and_then(|it| it.metadata.as_ref()).is_some_and(|metadata| {
                !metadata
                    .labels
                    .iter()
                    .all(|(key, value)| syntax::is_key(key) && syntax::is_label_value(value))
                    || !metadata.annotations.keys().all(|key| syntax::is_key(key))
            })
        },
    },
    Rule {
        at: "storage.onStop",
        server: Server::Cel("self != 'Archive'"),
        message: "Archive requires backups, which this version does not implement: use Retain, RetainAll or Delete",
        broken: |spec| spec.storage.on_stop == StopPolicy::Archive,
    },
];

pub(super) const CHANGES: &[ChangeRule<EtcdClusterSpec>] = &[
    ChangeRule {
        at: "storage.size",
        cel: "self == oldSelf",
        message: "cannot be changed: this version cannot expand volumes, and volumes cannot shrink; restore the \
            previous value, or create a new cluster with the size that you need",
        broken: |old, new| old.storage.size != new.storage.size,
    },
    ChangeRule {
        at: "storage",
        cel: "has(self.storageClassName) == has(oldSelf.storageClassName) && \
              (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
        message: "storageClassName cannot be changed, because volumes cannot move to another class: restore the \
            previous value, or create a new cluster",
        broken: |old, new| old.storage.storage_class_name != new.storage.storage_class_name,
    },
    ChangeRule {
        at: "storage",
        cel: "has(self.volumeClaimTemplate) == has(oldSelf.volumeClaimTemplate) && \
              (!has(self.volumeClaimTemplate) || self.volumeClaimTemplate == oldSelf.volumeClaimTemplate)",
        message: "volumeClaimTemplate cannot be changed, because the volumes exist already: restore the \
            previous value, or create a new cluster",
        broken: |old, new| old.storage.volume_claim_template != new.storage.volume_claim_template,
    },
];

fn claim(spec: &EtcdClusterSpec) -> Option<&PersistentVolumeClaimSpec> {
    Some(&spec.storage.volume_claim_template.as_ref()?.spec)
}
