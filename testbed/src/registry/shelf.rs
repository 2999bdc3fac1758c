//! The archives of some directories, as they are at this moment.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::request::{Reference, Wanted};
use crate::image::{Contents, Digest, Extent};

/// Looks into the directories anew for every question; an archive is read again only if it is another file.
pub struct Shelf {
    directories: Vec<PathBuf>,
    read: Mutex<BTreeMap<PathBuf, Volume>>,
}

/// A blob in an archive that is open, and so stays readable when it is replaced.
pub struct Found {
    pub digest: Digest,
    pub extent: Extent,
    pub file: File,
}

/// An archive that was read; without contents if it could not be.
#[derive(Clone)]
struct Volume {
    stamp: Stamp,
    contents: Option<Arc<Contents>>,
}

/// Tells one state of a file from another. A replacement has another inode, however quickly it came.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: (i64, i64),
    size: u64,
    inode: u64,
}

impl Shelf {
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, read: Mutex::default() }
    }

    /// Where two archives have what is wanted, the earlier directory counts.
    pub fn find(&self, wanted: &Wanted) -> Option<Found> {
        for (path, volume) in self.volumes() {
            let Some((digest, extent)) = volume.contents.as_ref().and_then(|it| locate(it, wanted)) else {
                continue;
            };
            let Ok((stamp, file)) = open(&path) else { continue };
            if stamp != volume.stamp {
                // Replaced since it was looked at.
                return self.find(wanted);
            }
            return Some(Found { digest, extent, file });
        }
        None
    }

    /// The tags that the repository has here.
    pub fn tags(&self, wanted: &Wanted) -> Vec<String> {
        let mut tags = Vec::new();
        for contents in self.volumes().iter().filter_map(|(_, volume)| volume.contents.as_ref()) {
            let names = contents.names().keys().filter(|name| wanted.is_of(name));
            tags.extend(names.map(|name| name.tag().to_owned()));
        }
        tags.sort();
        tags.dedup();
        tags
    }

    fn volumes(&self) -> Vec<(PathBuf, Volume)> {
        let paths: Vec<_> = self.directories.iter().flat_map(|directory| archives(directory)).collect();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.retain(|path, _| paths.contains(path));
        let mut volumes = Vec::new();
        for path in paths {
            let Ok(stamp) = std::fs::metadata(&path).map(|about| Stamp::of(&about)) else { continue };
            let known = read.get(&path).filter(|volume| volume.stamp == stamp).cloned();
            let Some(volume) = known.or_else(|| inspect(&path)) else { continue };
            read.insert(path.clone(), volume.clone());
            volumes.push((path, volume));
        }
        volumes
    }
}

impl Stamp {
    fn of(about: &Metadata) -> Self {
        Self { modified: (about.mtime(), about.mtime_nsec()), size: about.len(), inode: about.ino() }
    }
}

fn locate(contents: &Contents, wanted: &Wanted) -> Option<(Digest, Extent)> {
    let mut names = contents.names().iter().filter(|(name, _)| wanted.is_of(name));
    let digest = match &wanted.reference {
        Reference::Tag(tag) => names.find(|(name, _)| name.tag() == tag)?.1,
        Reference::Digest(digest) => names.next().map(|_| digest)?,
    };
    Some((digest.clone(), contents.blob(digest)?))
}

fn archives(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tar"))
        .collect();
    paths.sort();
    paths
}

/// A file that is no archive (or not yet, while someone copies it here) is told once and passed over.
fn inspect(path: &Path) -> Option<Volume> {
    let (stamp, file) = open(path).ok()?;
    let contents = match Contents::read(&file) {
        Ok(contents) => Some(Arc::new(contents)),
        Err(error) => {
            eprintln!("skipping image archive {}: {error:#}", path.display());
            None
        }
    };
    Some(Volume { stamp, contents })
}

fn open(path: &Path) -> Result<(Stamp, File)> {
    let file = File::open(path)?;
    Ok((Stamp::of(&file.metadata()?), file))
}
