//! ConfigMaps and Secrets as files, written as a kubelet writes them: all files of a volume change at once.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret, Volume};
use kube::runtime::reflector::ObjectRef;

use super::Node;

/// What the files of a volume are links into. It is a link itself, to the directory that has them now.
const DATA: &str = "..data";

type Files = BTreeMap<String, Vec<u8>>;

/// A pod does not start without it, unless it is optional: what is missing has no files then.
pub struct Source {
    object: Object,
    optional: bool,
    /// The files of these keys, if not those of all.
    items: Option<Vec<KeyToPath>>,
}

enum Object {
    ConfigMap(ObjectRef<ConfigMap>),
    Secret(ObjectRef<Secret>),
}

impl Source {
    /// None for a volume of another kind.
    pub fn of(volume: &Volume, namespace: &str) -> Option<Self> {
        let (object, optional, items) = match (&volume.config_map, &volume.secret) {
            (Some(it), _) => {
                (Object::ConfigMap(ObjectRef::new(&it.name).within(namespace)), it.optional, it.items.clone())
            }
            (None, Some(it)) => {
                let name = it.secret_name.as_deref()?;
                (Object::Secret(ObjectRef::new(name).within(namespace)), it.optional, it.items.clone())
            }
            (None, None) => return None,
        };
        Some(Self { object, optional: optional == Some(true), items })
    }

    fn files(&self, node: &Node) -> Option<Files> {
        let files = match self.object.data(node) {
            None if !self.optional => return None,
            found => found.unwrap_or_default(),
        };
        let Some(items) = &self.items else { return Some(files) };
        let named = items.iter().map(|item| Some((item.path.clone(), files.get(&item.key)?.clone())));
        // A key that is missing is as bad as a missing object.
        named.collect()
    }
}

impl Object {
    fn data(&self, node: &Node) -> Option<Files> {
        match self {
            Self::ConfigMap(object) => {
                let data = node.config_maps.get(object)?.data.clone().unwrap_or_default();
                Some(data.into_iter().map(|(name, text)| (name, text.into_bytes())).collect())
            }
            Self::Secret(object) => {
                let data = node.secrets.get(object)?.data.clone().unwrap_or_default();
                Some(data.into_iter().map(|(name, bytes)| (name, bytes.0)).collect())
            }
        }
    }
}

pub struct Projected {
    source: Source,
    path: PathBuf,
    written: Option<Files>,
    /// How often it was.
    times: u32,
    /// What it is to be next, and since when that is known.
    next: Option<(Files, Instant)>,
}

impl Projected {
    pub fn new(source: Source, path: PathBuf) -> Self {
        Self { source, path, written: None, times: 0, next: None }
    }

    pub fn can_be_written(&self, node: &Node) -> bool {
        self.written.is_some() || self.source.files(node).is_some()
    }

    /// Writes what has been known for longer than the delay. Of an object that is gone, what was written stays.
    pub fn refresh(&mut self, node: &Node, delay: Duration) -> Result<()> {
        let files = self.source.files(node).filter(|files| self.written.as_ref() != Some(files));
        let Some(files) = files else {
            self.next = None;
            return Ok(());
        };
        let next = self.next.take().filter(|(known, _)| *known == files);
        let (files, since) = next.unwrap_or_else(|| (files, Instant::now()));
        if since.elapsed() < delay {
            self.next = Some((files, since));
            return Ok(());
        }
        self.times += 1;
        let volume = self.path.display();
        write(&self.path, &files, self.times).with_context(|| format!("cannot write volume {volume}"))?;
        self.written = Some(files);
        Ok(())
    }
}

/// Into a directory of its own, which then takes the place of the one before.
fn write(volume: &Path, files: &Files, times: u32) -> io::Result<()> {
    let (name, data) = (format!("..{times}"), volume.join(DATA));
    let before = fs::read_link(&data).ok();
    let directory = volume.join(&name);
    fs::create_dir(&directory)?;
    files.iter().try_for_each(|(file, content)| fs::write(directory.join(file), content))?;
    let swapped = volume.join("..data_tmp");
    symlink(&name, &swapped)?;
    fs::rename(&swapped, &data)?;
    for file in files.keys() {
        let linked = symlink(Path::new(DATA).join(file), volume.join(file));
        linked.or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })?;
    }
    for entry in fs::read_dir(volume)? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        if !file.starts_with("..") && !files.contains_key(&file) {
            fs::remove_file(volume.join(file))?;
        }
    }
    before.map_or(Ok(()), |before| fs::remove_dir_all(volume.join(before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        entries.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    /// What a process finds in the volume.
    fn found(volume: &Path) -> Files {
        let entries =
            fs::read_dir(volume).expect("it is a directory").map(|it| it.expect("an entry").file_name());
        let names = entries.map(|it| it.to_string_lossy().into_owned()).filter(|it| !it.starts_with(".."));
        names.map(|name| (name.clone(), fs::read(volume.join(name)).expect("it leads to a file"))).collect()
    }

    #[test]
    fn all_files_of_a_volume_change_at_once_and_nothing_of_before_is_left() {
        let volume = std::env::temp_dir().join(format!("projected-{}", std::process::id()));
        fs::create_dir(&volume).expect("it is new");
        let (first, second) = (files(&[("a", "1"), ("b", "1")]), files(&[("a", "2"), ("c", "2")]));
        write(&volume, &first, 1).expect("it can be written");
        assert_eq!(found(&volume), first);
        // Whoever has read where the files are finds the old ones together, or none.
        let old = fs::canonicalize(volume.join("a")).expect("it is there");
        write(&volume, &second, 2).expect("it can be written");
        assert_eq!(found(&volume), second);
        assert!(!old.exists());
        fs::remove_dir_all(&volume).expect("it was there");
    }
}
