//! Puts this program where the etcd container finds it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use etcd_operator_core::agent::path;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot find the path of this program")]
    Own(#[source] std::io::Error),
    #[error("cannot copy this program to {path}")]
    Copy { path: PathBuf, source: std::io::Error },
}

/// Under a name of its own first: an init container that was killed half-way leaves no half program behind.
pub fn into_directory(directory: &Path) -> Result<(), Error> {
    let own = std::env::current_exe().map_err(Error::Own)?;
    let target = directory.join(path::PROGRAM);
    let unfinished = directory.join(format!("{}.unfinished", path::PROGRAM));
    fs::copy(own, &unfinished)
        .and_then(|_| fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&unfinished, &target))
        .map_err(|source| Error::Copy { path: target, source })
}
