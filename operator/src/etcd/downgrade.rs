//! etcd's downgrade of the whole cluster to the previous minor version.

use etcd_client::{DowngradeInfo, DowngradeOptions};
use etcd_operator_core::version::Version;
use etcd_operator_core::version::downgrade::Downgrade;

use super::{CHANGE_DEADLINE, Error, Member};

impl Member {
    /// From now on the cluster behaves as the target, and members rewrite their data for it.
    pub async fn enable_downgrade(&self, to: Version) -> Result<(), Error> {
        let target = DowngradeOptions::Enable(to.minor().to_string());
        self.downgrade("enable a downgrade", target).await
    }

    /// A response proves nothing: from 3.6 on, etcd reports success even if it failed. The next status shows it.
    pub async fn cancel_downgrade(&self) -> Result<(), Error> {
        self.downgrade("cancel the downgrade", DowngradeOptions::Cancel).await
    }

    async fn downgrade(&self, call: &'static str, options: DowngradeOptions) -> Result<(), Error> {
        let mut maintenance = self.client.maintenance_client();
        self.within(CHANGE_DEADLINE, call, maintenance.downgrade(options)).await.map(drop)
    }
}

/// Of a status. A target that cannot be read is not taken for none.
pub(super) fn reported(info: Option<&DowngradeInfo>) -> Downgrade {
    match info {
        None => Downgrade::Unreported,
        Some(info) if info.enabled() => {
            Version::parse(info.target_version()).map_or(Downgrade::Unreported, Downgrade::Enabled)
        }
        Some(_) => Downgrade::Disabled,
    }
}
