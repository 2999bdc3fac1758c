//! The checked form of an EtcdBackup: what a run is given, and when runs start.

use kube::ResourceExt;

use crate::api::{self, EtcdBackup, EtcdBackupSpec, Gcs, Local, S3, StorageType};
use crate::backup::inputs::{Place, Store};
use crate::backup::manifest::{Compression, Verification};
use crate::backup::retention::Retention;
use crate::rules::backup::seconds;
use crate::schedule::Schedule;
use crate::validate::{Problem, validate_backup};

/// Where the volume of a Local store is mounted.
pub const VOLUME_DIRECTORY: &str = "/var/lib/etcd-backup";
/// Where the Secret with the authorities of the store is mounted.
pub const STORE_CA_DIRECTORY: &str = "/etc/etcd-backup/store-ca";
pub const STORE_CA_FILE: &str = "/etc/etcd-backup/store-ca/ca.crt";
const FLUSH_INTERVAL_SECONDS: i32 = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// None: one run.
    pub schedule: Option<Schedule>,
    /// How often the archiver stores what was written, in seconds. None: no continuous archive.
    pub flush_interval_seconds: Option<i32>,
    pub is_suspended: bool,
    pub store: Store,
    pub credentials: Vec<Credential>,
    /// The Secret with the authorities of the store.
    pub authorities: Option<String>,
    /// The PersistentVolumeClaim of a Local store.
    pub volume: Option<String>,
    pub compression: Compression,
    pub recipients: Vec<String>,
    pub verification: Verification,
    /// None: every copy stays.
    pub retention: Option<Retention>,
}

/// An environment variable of the program, and the Secret whose key of the same name has its value. The kubelet names the
/// Secret and the key in the status of the pod if they are missing, which it does not for files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub variable: &'static str,
    pub secret: String,
    pub is_optional: bool,
}

impl Intent {
    pub fn of(backup: &EtcdBackup) -> Result<Self, Vec<Problem>> {
        let problems = validate_backup(backup);
        let intent = Self::checked(&backup.spec).filter(|_| problems.is_empty());
        intent.ok_or_else(|| match problems.is_empty() {
            true => vec![Problem {
                field: "spec".into(),
                message: "breaks a rule without a message: report this as a bug, with the spec".into(),
            }],
            false => problems,
        })
    }

    /// Without being asked to by an edit.
    pub fn takes_more_than_one(&self) -> bool {
        self.schedule.is_some() || self.flush_interval_seconds.is_some()
    }

    /// Without a check of the rules.
    pub(crate) fn checked(spec: &EtcdBackupSpec) -> Option<Self> {
        let schedule = match &spec.schedule {
            Some(cron) => Some(Schedule::in_zone(cron, spec.time_zone.as_deref())?),
            None => None,
        };
        let (place, path) = place(spec)?;
        let authorities = spec.s3.as_ref().and_then(|s3| s3.ca_secret.clone());
        Some(Self {
            schedule,
            flush_interval_seconds: spec
                .continuous
                .map(|it| it.flush_interval_seconds.unwrap_or(FLUSH_INTERVAL_SECONDS)),
            is_suspended: spec.suspend,
            store: Store {
                place,
                path: path.unwrap_or_default(),
                ca_file: authorities.as_ref().map(|_| STORE_CA_FILE.into()),
                credentials_directory: None,
                retry_seconds: crate::backup::inputs::RETRY_SECONDS,
            },
            credentials: credentials(spec),
            authorities,
            volume: spec.local.as_ref().map(|local| local.claim_name.clone()),
            compression: if spec.compression { Compression::Zstd } else { Compression::None },
            recipients: spec.encryption.iter().flat_map(|it| it.recipients.clone()).collect(),
            verification: match spec.verification {
                Some(api::Verification::Checksum) => Verification::Checksum,
                Some(api::Verification::ReadBack) | None => Verification::ReadBack,
            },
            retention: retention(spec)?,
        })
    }

    /// As users know the store.
    pub fn location(&self) -> String {
        let place = self
            .volume
            .as_ref()
            .map_or_else(|| self.store.place.location(), |claim| format!("pvc://{claim}"));
        let path = self.store.path.trim_matches('/');
        if path.is_empty() { place } else { format!("{place}/{path}") }
    }
}

/// The namespace of the cluster.
pub fn cluster_namespace(backup: &EtcdBackup) -> String {
    let own = || backup.namespace().unwrap_or_default();
    backup.spec.cluster_namespace.clone().filter(|it| !it.is_empty()).unwrap_or_else(own)
}

fn place(spec: &EtcdBackupSpec) -> Option<(Place, Option<String>)> {
    Some(match spec.storage_type {
        StorageType::S3 => {
            let S3 { bucket, region, endpoint, force_path_style, path, .. } = spec.s3.clone()?;
            (Place::S3 { bucket, region, endpoint, force_path_style }, path)
        }
        StorageType::Gcs => {
            let Gcs { bucket, path, .. } = spec.gcs.clone()?;
            (Place::Gcs { bucket, endpoint: None }, path)
        }
        StorageType::Azure => {
            let api::Azure { account, container, path, .. } = spec.azure.clone()?;
            (Place::Azure { account, container, endpoint: None }, path)
        }
        StorageType::Local => {
            let Local { path, .. } = spec.local.clone()?;
            (Place::Local { directory: VOLUME_DIRECTORY.into() }, path)
        }
    })
}

fn credentials(spec: &EtcdBackupSpec) -> Vec<Credential> {
    let access_key = spec.s3.as_ref().and_then(|it| it.access_key_secret.as_ref());
    let secret_key = spec.s3.as_ref().and_then(|it| it.secret_key_secret.as_ref());
    let of_gcs = spec.gcs.as_ref().and_then(|it| it.credentials_secret.as_ref());
    let of_azure = spec.azure.as_ref().and_then(|it| it.credentials_secret.as_ref());
    let all = [
        ("AWS_ACCESS_KEY_ID", access_key, false),
        ("AWS_SECRET_ACCESS_KEY", secret_key, false),
        // Keys that expire come with one.
        ("AWS_SESSION_TOKEN", access_key, true),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", of_gcs, false),
        ("AZURE_STORAGE_ACCOUNT_KEY", of_azure, false),
    ];
    let given = all.into_iter().filter_map(|(variable, secret, is_optional)| {
        Some(Credential { variable, secret: secret?.clone(), is_optional })
    });
    given.collect()
}

/// The outer None is for one that cannot be read.
fn retention(spec: &EtcdBackupSpec) -> Option<Option<Retention>> {
    let Some(policy) = &spec.retention_policy else { return Some(None) };
    let max_copies = policy.max_backups.map(u32::try_from).transpose().ok()?.filter(|&count| count > 0);
    let max_age_seconds = match policy.max_age.as_deref() {
        Some(age) => Some(seconds(age)?),
        None => None,
    };
    let has_limit = max_copies.is_some() || max_age_seconds.is_some();
    Some(has_limit.then(|| Retention { max_copies, max_age_seconds, ..Retention::default() }))
}
