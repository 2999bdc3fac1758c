//! A disk that returns other bytes than were written.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Replaces a value in the database of an etcd that runs, which reads its data from the file at every access. Returns how often the
/// value was there.
pub fn rot(data_dir: &Path, right: &[u8], wrong: &[u8]) -> io::Result<usize> {
    assert_eq!(right.len(), wrong.len(), "nothing else in the file may move");
    let path = data_dir.join("member/snap/db");
    let bytes = fs::read(&path)?;
    let found =
        bytes.windows(right.len()).enumerate().filter(|(_, it)| *it == right).map(|(at, _)| at as u64);
    let file = File::options().write(true).open(&path)?;
    found.map(|at| file.write_all_at(wrong, at)).try_fold(0, |count, written| written.map(|()| count + 1))
}
