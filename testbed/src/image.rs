//! Container images without Docker: programs of this machine, packed into archives that every tool loads.

mod archive;
pub mod command;
mod contents;
mod digest;
mod document;
mod layer;
mod name;
mod prepared;
pub mod standard;
#[cfg(test)]
pub(crate) mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use archive::Archive;
pub use contents::{Contents, Extent};
pub use digest::Digest;
pub use document::MANIFEST_TYPE;
use document::{Empty, RunConfig};
use layer::Layer;
pub use name::Name;
pub use prepared::{ensure_base, ensure_etcd};
pub use standard::PAUSE;

/// One image with one layer. The same description of the same files gives the same bytes.
#[derive(Clone, Debug)]
pub struct Image {
    names: Vec<Name>,
    layer: Layer,
    run: RunConfig,
}

/// An archive that is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub path: PathBuf,
    /// Of the manifest: `name@digest` pulls exactly this image.
    pub digest: Digest,
    /// The archive was there already, with this very content.
    pub unchanged: bool,
}

impl Image {
    pub fn new(names: impl IntoIterator<Item = Name>) -> Self {
        Self { names: names.into_iter().collect(), layer: Layer::default(), run: RunConfig::default() }
    }

    /// A file of this machine, read when the archive is written.
    pub fn file(mut self, path: &str, source: impl Into<PathBuf>, mode: u32) -> Self {
        self.layer.file(path, source.into(), mode);
        self
    }

    /// A small file with this text, readable by all.
    pub fn text(mut self, path: &str, content: impl Into<String>) -> Self {
        self.layer.text(path, content.into());
        self
    }

    pub fn dir(mut self, path: &str, mode: u32) -> Self {
        self.layer.directory(path, mode);
        self
    }

    /// A symbolic link.
    pub fn link(mut self, path: &str, target: impl Into<String>) -> Self {
        self.layer.link(path, target.into());
        self
    }

    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.run.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    pub fn cmd<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.run.cmd = words.into_iter().map(Into::into).collect();
        self
    }

    /// `UID:GID`; root if never called.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.run.user = user.into();
        self
    }

    pub fn workdir(mut self, path: impl Into<String>) -> Self {
        self.run.working_dir = path.into();
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.run.env.push(format!("{name}={value}"));
        self
    }

    /// `2379/tcp`
    pub fn port(mut self, port: &str) -> Self {
        self.run.exposed_ports.insert(port.to_owned(), Empty {});
        self
    }

    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Makes the archive, unless it is there with this very content. Blocks: it reads all files of the image.
    pub fn write(&self, path: &Path) -> Result<Written> {
        let archive = Archive::plan(&self.names, &self.layer, &self.run)
            .with_context(|| format!("cannot create the image {}", path.display()))?;
        let unchanged = archive.is_at(path);
        if !unchanged {
            archive.write(path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Written { path: path.to_owned(), digest: archive.digest(), unchanged })
    }

    /// As [`Image::write`], to a file called after the image's first name.
    pub fn write_into(&self, directory: &Path) -> Result<Written> {
        let name = self.names.first().context("an image needs a name")?;
        self.write(&directory.join(name.archive()))
    }
}
