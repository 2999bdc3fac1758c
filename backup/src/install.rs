//! Puts this program where a container of another image finds it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use etcd_operator_core::backup::PROGRAM;

use crate::error::Error;

/// Under a name of its own first: a container that was killed half-way leaves no half program behind.
pub fn install(directory: &Path) -> Result<(), Error> {
    let target = directory.join(PROGRAM);
    let unfinished = directory.join(format!("{PROGRAM}.unfinished"));
    let installed = std::env::current_exe()
        .and_then(|own| fs::copy(own, &unfinished))
        .and_then(|_| fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&unfinished, &target));
    installed.map_err(|source| Error::Output { doing: format!("write {}", target.display()), source })
}
