//! Before the first member restarts for another version, a copy of the data is taken, if an EtcdBackup takes more than one.
//! One is enough: the first EtcdBackup by name, and the next one if that fails. The status of the EtcdBackup says what became
//! of it. Nothing else records it.

use super::{Next, Roll};
use crate::observed::{Backup, CopyResult};
use crate::plan::{Refusal, WaitingOn};

/// Enough of the UID of the cluster that one of the same name has other tokens.
const UID_DIGITS: usize = 8;

impl<'a> Roll<'a> {
    /// What the copy is waited for; none if there is one, or if none is needed. A cluster one member of which serves with the
    /// wanted version waits for nothing: the rollout has begun, and to stop it between two versions protects nothing.
    pub(super) fn before_first(&self) -> Option<Next<'a>> {
        if self.pods().any(|(ordinal, _)| self.serves_as_wanted(ordinal)) {
            return None;
        }
        let token = self.token();
        let backups = self.facts.seen.backups.iter().filter(|(_, backup)| backup.takes_copies);
        let all: Vec<_> = backups.map(|(name, backup)| (name, backup, result(backup, &token))).collect();
        if all.iter().any(|(.., result)| *result == Some(&CopyResult::Taken)) {
            return None;
        }
        let untried = all.iter().find(|(.., result)| result.is_none());
        if let Some((name, backup, _)) = untried {
            let (backup, problem) = ((*name).clone(), backup.waits.clone());
            return Some(Next::Wait(WaitingOn::Copy { backup, token, problem }));
        }
        let retrying = all.iter().find_map(|(name, _, result)| match result {
            Some(CopyResult::Retrying(problem)) => Some((*name, problem)),
            _ => None,
        });
        if let Some((backup, problem)) = retrying {
            let (backup, problem) = (backup.clone(), Some(problem.clone()));
            return Some(Next::Wait(WaitingOn::Copy { backup, token, problem }));
        }
        all.iter().find_map(|(name, _, result)| match result {
            Some(CopyResult::Failed(problem)) => {
                Some(Next::Refuse(Refusal::NoCopy { backup: (*name).clone(), problem: problem.clone() }))
            }
            _ => None,
        })
    }

    /// The same until the spec is edited.
    fn token(&self) -> String {
        let cluster = &self.facts.seen.cluster;
        let uid: String = cluster.uid.chars().take(UID_DIGITS).collect();
        format!("{uid}-{}", cluster.generation.unwrap_or_default())
    }
}

/// Of the copy with this token, if it is decided.
fn result<'a>(backup: &'a Backup, token: &str) -> Option<&'a CopyResult> {
    backup.requested.as_ref().filter(|it| it.token == token).map(|it| &it.result)
}
