//! A disk that returns other bytes than were written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, ensure};

/// Replaces a value in the database of an etcd that runs, which reads its data from the file at every access. The database is in the
/// directory, or in one below it. Wait after a write: etcd moves pages while it writes, and the new one is in the file a second later.
/// What was written last can be served from memory, until something else is written.
pub fn alter_value(dir: &Path, value: &[u8], to: &[u8]) -> anyhow::Result<()> {
    ensure!(value.len() == to.len(), "nothing else in the file can move");
    let below = fs::read_dir(dir)?.flatten().map(|it| it.path());
    let mut files = [dir.to_path_buf()].into_iter().chain(below).map(|it| it.join("member/snap/db"));
    let path = files.find(|it| it.is_file()).with_context(|| format!("no database in {}", dir.display()))?;
    let bytes = fs::read(&path)?;
    let file = File::options().write(true).open(&path)?;
    let places = bytes.windows(value.len()).enumerate().filter(|(_, it)| *it == value);
    let altered = places.map(|(at, _)| file.write_all_at(to, at as u64)).collect::<Result<Vec<_>, _>>()?;
    ensure!(!altered.is_empty(), "{} does not have the value", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    #[test]
    fn a_value_is_replaced_wherever_it_is_and_nothing_else() {
        let scratch = Scratch::new();
        let file = scratch.dir().join("data/member/snap/db");
        fs::create_dir_all(file.parent().expect("a directory")).expect("created");
        fs::write(&file, "a right value and a right one").expect("written");
        alter_value(scratch.dir(), b"right", b"wrong").expect("it is there");
        assert_eq!(fs::read_to_string(&file).expect("readable"), "a wrong value and a wrong one");
        for (value, to) in [("right", "wrong"), ("wrong", "longer")] {
            assert!(alter_value(scratch.dir(), value.as_bytes(), to.as_bytes()).is_err(), "{value}");
        }
        assert!(alter_value(&scratch.dir().join("data/member"), b"wrong", b"right").is_err());
    }
}
