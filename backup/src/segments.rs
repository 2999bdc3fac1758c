//! The segments of the continuous archive in a store.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use etcd_operator_core::backup::chain::is_outdated;
use etcd_operator_core::backup::layout::{Layout, first_in_segment_file};
use etcd_operator_core::backup::manifest::{Unreadable, Verification};
use etcd_operator_core::backup::segment::{MAX_HEAD_BYTES, Segment};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, PutMode, PutOptions, PutPayload};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::snapshot::hex;
use crate::store::Store;

const HEADS_AT_ONCE: usize = 8;

/// Segments of one cluster.
#[derive(Clone)]
pub struct Segments {
    objects: Arc<dyn ObjectStore>,
    pub layout: Layout,
}

/// What is stored: the head, with the end of its line, and what follows it.
pub struct Object {
    pub head: Bytes,
    pub body: Bytes,
}

/// A whole object as it was read.
pub struct Stored {
    pub segment: Segment,
    pub sha256: String,
    /// What follows the head.
    pub body: Bytes,
}

/// What became of a conditional put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Stored,
    /// Another archiver has stored a segment that begins with the same revision.
    Taken,
}

impl Segments {
    pub fn new(store: &Store, layout: Layout) -> Self {
        Self { objects: Arc::clone(&store.objects), layout }
    }

    /// The first revision of each, in order.
    pub async fn firsts(&self) -> Result<Vec<i64>, Error> {
        self.list(None).await
    }

    async fn list(&self, after: Option<i64>) -> Result<Vec<i64>, Error> {
        let folder = Path::from(self.layout.chain());
        let listed = match after {
            Some(first) => self.objects.list_with_offset(Some(&folder), &self.path(first)),
            None => self.objects.list(Some(&folder)),
        };
        let first = |meta: object_store::ObjectMeta| {
            let mut below = meta.location.prefix_match(&folder)?;
            let first = first_in_segment_file(below.next()?.as_ref())?;
            below.next().is_none().then_some(first)
        };
        let firsts: Result<Vec<i64>, _> =
            listed.try_filter_map(|meta| std::future::ready(Ok(first(meta)))).try_collect().await;
        let mut firsts = firsts.map_err(|error| Error::store(format!("list {folder}"), &error))?;
        firsts.sort_unstable();
        Ok(firsts)
    }

    /// The newest one. What is not one of ours does not matter where a copy has everything up to there.
    pub async fn newest(&self, copy: Option<i64>) -> Result<Option<Stored>, Error> {
        // Most segments are older than the newest copy, and a store lists from any name on.
        let mut firsts = self.list(copy).await?;
        if firsts.is_empty() {
            firsts = self.firsts().await?;
        }
        while let Some(first) = firsts.pop() {
            match self.read(first).await? {
                Some(Ok(stored)) => return Ok(Some(stored)),
                Some(Err(error)) if copy.is_none_or(|copy| copy < first) => {
                    return Err(self.unreadable(first, &error));
                }
                Some(Err(_)) | None => {}
            }
        }
        Ok(None)
    }

    /// None if it does not exist (any more).
    pub async fn read(&self, first: i64) -> Result<Option<Result<Stored, Unreadable>>, Error> {
        let Some(object) = self.get(first, None).await? else { return Ok(None) };
        Ok(Some(Segment::read(&object, first, &self.layout).map(|(segment, head)| Stored {
            segment,
            sha256: hex(&Sha256::digest(&object)),
            body: object.slice(head..),
        })))
    }

    pub async fn head(&self, first: i64) -> Result<Option<Result<Segment, Unreadable>>, Error> {
        let head = self.get(first, Some(GetRange::Bounded(0..MAX_HEAD_BYTES as u64))).await?;
        Ok(head.map(|head| Ok(Segment::read(&head, first, &self.layout)?.0)))
    }

