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
        at: "storage.size",
        // What is written as a whole number; the rule below has the rest.
        server: Server::Cel(
            "!string(self).matches('^[+]?0*([0-9]{1,8}|[0-9]{1,5}(k|Ki)|([0-9]{1,2}|[1-4][0-9]{2}|50[0-9]|51[01])Mi?)$')",
        ),
        message: "must be 512Mi or more: etcd's log alone can take 400 MB",
        broken: |spec| is_too_small(&spec.storage.size) && is_plainly_too_small(&spec.storage.size),
    },
    Rule {
        at: "storage.size",
        server: Server::Nothing,
        message: "must be 512Mi or more, also as a fraction or in another unit: etcd's log alone can take 400 MB",
        broken: |spec| is_too_small(&spec.storage.size) && !is_plainly_too_small(&spec.storage.size),
    },
    Rule {
        at: "storage.storageClassName",
        server: Server::Schema,
        message: "must be the name of a StorageClass, with at most 253 characters",
        broken: |spec| spec.storage.storage_class_name.as_ref().is_some_and(|name| name.len() > 253),
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
        message: "spec.resources.requests.storage must be a quantity above zero such as 10Gi",
        broken: |spec| spec.storage.requested_by_template().is_some_and(|it| it.nano().unwrap_or(0) == 0),
    },
    Rule {
        at: "storage.volumeClaimTemplate",
        server: Server::Nothing,
        message: "spec.resources.requests.storage must be 512Mi or more: etcd's log alone can take 400 MB",
        broken: |spec| {
            let requested = spec.storage.requested_by_template();
            spec.storage.has_default_size() && requested.is_some_and(|requested| is_too_small(&requested))
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

pub(super) const CHANGES: &[ChangeRule<EtcdClusterSpec>] = &[ChangeRule {
    at: "storage",
    cel: "has(self.volumeClaimTemplate) == has(oldSelf.volumeClaimTemplate) && \
              (!has(self.volumeClaimTemplate) || self.volumeClaimTemplate == oldSelf.volumeClaimTemplate)",
    message: "volumeClaimTemplate cannot be changed, because the volumes exist already: restore the \
            previous value, or create a new cluster; storage.size and storage.storageClassName can be changed, also \
            where the template has them",
    broken: |old, new| old.storage.volume_claim_template != new.storage.volume_claim_template,
}];

/// Six files of log of 64 MB each, now and then seven (etcd keeps five, allocates the next one in advance and removes
/// old ones every 30 s), a small database and the file system itself. Three members of etcd 3.5.21 on ext4, compacted all
/// the time: 128 MiB hold two writes of 100 kB, 256 MiB 160 MB of writes; 512 MiB hold any number at 1.5 MB/s, and 32 MiB
/// stay free.
pub(super) const LEAST_BYTES: u64 = 512 << 20;

/// What is no size at all breaks another rule.
fn is_too_small(size: &Quantity) -> bool {
    size.bytes().is_some_and(|bytes| (1..LEAST_BYTES).contains(&bytes))
}

/// As the CEL above: a whole number of bytes, kilobytes or megabytes with few digits.
fn is_plainly_too_small(size: &Quantity) -> bool {
    let text = size.to_string();
    let number = text.trim_start_matches('+').trim_start_matches('0');
    let end = number.find(|it: char| !it.is_ascii_digit()).unwrap_or(number.len());
    let (digits, unit) = number.split_at(end);
    match unit {
        "" => digits.len() <= 8,
        "k" | "Ki" => digits.len() <= 5,
        "M" | "Mi" => digits.parse().is_ok_and(|megabytes: u64| megabytes < LEAST_BYTES >> 20),
        _ => false,
    }
}

fn claim(spec: &EtcdClusterSpec) -> Option<&PersistentVolumeClaimSpec> {
    Some(&spec.storage.volume_claim_template.as_ref()?.spec)
}
