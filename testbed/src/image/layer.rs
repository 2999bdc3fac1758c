//! The one layer of an image: the same tar for the same files, whenever and wherever it is made.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tar::{Builder, EntryType, Header};

/// The files of an image by their path, without the leading slash. A directory sorts before what is in it.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Directory { mode: u32 },
    File { source: PathBuf, mode: u32 },
    Text { content: String },
    Link { target: String },
}

impl Layer {
    pub fn directory(&mut self, path: &str, mode: u32) {
        self.insert(path, Entry::Directory { mode });
    }

    pub fn file(&mut self, path: &str, source: PathBuf, mode: u32) {
        self.insert(path, Entry::File { source, mode });
    }

    pub fn text(&mut self, path: &str, content: String) {
        self.insert(path, Entry::Text { content });
    }

    pub fn link(&mut self, path: &str, target: String) {
        self.insert(path, Entry::Link { target });
    }

    /// The later of two entries with one path stays. Directories on the way are made.
    fn insert(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            self.entries.entry(path[..end].to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// Writes the tar. Sources are read as they are copied, never as a whole.
    pub fn write(&self, to: impl Write) -> Result<()> {
        let mut tar = Builder::new(to);
        for (path, entry) in &self.entries {
            append(&mut tar, path, entry).with_context(|| format!("cannot add /{path} to the image"))?;
        }
        tar.into_inner()?;
        Ok(())
    }
}

fn append(tar: &mut Builder<impl Write>, path: &str, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Directory { mode } => {
            tar.append_data(&mut header(EntryType::Directory, *mode, 0), format!("{path}/"), io::empty())?;
        }
        Entry::File { source, mode } => {
            let file = File::open(source).with_context(|| format!("cannot open {}", source.display()))?;
            let about = file.metadata()?;
            ensure!(about.is_file(), "{} is not a file", source.display());
            let mut header = header(EntryType::Regular, *mode, about.len());
            tar.append_data(&mut header, path, file.take(about.len()))
                .with_context(|| format!("cannot copy {}", source.display()))?;
        }
        Entry::Text { content } => {
            let mut header = header(EntryType::Regular, 0o644, content.len() as u64);
            tar.append_data(&mut header, path, content.as_bytes())?;
        }
        Entry::Link { target } => {
            tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
        }
    }
    Ok(())
}

/// Owned by root and of no particular time.
pub fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}
