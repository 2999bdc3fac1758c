//! etcd's way back to the previous minor version, as far as operators see it: for the whole cluster at once.

use etcd_operator_core::version::Version;
use etcd_operator_core::version::downgrade::Downgrade;

use crate::etcd::{Release, Server};
use crate::world::World;

/// A downgrade that is enabled.
#[derive(Clone, Copy, Debug)]
pub struct Enabled {
    pub to: Version,
    /// Where in the log the version of the cluster goes back.
    at: usize,
}

impl World {
    pub fn enable_downgrade(&mut self, to: Version) {
        let committed = self.formed().and_then(|cluster| self.truth.clusters.get(&cluster));
        self.downgrade = Some(Enabled { to, at: committed.map_or(0, |committed| committed.log.len()) });
    }

    /// What a member of 3.6 or later writes follows the version of the cluster, as far as the member knows it: the target, or
    /// the lowest that a member runs.
    pub fn storage_version(&self, server: &Server) -> Option<Version> {
        let lowest = self.lowest_version();
        let target = self.downgrade.filter(|enabled| enabled.at <= server.applied.index).map(|it| it.to);
        server.release.reports_storage().then_some(target.or(lowest)).flatten()
    }

    /// etcd does not join a cluster of a later version. Of which version that is, its members decide together.
    pub fn is_below_cluster(&self, release: Release) -> bool {
        self.lowest_version().is_some_and(|lowest| release.version().minor() < lowest)
    }

    fn lowest_version(&self) -> Option<Version> {
        self.servers.values().map(|server| server.release.version().minor()).min()
    }

    pub fn reported_downgrade(&self, release: Release) -> Downgrade {
        match self.downgrade {
            _ if !release.reports_storage() => Downgrade::Unreported,
            Some(enabled) => Downgrade::Enabled(enabled.to),
            None => Downgrade::Disabled,
        }
    }

    /// Every member saves a snapshot when the version of the cluster goes back. The leader ends the downgrade when every member
    /// runs the target.
    pub fn advance_downgrade(&mut self) {
        let Some(Enabled { to, at }) = self.downgrade else { return };
        let older =
            |server: &&mut Server| server.release.version().minor() > to && at <= server.applied.index;
        for server in self.servers.values_mut().filter(older) {
            server.data.snapshot = server.data.snapshot.max(server.applied.index);
        }
        let runs = |server: &Server| server.release.version().minor() == to;
        if !self.servers.is_empty() && self.servers.values().all(runs) {
            self.downgrade = None;
        }
    }
}
