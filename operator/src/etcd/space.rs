//! Space in the databases of members, and alarms.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions, StatusResponse};
use etcd_operator_core::observed::{AlarmKind, File, Space};

use super::{CHANGE_DEADLINE, Error, Member};

/// etcd responds when the member that is called has freed the pages.
const COMPACTION_DEADLINE: Duration = Duration::from_secs(60);
/// The whole file is written anew. A member that takes longer completes nevertheless; its next status shows the size.
const DEFRAGMENTATION_DEADLINE: Duration = Duration::from_secs(120);
/// Of the lease that a write is tried with.
const TRIAL_SECONDS: i64 = 60;

impl Member {
    pub async fn compact(&self, revision: i64) -> Result<(), Error> {
        let mut kv = self.client.kv_client();
        let compacted = kv.compact(revision, Some(CompactionOptions::new().with_physical()));
        match self.within(COMPACTION_DEADLINE, "compact its history", compacted).await {
            Err(Error::Refused { reason, .. }) if reason.contains("has been compacted") => Ok(()),
            done => done.map(drop),
        }
    }

    /// Of this member alone, which does not serve meanwhile.
    pub async fn defragment(&self) -> Result<(), Error> {
        let mut maintenance = self.client.maintenance_client();
        self.within(DEFRAGMENTATION_DEADLINE, "defragment its database", maintenance.defragment())
            .await
            .map(drop)
    }

    /// Of all members, and then tries whether a write passes: etcd treats a lease like a key, and it leaves no revision.
    pub async fn disarm(&self, kind: AlarmKind) -> Result<(), Error> {
        let mut maintenance = self.client.maintenance_client();
        let call = "report its alarms";
        let type_ = match kind {
            AlarmKind::NoSpace => AlarmType::Nospace,
            AlarmKind::Corrupt => AlarmType::Corrupt,
        };
        let asked = maintenance.alarm(AlarmAction::Get, type_, None);
        let raised = self.within(CHANGE_DEADLINE, call, asked).await?;
        for alarm in raised.alarms().iter().filter(|it| it.alarm() == type_) {
            let mut of_member = AlarmOptions::new();
            of_member.with_member(alarm.member_id());
            let disarmed = maintenance.alarm(AlarmAction::Deactivate, type_, Some(of_member));
            self.within(CHANGE_DEADLINE, "disarm an alarm", disarmed).await?;
        }
        let mut leases = self.client.lease_client();
        let granted = leases.grant(TRIAL_SECONDS, None);
        let lease = self.within(CHANGE_DEADLINE, "grant a lease", granted).await?;
        self.within(CHANGE_DEADLINE, "revoke a lease", leases.revoke(lease.id())).await.map(drop)
    }
}

/// None if it is not known.
pub(super) fn file(status: &StatusResponse) -> Option<File> {
    let bytes = |size: i64| u64::try_from(size).ok().filter(|size| *size > 0);
    Some(File { size: bytes(status.db_size())?, in_use: bytes(status.raft_used_db_size())? })
}

/// None if the size is not known.
pub(super) fn reported(status: &StatusResponse, revision: i64) -> Option<Space> {
    let bytes = |size: i64| u64::try_from(size).ok().filter(|size| *size > 0);
    Some(Space { size: bytes(status.db_size())?, quota: bytes(status.db_size_quota()), revision })
}
