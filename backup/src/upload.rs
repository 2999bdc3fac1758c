//! The data of a copy on its way into the store. Whatever ends a run, [`Upload::discard`] removes what is there so far.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::task::JoinSet;

use crate::error::Error;
use crate::store::delete;

/// Parts that are sent at once. Together with the next one and the one behind it, they are most of the memory of a run.
const AT_ONCE: usize = 2;
/// Kubernetes gives a terminated pod 30 seconds.
const DISCARD_DEADLINE: Duration = Duration::from_secs(20);
const ARRIVAL_DEADLINE: Duration = Duration::from_secs(5);

pub struct Upload {
    objects: Arc<dyn ObjectStore>,
    data: Path,
    manifest: Path,
    bytes: u64,
    state: State,
}

enum State {
    Sending {
        upload: Box<dyn MultipartUpload>,
        in_flight: JoinSet<object_store::Result<()>>,
        /// The data might be an object, although no response says so.
        might_be_stored: bool,
    },
    Stored,
    /// The manifest might be written.
    Announced,
}

impl Upload {
    pub async fn begin(objects: &Arc<dyn ObjectStore>, data: Path, manifest: Path) -> Result<Self, Error> {
        let upload = objects.put_multipart(&data).await;
        let upload = upload.map_err(|error| Error::store(format!("begin the upload of {data}"), &error))?;
        let state = State::Sending { upload, in_flight: JoinSet::new(), might_be_stored: false };
        Ok(Self { objects: Arc::clone(objects), data, manifest, bytes: 0, state })
    }

    /// Returns when there is room for the next part.
    pub async fn send(&mut self, part: Bytes) -> Result<(), Error> {
        let State::Sending { upload, in_flight, .. } = &mut self.state else {
            unreachable!("parts come before the end");
        };
        self.bytes += part.len() as u64;
        in_flight.spawn(upload.put_part(part.into()));
        while in_flight.len() >= AT_ONCE {
            arrived(in_flight, &self.data).await?;
        }
        Ok(())
    }

    /// From now on the data is an object.
    pub async fn complete(&mut self) -> Result<(), Error> {
        let State::Sending { upload, in_flight, might_be_stored } = &mut self.state else {
            unreachable!("there is one end");
        };
        while !in_flight.is_empty() {
            arrived(in_flight, &self.data).await?;
        }
        *might_be_stored = true;
        if let Err(error) = upload.complete().await {
            // A request whose answer was lost is sent again, and then there is no upload any more. Nothing else has this name.
            let stored = self.objects.head(&self.data).await;
            if !stored.is_ok_and(|stored| stored.size == self.bytes) {
                return Err(Error::store(format!("complete the upload of {}", self.data), &error));
            }
        }
        self.state = State::Stored;
        Ok(())
    }

    /// Writes the manifest, which makes it a copy.
    pub async fn announce(&mut self, manifest: String) -> Result<(), Error> {
        self.state = State::Announced;
        let failed = |error| Error::store(format!("write the manifest {}", self.manifest), &error);
        let options = PutOptions::from(PutMode::Create);
        match self.objects.put_opts(&self.manifest, manifest.clone().into(), options).await {
            Ok(_) => Ok(()),
            // Names are unique, so nothing is overwritten without it, either.
            Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => {
                self.objects.put(&self.manifest, manifest.into()).await.map(drop).map_err(failed)
            }
            // The answer was lost, or the request was sent again and meets what it has written itself.
            Err(error) => match self.written_manifest().await {
                Ok(written) if written == manifest => Ok(()),
                Ok(_) | Err(_) => Err(failed(error)),
            },
        }
    }

    async fn written_manifest(&self) -> object_store::Result<Bytes> {
        self.objects.get(&self.manifest).await?.bytes().await
    }

    /// Leaves nothing in the store, as far as the store allows. What remains has no manifest, so it is no copy.
    pub async fn discard(self) {
        let Self { objects, data, manifest, bytes: _, state } = self;
        let discarded = tokio::time::timeout(DISCARD_DEADLINE, async {
            match state {
                State::Sending { mut upload, mut in_flight, might_be_stored } => {
                    // A part that the store receives after the end of the upload stays there.
                    let arrive = async { while in_flight.join_next().await.is_some() {} };
                    let _ = tokio::time::timeout(ARRIVAL_DEADLINE, arrive).await;
                    in_flight.shutdown().await;
                    let aborted = upload.abort().await;
                    if might_be_stored { delete(&objects, &data).await } else { aborted }
                }
                State::Stored => objects.delete(&data).await,
                State::Announced => {
                    delete(&objects, &manifest).await?;
                    delete(&objects, &data).await
                }
            }
        });
        let remains = match discarded.await {
            Ok(Ok(())) => return eprintln!("removed the unfinished upload of {data}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {} s", DISCARD_DEADLINE.as_secs()),
        };
        eprintln!("cannot remove the unfinished upload of {data}: {remains}");
    }
}

async fn arrived(in_flight: &mut JoinSet<object_store::Result<()>>, data: &Path) -> Result<(), Error> {
    let part = in_flight.join_next().await.map_or(Ok(Ok(())), |joined| joined);
    let part = part.unwrap_or_else(|error| Err(error.into()));
    part.map_err(|error| Error::store(format!("upload a part of {data}"), &error))
}
