//! The member's volume: whose it is, whether there is a log, and what was started on it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use etcd_operator_core::agent::path;
use etcd_operator_core::start::{Identity, Volume};

use crate::files::{read_if_there, sync_directory_of, write_durably};

/// What etcd gives its own directory.
const PRIVATE: u32 = 0o700;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot parse {path}")]
    Understand { path: PathBuf, source: serde_json::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot move {path} aside")]
    PutAside { path: PathBuf, source: io::Error },
    #[error(
        "{path} belongs to user {owner} with mode {mode:04o}, and etcd runs as user {user}: set \
         spec.podTemplate.securityContext to {{runAsUser: {user}, runAsGroup: {user}, fsGroup: {user}, fsGroupChangePolicy: \
         Always}}, or give the files on the volume to user {user}"
    )]
    Denied { path: PathBuf, owner: u32, mode: u32, user: u32, source: io::Error },
}

impl Error {
    /// Where the owner of a file keeps etcd away, only users can change that, so they need to know whose it is.
    fn of(path: &Path, source: io::Error, otherwise: fn(PathBuf, io::Error) -> Self) -> Self {
        let known = || {
            let (there, metadata) = path.ancestors().find_map(|it| Some((it, it.metadata().ok()?)))?;
            let user = fs::metadata("/proc/self").ok()?.uid();
            Some((there.to_owned(), metadata.uid(), metadata.mode() & 0o7777, user))
        };
        match known().filter(|_| source.kind() == io::ErrorKind::PermissionDenied) {
            Some((path, owner, mode, user)) => Self::Denied { path, owner, mode, user, source },
            None => otherwise(path.to_owned(), source),
        }
    }

    fn read(path: &Path, source: io::Error) -> Self {
        Self::of(path, source, |path, source| Self::Read { path, source })
    }
}

/// Looks at the volume. What cannot be read is an error, never "nothing there".
pub fn look(volume: &Path) -> Result<Volume, Error> {
    let data = volume.join(path::DATA);
    Ok(Volume {
        has_log: has_log_in(&data)?,
        has_remains: has_files(&data)?,
        identity: identity(&volume.join(path::IDENTITY))?,
    })
}

/// The orders that were used, as volume and pod remember them. What the volume knows, the pod knows from now on:
/// the volume can be wiped under it.
pub fn used_nonces(volume: &Volume, run: &Path) -> Result<BTreeSet<String>, Error> {
    let in_pod = identity(&run.join(path::IDENTITY))?;
    if let Some(identity) = &volume.identity
        && in_pod.is_none()
    {
        write(run, identity)?;
    }
    let both = volume.identity.iter().chain(&in_pod);
    Ok(both.flat_map(|identity| identity.used_nonces.iter().cloned()).collect())
}

pub fn identity(path: &Path) -> Result<Option<Identity>, Error> {
    let text = read_if_there(path).map_err(|source| Error::read(path, source))?;
    let parse = |text: String| serde_json::from_str(&text);
    text.map(parse).transpose().map_err(|source| Error::Understand { path: path.to_owned(), source })
}

/// Writes down whose data this is and which orders were used, before there is any data.
pub fn sign(volume: &Path, run: &Path, identity: &Identity) -> Result<(), Error> {
    write(run, identity)?;
    write(volume, identity)
}

pub fn write(directory: &Path, identity: &Identity) -> Result<(), Error> {
    let path = directory.join(path::IDENTITY);
    let text = serde_json::to_vec(identity).expect("text is always JSON");
    let failed = |source| Error::of(&path, source, |path, source| Error::Write { path, source });
    write_durably(&path, &text).map_err(failed)
}

/// Nobody but its owner reads etcd's directory: where Kubernetes gives a volume to a group, its files are open to the group,
/// and new directories inherit that. A directory of another user stays as it is.
pub fn keep_private(volume: &Path) -> io::Result<()> {
    let data = volume.join(path::DATA);
    match fs::DirBuilder::new().mode(PRIVATE).create(&data) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if data.metadata()?.mode() & 0o7777 == PRIVATE {
        return Ok(());
    }
    fs::set_permissions(&data, fs::Permissions::from_mode(PRIVATE))
}

/// Without its log, what is left of a member's data must not be found by etcd: it would build on it. It is kept
/// aside once, in case somebody wants to look at it.
pub fn put_remains_aside(volume: &Path) -> Result<(), Error> {
    let (data, aside) = (volume.join(path::DATA), volume.join(path::DISCARDED));
    let moved = match fs::remove_dir_all(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::rename(&data, &aside).and_then(|()| sync_directory_of(&data)),
    };
    moved.map_err(|source| Error::PutAside { path: data, source })
}

/// etcd's own test: a file that ends so, where it keeps its log.
pub fn has_log_in(data: &Path) -> Result<bool, Error> {
    let path = data.join("member/wal");
    let entries = entries(&path)?;
    Ok(entries.iter().any(|entry| entry.file_name().to_string_lossy().ends_with(".wal")))
}

fn has_files(directory: &Path) -> Result<bool, Error> {
    for entry in entries(directory)? {
        let kind = entry.file_type().map_err(|source| Error::read(&entry.path(), source))?;
        if !kind.is_dir() || has_files(&entry.path())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// None if there is no such directory.
fn entries(directory: &Path) -> Result<Vec<fs::DirEntry>, Error> {
    let read = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    read.map_err(|source| Error::read(directory, source))
}
