//! Compares the data of members, beside the rounds: a member reads all of its data for that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_core::observed::{Comparison, MemberId, Ordinal};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::ask::Asked;
use crate::etcd::Member;
use crate::telemetry::chain;

/// For each member.
const DEADLINE: Duration = Duration::from_secs(120);

/// When it ended, and what it returned if all members responded.
pub type Completed = (Timestamp, Option<Comparison>);

pub struct Comparing {
    wake: Arc<Notify>,
    /// At most one. It ends with the worker.
    running: JoinSet<Completed>,
}

impl Comparing {
    pub fn new(wake: Arc<Notify>) -> Self {
        Self { wake, running: JoinSet::new() }
    }

    /// The one that has completed since this was called last, if any.
    pub fn completed(&mut self) -> Option<Completed> {
        let ended = self.running.try_join_next()?;
        Some(ended.unwrap_or_else(|_| (Timestamp::now(), None)))
    }

    /// Unless one is running.
    pub fn begin(&mut self, asked: &Asked, members: &[(Ordinal, MemberId)]) {
        let connection =
            |(ordinal, id): &(Ordinal, MemberId)| Some((*id, Arc::clone(asked.reached.get(ordinal)?)));
        let revision = members.iter().filter_map(|(ordinal, _)| asked.revisions.get(ordinal)).min();
        let members: Option<Vec<_>> = members.iter().map(connection).collect();
        let (Some(members), Some(&revision), true) = (members, revision, self.running.is_empty()) else {
            return;
        };
        let wake = Arc::clone(&self.wake);
        self.running.spawn(async move {
            let completed = compare(members, revision).await;
            wake.notify_one();
            completed
        });
    }
}

/// One after the other: while a member reads, its writes can wait.
async fn compare(members: Vec<(MemberId, Arc<Member>)>, revision: i64) -> Completed {
    let (begun, mut returned) = (Timestamp::now(), BTreeMap::new());
    for (id, member) in members {
        let hash = member.hash(revision, DEADLINE).await;
        if let Err(error) = &hash {
            tracing::debug!(error = %chain(error), "data not compared");
        }
        let failed = hash.is_err();
        returned.insert(id, hash.ok());
        if failed {
            break;
        }
    }
    (Timestamp::now(), Comparison::of(begun, revision, &returned))
}
