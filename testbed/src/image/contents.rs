//! What an archive holds and where in the file, without reading the layers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result, ensure};
use tar::Archive;

use super::Name;
use super::digest::Digest;
use super::document::{Index, NAME_ANNOTATION};

/// More than any index has; a tar that is no image archive should not fill our memory.
const MOST_INDEX_BYTES: u64 = 4 << 20;

/// An archive as the registry sees it: any tar with an OCI image layout, ours or Docker's.
#[derive(Debug)]
pub struct Contents {
    index: Index,
    names: BTreeMap<Name, Digest>,
    blobs: BTreeMap<Digest, Extent>,
}

/// Where a blob stands in its archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub size: u64,
}

impl Contents {
    /// Steps from header to header.
    pub fn read(file: &File) -> Result<Self> {
        let mut index = None;
        let mut blobs = BTreeMap::new();
        for entry in Archive::new(file).entries_with_seek().context("not a tar")? {
            let mut entry = entry.context("an incomplete tar")?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if path == "index.json" {
                ensure!(entry.size() <= MOST_INDEX_BYTES, "index.json is too large");
                let mut text = String::new();
                entry.read_to_string(&mut text).context("cannot read index.json")?;
                index = Some(serde_json::from_str::<Index>(&text).context("index.json is not an index")?);
            } else if let Some(digits) = path.strip_prefix("blobs/sha256/")
                && let Ok(digest) = format!("sha256:{digits}").parse()
            {
                blobs.insert(digest, Extent { offset: entry.raw_file_position(), size: entry.size() });
            }
        }
        let index = index.context("not an OCI image layout: index.json is missing")?;
        ensure_whole(file, &blobs)?;
        let mut names = BTreeMap::new();
        for descriptor in &index.manifests {
            if let Some(name) = descriptor.annotations.get(NAME_ANNOTATION) {
                names.insert(name.parse()?, descriptor.digest.clone());
            }
        }
        Ok(Self { index, names, blobs })
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// The names of the image or images, each with the digest of its manifest.
    pub fn names(&self) -> &BTreeMap<Name, Digest> {
        &self.names
    }

    pub fn blob(&self, digest: &Digest) -> Option<Extent> {
        self.blobs.get(digest).copied()
    }
}

/// Seeking past the end of a file is no error, so a file cut off within a blob reads like a whole one.
fn ensure_whole(file: &File, blobs: &BTreeMap<Digest, Extent>) -> Result<()> {
    let length = file.metadata()?.len();
    let end = blobs.values().map(|blob| blob.offset + blob.size).max().unwrap_or_default();
    ensure!(end <= length, "the archive is incomplete: it has {length} of at least {end} bytes");
    Ok(())
}
