//! Reads a copy from the store: to verify it, or into a file.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path as FilePath, PathBuf};

use etcd_operator_core::backup::layout::Layout;
use etcd_operator_core::backup::manifest::Manifest;
use etcd_operator_core::backup::report::{Done, Summary};
use futures::StreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::sync::mpsc;

use crate::decode::{self, Content, Identities};
use crate::error::Error;
use crate::store::Store;

/// Chunks between the store and the decoder.
const CHUNKS: usize = 4;

/// Compares what is stored with the manifest; also the content, if it can be read.
pub async fn verify(
    store: &Store,
    layout: &Layout,
    manifest: Manifest,
    identities: Option<Identities>,
) -> Result<Done, Error> {
    let content = Content::of(&manifest, identities)?;
    let is_readable = matches!(content, Content::Readable { .. });
    let name = manifest.name.clone();
    self::content(store, layout, manifest, content, io::sink()).await?;
    Ok(Done::Verify { name, content: is_readable })
}

/// Writes the snapshot to a file, which has its final name only when it is complete and checked.
pub async fn fetch(
    store: &Store,
    layout: &Layout,
    manifest: Manifest,
    identities: Option<Identities>,
    output: &FilePath,
) -> Result<Done, Error> {
    let content = match Content::of(&manifest, identities)? {
        Content::Sealed => {
            return Err(Error::Unusable(format!(
                "copy {} is encrypted: give the file with the identity of one of {} (--identity)",
                manifest.name,
                manifest.data.recipients.join(", ")
            )));
        }
        readable @ Content::Readable { .. } => readable,
    };
    let copy = Summary::from(&manifest);
    let partial = Partial::create(output)?;
    self::content(store, layout, manifest, content, partial.file()?).await?;
    partial.complete()?;
    Ok(Done::Fetch { copy })
}

/// Streams the data of a copy through the decoder.
pub async fn content(
    store: &Store,
    layout: &Layout,
    manifest: Manifest,
    content: Content,
    mut output: impl Write + Send + 'static,
) -> Result<(), Error> {
    let data = Path::from(layout.data_at(&manifest.data.file));
    let failed = |error: &object_store::Error| {
        if !matches!(error, object_store::Error::NotFound { .. }) {
            return Error::store(format!("read {data}"), error);
        }
        let name = &manifest.name;
        Error::Damaged(format!(
            "copy {name} is damaged: the store does not have its data {data}: use another copy"
        ))
    };
    let mut stream = store.objects.get(&data).await.map_err(|error| failed(&error))?.into_stream();
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let of = manifest.clone();
    let decoder = tokio::task::spawn_blocking(move || decode::decode(receiver, &of, content, &mut output));
    let mut received = Ok(());
    while let Some(chunk) = stream.next().await {
        match chunk.map_err(|error| failed(&error)) {
            Ok(chunk) => {
                // The decoder ends early only with an error of its own.
                if sender.send(chunk).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                received = Err(error);
                break;
            }
        }
    }
    drop(sender);
    let decoded = decoder.await.expect("the decoder does not panic");
    received.and(decoded)
}

/// A file under a temporary name beside its final one. One that a killed run has left is used again.
pub struct Partial {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
}

impl Partial {
    pub fn create(target: &FilePath) -> Result<Self, Error> {
        let failed = |source| Error::Output { doing: format!("write {}", target.display()), source };
        if target.exists() {
            let exists =
                io::Error::new(io::ErrorKind::AlreadyExists, "it exists: remove it, or choose another name");
            return Err(failed(exists));
        }
        let mut temporary = target.as_os_str().to_owned();
        temporary.push(".partial");
        let temporary = PathBuf::from(temporary);
        let file =
            File::options().create(true).truncate(false).write(true).open(&temporary).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, "another run writes it")));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        Ok(Self { file, temporary, target: target.to_owned() })
    }

    pub fn file(&self) -> Result<File, Error> {
        self.file.try_clone().map_err(|source| self.failed(source))
    }

    pub fn complete(self) -> Result<(), Error> {
        let directory = match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => FilePath::new("."),
        };
        self.file.sync_all().map_err(|source| self.failed(source))?;
        std::fs::rename(&self.temporary, &self.target).map_err(|source| self.failed(source))?;
        File::open(directory).and_then(|it| it.sync_all()).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Output { doing: format!("write {}", self.target.display()), source }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a rename there is none.
        let _ = std::fs::remove_file(&self.temporary);
    }
}
