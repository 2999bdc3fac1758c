//! One segment on its way into the store.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use age::x25519::Recipient;
use etcd_operator_core::backup::inputs::Inputs;
use etcd_operator_core::backup::report::{Failure, Reason};
use futures::StreamExt;
use jiff::Timestamp;

use super::filling::{End, Full};
use super::progress::{Shared, lock};
use crate::error::Error;
use crate::etcd::Member;
use crate::record::Lease;
use crate::segments::{Put, Segments};

/// etcd is asked for so many leases at once, and for all of a segment for so long.
const LEASES_AT_ONCE: usize = 8;
const LEASES_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub struct Upload {
    pub segments: Segments,
    pub inputs: Inputs,
    pub recipients: Vec<Recipient>,
    pub after: End,
    pub member: Member,
    pub etcd_version: String,
    /// For how long a store that does not respond is asked again.
    pub patience: Duration,
    /// Gets what keeps it waiting.
    pub progress: Shared,
}

pub enum Outcome {
    /// The end of the chain is this now, and when etcd had confirmed it.
    Stored(End, Option<Timestamp>),
    Taken,
}

impl Upload {
    pub async fn store(self, full: Full) -> Result<Outcome, Error> {
        let first = full.first();
        let Self { segments, inputs, recipients, after, member, etcd_version, patience, progress } = self;
        let leases = leases(&member, &full.leases).await;
        let verification = inputs.verification;
        let sealed = tokio::task::spawn_blocking(move || {
            full.seal(&after, leases, etcd_version, &inputs, &recipients)
        });
        let (segment, object) = sealed.await.expect("it does not panic")?;
        let began = Instant::now();
        loop {
            match segments.put(first, &object, verification).await {
                Ok(Put::Stored) => {
                    let end = End::of(&segment, &object.sha256());
                    return Ok(Outcome::Stored(end, segment.times.confirmed));
                }
                Ok(Put::Taken) => return Ok(Outcome::Taken),
                Err(error) if error.reason() == Reason::StoreUnreachable && began.elapsed() < patience => {
                    eprintln!("{error}; retrying");
                    lock(&progress).trouble = Some(Failure::from(&error));
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// With which lifetime each was granted, as far as etcd still knows them. A restore gives the others a minute.
async fn leases(member: &Member, ids: &BTreeSet<i64>) -> Vec<Lease> {
    let mut known = Vec::new();
    let mut asked = futures::stream::iter(ids.iter().copied())
        .map(|id| async move { Some(Lease { id, ttl: member.lease_ttl(id).await? }) })
        .buffer_unordered(LEASES_AT_ONCE);
    let collected = tokio::time::timeout(LEASES_DEADLINE, async {
        while let Some(lease) = asked.next().await {
            known.extend(lease);
        }
    });
    let _ = collected.await;
    drop(asked);
    known.sort_by_key(|lease| lease.id);
    known
}