    async fn get(&self, first: i64, range: Option<GetRange>) -> Result<Option<Bytes>, Error> {
        let path = self.path(first);
        let object = match self.objects.get_opts(&path, GetOptions { range, ..GetOptions::default() }).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            object => object.map_err(|error| failed("read", &path, &error))?,
        };
        object.bytes().await.map(Some).map_err(|error| failed("read", &path, &error))
    }

    /// Stores one, unless there is one with this name.
    pub async fn put(&self, first: i64, object: &Object, verification: Verification) -> Result<Put, Error> {
        let path = self.path(first);
        let create = PutOptions::from(PutMode::Create);
        let payload = PutPayload::from_iter([object.head.clone(), object.body.clone()]);
        match self.objects.put_opts(&path, payload, create).await {
            Ok(_) if verification == Verification::Checksum => Ok(Put::Stored),
            Ok(_) if self.has(&path, object).await.map_err(|error| failed("read", &path, &error))? => {
                Ok(Put::Stored)
            }
            Ok(_) => Err(Error::Damaged(format!(
                "segment {path} is damaged: the store returns other bytes than were sent: use another store"
            ))),
            // The answer was lost, or the request was sent again and meets what it has written itself.
            Err(error) => match self.has(&path, object).await {
                Ok(true) => Ok(Put::Stored),
                Ok(false) => Ok(Put::Taken),
                Err(_) => Err(failed("write", &path, &error)),
            },
        }
    }

    /// Whether this is what the store returns.
    async fn has(&self, path: &Path, object: &Object) -> object_store::Result<bool> {
        let mut expected = object.head.clone().chain(object.body.clone());
        let mut found = self.objects.get_opts(path, GetOptions::default()).await?.into_stream();
        while let Some(mut chunk) = found.try_next().await? {
            while chunk.has_remaining() {
                let length = chunk.len().min(expected.chunk().len());
                if length == 0 || chunk[..length] != expected.chunk()[..length] {
                    return Ok(false);
                }
                chunk.advance(length);
                expected.advance(length);
            }
        }
        Ok(!expected.has_remaining())
    }

    /// Deletes those that no copy needs, oldest first, and returns how many. `lowest` are the lowest revisions of the copies that stay.
    pub async fn prune(&self, lowest: Option<&[i64]>) -> Result<usize, Error> {
        let firsts = self.firsts().await?;
        let (Some(newest), Some(needed_after)) = (firsts.last(), lowest.and_then(|all| all.iter().min()))
        else {
            return Ok(0);
        };
        let candidates = firsts.iter().take_while(|first| *first <= needed_after);
        // Several at once, and deleted in order.
        let mut heads = futures::stream::iter(candidates)
            .map(|first| async move { Ok::<_, Error>((*first, self.head(*first).await?)) })
            .buffered(HEADS_AT_ONCE);
        let mut deleted = 0;
        while let Some((first, head)) = heads.try_next().await? {
            match head {
                Some(Ok(segment)) if is_outdated(&segment, *newest, lowest) => {
                    let path = self.path(first);
                    let result = crate::store::delete(&self.objects, &path).await;
                    result.map_err(|error| failed("delete", &path, &error))?;
                    deleted += 1;
                }
                Some(Ok(_)) | None => {}
                Some(Err(error)) => eprintln!("segment {} stays: {error}", self.path(first)),
            }
        }
        Ok(deleted)
    }

    pub fn unreadable(&self, first: i64, error: &Unreadable) -> Error {
        let path = self.path(first);
        match error {
            Unreadable::Newer { .. } => Error::Unusable(format!("segment {path} cannot be used: {error}")),
            Unreadable::Foreign(_) | Unreadable::Malformed(_) | Unreadable::TooLarge => {
                Error::Damaged(format!(
                    "segment {path} is damaged: {error}: take a full copy, which the archive then continues"
                ))
            }
        }
    }

    pub fn path(&self, first: i64) -> Path {
        Path::from(self.layout.segment_at(first))
    }
}

fn failed(doing: &str, path: &Path, error: &object_store::Error) -> Error {
    Error::store(format!("{doing} {path}"), error)
}

impl Object {
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(&self.head);
        hash.update(&self.body);
        hex(&hash.finalize())
    }
}

impl Stored {
    /// Whether the body is the one that the head describes.
    pub fn is_intact(&self) -> bool {
        let body = &self.segment.body;
        body.bytes == self.body.len() as u64 && body.sha256 == hex(&Sha256::digest(&self.body))
    }
}
