//! Files that must survive a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Either the old content or the new one is there after a crash, never half of it; and once this returns, the new.
pub fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut file = File::create(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync_directory_of(path)
}

/// Renames are kept by the directory, which has to be written, too.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// What is in the file; none if there is no such file.
pub fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
