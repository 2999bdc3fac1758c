//! A segment while it fills.

use std::collections::BTreeSet;

use age::x25519::Recipient;
use etcd_operator_core::backup::FormatVersion;
use etcd_operator_core::backup::inputs::Inputs;
use etcd_operator_core::backup::segment::{Body, FORMAT, READABLE_FROM, Segment, Times};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::record::{Lease, Revision, pack, write_leases};
use crate::segments::Object;
use crate::snapshot::hex;

/// A segment has about this much content. Two are in memory, one that fills and one that is being stored.
pub const SEGMENT_BYTES: usize = 4 << 20;
/// Most segments are closed before they have more than this.
const CAPACITY_BYTES: usize = SEGMENT_BYTES + (2 << 20);

/// The end of the chain so far, which the next segment continues.
#[derive(Clone, Debug)]
pub struct End {
    /// The last revision that is stored.
    pub last: i64,
    /// Of the last segment; none where a chain begins.
    pub previous: Option<Previous>,
    /// What the last revision is compared with, if etcd still has it.
    pub tip: Option<String>,
    /// No time of the chain is later.
    pub time: Timestamp,
}

#[derive(Clone, Debug)]
pub struct Previous {
    pub sha256: String,
    pub chain_first: i64,
}

impl End {
    pub fn of(segment: &Segment, sha256: &str) -> Self {
        let Times { last, confirmed, .. } = segment.times;
        Self {
            last: segment.last,
            previous: Some(Previous { sha256: sha256.to_owned(), chain_first: segment.chain_first }),
            tip: Some(segment.tip.clone()),
            time: confirmed.map_or(last, |confirmed| confirmed.max(last)),
        }
    }

    /// None before the first segment.
    pub fn chain_first(&self) -> Option<i64> {
        self.previous.as_ref().map(|it| it.chain_first)
    }

    pub fn copy(lowest: i64) -> Self {
        Self { last: lowest, previous: None, tip: None, time: Timestamp::UNIX_EPOCH }
    }
}

/// Complete revisions that are not stored yet.
#[derive(Default)]
pub struct Filling {
    content: Vec<u8>,
    revisions: Option<Span>,
    leases: BTreeSet<i64>,
}

struct Span {
    first: (i64, i64),
    last: (i64, i64),
    tip: String,
}

/// A segment whose revisions are complete; it waits for the lifetimes of its leases.
pub struct Full {
    content: Vec<u8>,
    span: Span,
    pub leases: BTreeSet<i64>,
    pub exact_since: Option<Timestamp>,
    pub confirmed: Option<Timestamp>,
}

impl Filling {
    pub fn add(&mut self, revision: &Revision) {
        if self.content.capacity() == 0 {
            self.content.reserve_exact(CAPACITY_BYTES);
        }
        revision.write(&mut self.content);
        self.leases.extend(revision.leases());
        let (at, tip) = ((revision.revision, revision.received()), revision.tip());
        match &mut self.revisions {
            Some(span) => (span.last, span.tip) = (at, tip),
            None => self.revisions = Some(Span { first: at, last: at, tip }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.revisions.is_none()
    }

    pub fn is_full(&self) -> bool {
        self.content.len() >= SEGMENT_BYTES
    }

    /// None if it is empty.
    pub fn take(&mut self, exact_since: Option<Timestamp>, confirmed: Option<Timestamp>) -> Option<Full> {
        let Self { content, revisions, leases } = std::mem::take(self);
        Some(Full { content, span: revisions?, leases, exact_since, confirmed })
    }
}

impl Full {
    pub fn first(&self) -> i64 {
        self.span.first.0
    }

    pub fn last_received(&self) -> Timestamp {
        time(self.span.last.1)
    }

    /// The object to store. It computes.
    pub fn seal(
        mut self,
        after: &End,
        leases: Vec<Lease>,
        etcd_version: String,
        inputs: &Inputs,
        recipients: &[Recipient],
    ) -> Result<(Segment, Object), Error> {
        if !leases.is_empty() {
            write_leases(leases, &mut self.content);
        }
        let packed = pack(&self.content, inputs.compression, recipients);
        let body = packed
            .map_err(|source| Error::Output { doing: "compress and encrypt a segment".into(), source })?;
        let (first, last) = (self.span.first.0, self.span.last.0);
        let previous = after.previous.as_ref();
        let segment = Segment {
            format: FORMAT.into(),
            format_version: FormatVersion::CURRENT,
            readable_from: READABLE_FROM,
            program_version: env!("CARGO_PKG_VERSION").into(),
            cluster_id: inputs.cluster_id.clone().unwrap_or_default(),
            etcd_version,
            first,
            last,
            chain_first: previous.map_or(first, |it| it.chain_first),
            previous: previous.map(|it| it.sha256.clone()),
            tip: self.span.tip,
            times: Times {
                first: time(self.span.first.1),
                last: time(self.span.last.1),
                exact_since: self.exact_since,
                confirmed: self.confirmed,
            },
            body: Body {
                bytes: body.len() as u64,
                sha256: hex(&Sha256::digest(&body)),
                content_bytes: self.content.len() as u64,
                compression: inputs.compression.into(),
                encryption: inputs.encryption().into(),
                recipients: inputs.recipients.clone(),
            },
        };
        let head = segment.render().into();
        Ok((segment, Object { head, body: body.into() }))
    }
}

fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).expect("it was a time")
}
