//! Copies that a cluster waits for before its version changes.

use kube::ResourceExt;

use super::{
    Intent, MAX_RETRIES, Occasion, Seen, Slot, Standing, awaits_edit, generation, is_passing, repeated,
    status,
};
use crate::api::{EtcdBackup, EtcdBackupStatus, RunStatus};
use crate::observed::{CopyResult, RequestedCopy};

/// The run that the cluster waits for, if it waits for one of this EtcdBackup. What a cluster asked for and does not any more is
/// not started.
pub(super) fn slot(seen: &Seen<'_>, intent: &Intent, status: &EtcdBackupStatus) -> Option<Slot> {
    let awaited = seen.cluster?.awaited.as_ref().filter(|_| intent.takes_more_than_one())?;
    let own = (seen.backup.namespace().unwrap_or_default(), seen.backup.name_any());
    if (&awaited.namespace, &awaited.name) != (&own.0, &own.1) {
        return None;
    }
    let occasion = Occasion::Request(awaited.token.clone());
    let previous = status.last_requested_run.as_ref();
    Some(match previous.filter(|run| run.request.as_ref() == Some(&awaited.token)) {
        Some(run) => repeated(seen, status, run, occasion, Standing::Rests),
        None => Slot::Start { occasion, retries: 0 },
    })
}

/// Whether it takes copies without being asked to, so that a new version waits for one.
pub fn takes_copies(backup: &EtcdBackup) -> bool {
    let intent = Intent::of(backup);
    backup.metadata.deletion_timestamp.is_none()
        && !awaits_edit(backup)
        && intent.is_ok_and(|intent| intent.takes_more_than_one() && !intent.is_suspended)
}

/// What became of the last copy that the cluster waited for. A later copy is as good.
pub fn requested(backup: &EtcdBackup) -> Option<RequestedCopy> {
    let status = backup.status.as_ref()?;
    let run = status.last_requested_run.as_ref()?;
    let succeeded = |run: &RunStatus| status::failure_of(run).is_none();
    let later = status.last_run.as_ref().filter(|it| it.job != run.job);
    let result = match status::failure_of(run).filter(|_| !later.is_some_and(succeeded)) {
        None => CopyResult::Taken,
        Some(failure) => {
            let why = format!("{failure}: {}", run.message.clone().unwrap_or_default());
            let retries = u32::try_from(run.retries).unwrap_or(u32::MAX);
            let is_edited = run.generation != generation(backup);
            match is_edited || is_passing(failure) && retries < MAX_RETRIES {
                true => CopyResult::Retrying(why),
                false => CopyResult::Failed(why),
            }
        }
    };
    Some(RequestedCopy { token: run.request.clone()?, result })
}
