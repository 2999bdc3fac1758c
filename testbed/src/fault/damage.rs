//! A log that is damaged on its disk, as a torn write or a flipped bit leaves it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Of etcd's log, in its data directory.
const DIRECTORY: &str = "wal";
const ENDING: &str = "wal";
const HEAD_BYTES: usize = 8;
const FLIPPED: u8 = 0b0001_0000;

/// Flips one bit of a record in the middle of what etcd has written to the newest file of its log, wherever below this directory
/// that is. The bit is one that a checksum covers: where lengths are wrong, etcd can take the rest for a write that was torn, and
/// drops it. A running etcd does not notice, because it reads its log only when it starts.
pub fn log(below: &Path) -> Result<()> {
    let path =
        newest(below)?.with_context(|| format!("there is no log of etcd below {}", below.display()))?;
    let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let records = records(&content);
    let record = records.get(records.len() / 2);
    let record = record.with_context(|| format!("nothing is written to {}", path.display()))?;
    let last = record.end - 1;
    let file = File::options().write(true).open(&path)?;
    file.write_all_at(&[content[last] ^ FLIPPED], last as u64)?;
    file.sync_all().with_context(|| format!("cannot write {}", path.display()))
}

/// Where the records are. In front of each is its length in 56 bits; if the highest bit is set, three of the others say how many
/// bytes fill it up. The last field of a record is its data. What follows the last record is zero, because etcd allocates it ahead.
fn records(content: &[u8]) -> Vec<Range<usize>> {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some(Ok(head)) = content.get(at..at + HEAD_BYTES).map(<[u8; HEAD_BYTES]>::try_from) {
        let head = u64::from_le_bytes(head);
        let length = (head & (u64::MAX >> 8)) as usize;
        let filled = if head >> 63 == 1 { (head >> 56 & 7) as usize } else { 0 };
        let begin = at + HEAD_BYTES;
        if length == 0 || content.len() - begin < length {
            break;
        }
        records.push(begin..begin + length);
        at = begin + length + filled;
    }
    records
}

/// The names of the files are numbers of the same length.
fn newest(below: &Path) -> Result<Option<PathBuf>> {
    let mut found: Option<PathBuf> = None;
    let mut todo = vec![below.to_owned()];
    while let Some(directory) = todo.pop() {
        let entries = std::fs::read_dir(&directory);
        for entry in entries.with_context(|| format!("cannot list {}", directory.display()))? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            let is_log = directory.file_name().is_some_and(|name| name == DIRECTORY)
                && path.extension().is_some_and(|ending| ending == ENDING);
            if kind.is_dir() {
                todo.push(path);
            } else if is_log && found.as_ref().is_none_or(|newest| *newest < path) {
                found = Some(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    /// Three bytes of filling, and zeros that are allocated ahead.
    fn written(records: &[[u8; 5]]) -> Vec<u8> {
        let head = 5_u64 | 0x83 << 56;
        let framed = records.iter().flat_map(|record| [&head.to_le_bytes()[..], record, &[0; 3]].concat());
        framed.chain([0; 100]).collect()
    }

    #[test]
    fn one_bit_of_a_record_in_the_newest_file_differs() {
        let scratch = Scratch::new();
        let wal = scratch.dir().join("data/member/wal");
        std::fs::create_dir_all(&wal).expect("a directory");
        let (old, new) = (wal.join("0000-00.wal"), wal.join("0001-10.wal"));
        let before = written(&[[1; 5], [2; 5], [3; 5]]);
        for file in [&old, &new, &wal.join("0.tmp")] {
            std::fs::write(file, &before).expect("written");
        }
        log(scratch.dir()).expect("it has a log");
        assert_eq!(std::fs::read(&old).expect("readable"), before);
        let after = written(&[[1; 5], [2, 2, 2, 2, 2 ^ FLIPPED], [3; 5]]);
        assert_eq!(std::fs::read(&new).expect("readable"), after);
    }

    #[test]
    fn without_a_log_there_is_nothing_to_damage() {
        let scratch = Scratch::new();
        assert!(log(scratch.dir()).is_err());
        std::fs::create_dir_all(scratch.dir().join("wal")).expect("a directory");
        std::fs::write(scratch.dir().join("wal/0.wal"), [0; 10]).expect("written");
        assert!(log(scratch.dir()).is_err());
    }
}
