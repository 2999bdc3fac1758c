//! etcd's way back to the previous minor version, as far as operators see it: for the whole cluster at once.

use etcd_operator_core::version::Version;
use etcd_operator_core::version::downgrade::Downgrade;

use crate::etcd::Release;
use crate::world::World;

impl World {
    /// What a member of 3.6 writes follows the version of the cluster: the target, or the lowest that a member runs.
    pub fn storage_version(&self, release: Release) -> Option<Version> {
        let lowest = self.servers.values().map(|server| server.release.version().minor()).min();
        (release == Release::V3_6).then_some(self.downgrade.or(lowest)).flatten()
    }

    pub fn reported_downgrade(&self, release: Release) -> Downgrade {
        match self.downgrade {
            _ if release != Release::V3_6 => Downgrade::Unreported,
            Some(to) => Downgrade::Enabled(to),
            None => Downgrade::Disabled,
        }
    }

    /// The leader ends it when every member runs the target.
    pub fn end_downgrade(&mut self) {
        let runs = |to: Version| self.servers.values().all(|server| server.release.version().minor() == to);
        if !self.servers.is_empty() && self.downgrade.is_some_and(runs) {
            self.downgrade = None;
        }
    }
}
