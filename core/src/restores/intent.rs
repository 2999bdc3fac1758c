//! The checked form of an EtcdRestore: where the copy is, which one, and how it is restored.

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{EtcdBackup, EtcdBackupSpec, EtcdRestore, RestoreSource, RevisionBump};
use crate::backup::layout::{CopyName, cluster_id};
use crate::names::{ALLOW_FROM_ANNOTATION, reason};
use crate::observed::ClusterId;
use crate::runs::{self, Failed, allowed};
use crate::validate::{Problem, validate_backup, validate_restore};

/// Above every write since the copy, unless there were more than these.
const BUMP: u64 = 1_000_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    pub store: runs::Intent,
    /// None: the only one that has copies in the store.
    pub cluster: Option<ClusterId>,
    pub choice: Choice,
    /// The Secret with the age identity.
    pub identity: Option<String>,
    pub bump_revision: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Newest,
    Named(CopyName),
    /// What the archive has between copies, too.
    Revision(i64),
    Time(Timestamp),
}

/// Why nothing is restored now.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Obstacle {
    Invalid(Vec<Problem>),
    /// Also a reason of [`reason`]: it blocks the restore until a user changes something.
    Blocks(&'static str, String),
    Waits(&'static str, String),
}

impl Intent {
    pub(super) fn of(restore: &EtcdRestore, backup: Option<&EtcdBackup>) -> Result<Self, Obstacle> {
        let problems = validate_restore(restore);
        if !problems.is_empty() {
            return Err(Obstacle::Invalid(problems));
        }
        let spec = &restore.spec;
        let choice = choice(restore)?;
        let (store, cluster) = match &spec.source {
            Some(source) => of_source(restore, source)?,
            None => {
                let backup = granted(restore, backup)?;
                let store = runs::Intent::of(backup).map_err(|problems| {
                    let problems: Vec<_> = problems.iter().map(Problem::to_string).collect();
                    let message =
                        format!("EtcdBackup {} is invalid: {}", backup.name_any(), problems.join("; "));
                    Obstacle::Blocks(reason::INVALID_SPEC, message)
                })?;
                let cluster = taken_of(backup, &choice);
                (store, cluster)
            }
        };
        let bump = spec.revision_bump != Some(RevisionBump::Disabled);
        let bump_revision = bump.then_some(BUMP);
        Ok(Self { store, cluster, choice, identity: spec.identity_secret.clone(), bump_revision })
    }
}

/// Where the EtcdBackup is, if one is named.
pub fn backup_of(restore: &EtcdRestore) -> Option<(String, String)> {
    let own = || restore.namespace().unwrap_or_default();
    let namespace = restore.spec.backup_namespace.clone().filter(|it| !it.is_empty()).unwrap_or_else(own);
    Some((namespace, restore.spec.backup_name.clone()?))
}

fn choice(restore: &EtcdRestore) -> Result<Choice, Obstacle> {
    let spec = &restore.spec;
    if let Some(revision) = spec.to_revision {
        return Ok(Choice::Revision(revision));
    }
    if let Some(time) = &spec.to_time {
        return Ok(Choice::Time(time.0));
    }
    let Some(name) = &spec.copy_name else { return Ok(Choice::Newest) };
    name.parse().map(Choice::Named).map_err(|_| {
        let message = format!(
            "{name} is not the name of a copy: use a name of status.copies of the EtcdBackup, such as \
             20261118T020304Z-00000000000000ab"
        );
        Obstacle::Invalid(vec![Problem { field: "spec.copyName".into(), message }])
    })
}

/// The EtcdBackup, if the EtcdRestore may refer to it: otherwise anybody could read the data of others.
fn granted<'a>(restore: &EtcdRestore, backup: Option<&'a EtcdBackup>) -> Result<&'a EtcdBackup, Obstacle> {
    let (namespace, name) = backup_of(restore).unwrap_or_default();
    let Some(backup) = backup else {
        let message = format!(
            "EtcdBackup {namespace}/{name} does not exist: correct backupName, or use source if only the store is left"
        );
        return Err(Obstacle::Waits(reason::BACKUP_NOT_FOUND, message));
    };
    let own = restore.namespace().unwrap_or_default();
    if own != namespace && !allowed(backup).any(|it| it == own) {
        let message = format!(
            "EtcdBackup {name} does not allow restores from namespace {own}; to allow them: kubectl annotate -n {namespace} \
             etcdbackup {name} {ALLOW_FROM_ANNOTATION}={own}"
        );
        return Err(Obstacle::Blocks(reason::NAMESPACE_NOT_ALLOWED, message));
    }
    Ok(backup)
}

/// The cluster whose copies they are, as the locations of copies have it: `.../CLUSTER-ID/data/FILE`.
fn taken_of(backup: &EtcdBackup, choice: &Choice) -> Option<ClusterId> {
    let copies = &backup.status.as_ref()?.copies;
    let is_named = |name: &str| matches!(choice, Choice::Named(wanted) if wanted.as_str() == name);
    let named = copies.iter().find(|copy| is_named(&copy.name));
    let copy = named.or_else(|| copies.first())?;
    cluster_id(copy.location.rsplit('/').nth(2)?)
}

/// The rules of an EtcdBackup hold for its store, too.
fn of_source(
    restore: &EtcdRestore,
    source: &RestoreSource,
) -> Result<(runs::Intent, Option<ClusterId>), Obstacle> {
    let RestoreSource { storage_type, cluster_id: id, s3, gcs, azure, local } = source.clone();
    let spec = EtcdBackupSpec {
        cluster_name: restore.spec.cluster_name.clone(),
        cluster_namespace: None,
        storage_type,
        schedule: None,
        time_zone: None,
        continuous: None,
        suspend: false,
        s3,
        gcs,
        azure,
        local,
        retention_policy: None,
        compression: false,
        encryption: None,
        verification: None,
    };
    let mut problems = validate_backup(&EtcdBackup::new(&restore.name_any(), spec.clone()));
    for problem in &mut problems {
        problem.field = problem.field.replacen("spec", "spec.source", 1);
    }
    let cluster = id.as_deref().and_then(cluster_id);
    if id.is_some() && cluster.is_none() {
        let message = "is not an ID as etcdctl prints it, such as cdf818194e3a8c32".into();
        problems.push(Problem { field: "spec.source.clusterID".into(), message });
    }
    let store = runs::Intent::checked(&spec).filter(|_| problems.is_empty());
    store.map(|store| (store, cluster)).ok_or(Obstacle::Invalid(problems))
}

/// The result of an attempt that is final.
pub(super) fn final_failure(obstacle: Obstacle) -> Failed {
    match obstacle {
        Obstacle::Invalid(problems) => {
            let problems: Vec<_> = problems.iter().map(Problem::to_string).collect();
            Failed::new(reason::INVALID_SPEC, &problems.join("; "))
        }
        Obstacle::Blocks(reason, message) | Obstacle::Waits(reason, message) => Failed::new(reason, &message),
    }
}
