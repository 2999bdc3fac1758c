//! Makes a member's volume from a snapshot, with etcd's own tool.
//!
//! Data has its final name last, after the identity that says whose it is. So a volume has all of the data or none that an etcd
//! could be started with, whenever this process ends.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use etcd_operator_core::agent::path;
use etcd_operator_core::agent::restoration::{
    DIRECTORY, HIGHEST, RESULT, Restoration, Restored, SNAPSHOT, SnapshotStatus, VARIABLE,
};
use etcd_operator_core::agent::{Protocol, environment};
use etcd_operator_core::start::{Identity, Volume};

use crate::files::{read_if_there, sync_directory_of, write_durably};
use crate::{log, volume};

/// In the image of etcd.
const TOOL: &str = "etcdutl";
/// Of what the tool prints, in an error.
const LAST_BYTES: usize = 1500;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid environment: {VARIABLE}")]
    Input(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot use the volume")]
    Volume(#[source] volume::Error),
    #[error("the volume holds {0}: delete it, and create another EtcdRestore")]
    Occupied(String),
    #[error("cannot run {TOOL}")]
    Run(#[source] io::Error),
    #[error("{TOOL} {doing} failed: {words}")]
    Tool { doing: &'static str, words: String },
    #[error("{TOOL} reported a snapshot that this version cannot read")]
    Report(#[source] serde_json::Error),
    #[error("{TOOL} restored no write-ahead log")]
    NoLog,
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
}

/// Does nothing where it was done before.
pub fn restore() -> Result<Restored, Error> {
    let text = std::env::var(VARIABLE).map_err(|error| Error::Input(error.into()))?;
    let restoration: Restoration = serde_json::from_str(&text).map_err(|error| Error::Input(error.into()))?;
    let directory = std::env::var(environment::VOLUME).unwrap_or_else(|_| path::VOLUME.into());
    onto(Path::new(&directory), &restoration)
}

fn onto(root: &Path, restoration: &Restoration) -> Result<Restored, Error> {
    let found = volume::look(root).map_err(Error::Volume)?;
    if let Some(restored) = complete(root, restoration, &found)? {
        log::info("the volume is complete", &[]);
        remove(&root.join(DIRECTORY))?;
        return Ok(restored);
    }
    let work = root.join(DIRECTORY);
    let (snapshot, data) = (work.join(SNAPSHOT), work.join(path::DATA));
    remove(&data)?;
    let SnapshotStatus { revision, total_size } = status(&snapshot)?;
    log::info("restoring", &[("revision", &revision.to_string()), ("bytes", &total_size.to_string())]);
    let highest = read_if_there(&work.join(HIGHEST));
    let highest = highest.map_err(|source| Error::Write { path: work.join(HIGHEST), source })?;
    let restoration = &restoration.above(revision, highest.and_then(|text| text.trim().parse().ok()));
    let arguments = restoration.arguments(&snapshot.display().to_string(), &data.display().to_string());
    run("snapshot restore", &arguments)?;
    sync_all_below(&data).map_err(|source| Error::Write { path: data.clone(), source })?;
    let bump = restoration.bump_revision.and_then(|bump| i64::try_from(bump).ok()).unwrap_or_default();
    let restored = Restored {
        protocol_version: Protocol::CURRENT,
        restore_uid: restoration.restore_uid.clone(),
        revision,
        served_revision: revision.saturating_add(bump),
        bytes: total_size,
    };
    finish(root, restoration, &data, &restored)?;
    Ok(restored)
}

/// What an earlier attempt has completed. Anything else that could be started is not touched.
fn complete(root: &Path, restoration: &Restoration, found: &Volume) -> Result<Option<Restored>, Error> {
    let Volume { has_log, has_remains, identity } = found;
    let is_ours = identity
        .as_ref()
        .is_some_and(|it| it.cluster_uid == restoration.cluster_uid && it.name == restoration.name);
    if !has_log && !has_remains && (identity.is_none() || is_ours) {
        return Ok(None);
    }
    let result = root.join(RESULT);
    let text = read_if_there(&result).map_err(|source| Error::Write { path: result, source })?;
    let restored: Option<Restored> = text.and_then(|text| serde_json::from_str(&text).ok());
    let owner = |it: &Identity| format!("data of {} (cluster UID {})", it.name, it.cluster_uid);
    restored
        .filter(|it| *has_log && is_ours && it.restore_uid == restoration.restore_uid)
        .map(Some)
        .ok_or_else(|| {
            Error::Occupied(identity.as_ref().map_or_else(|| "data of unknown origin".into(), owner))
        })
}

/// The last rename makes it a volume that etcd can be started on.
fn finish(root: &Path, restoration: &Restoration, data: &Path, restored: &Restored) -> Result<(), Error> {
    if !volume::has_log_in(data).map_err(Error::Volume)? {
        return Err(Error::NoLog);
    }
    let result = root.join(RESULT);
    let text = serde_json::to_vec(restored).expect("text and numbers are always JSON");
    write_durably(&result, &text).map_err(|source| Error::Write { path: result, source })?;
    let identity = Identity {
        cluster_uid: restoration.cluster_uid.clone(),
        name: restoration.name.clone(),
        used_nonces: Default::default(),
        incarnation: None,
    };
    volume::write(root, &identity).map_err(Error::Volume)?;
    let target = root.join(path::DATA);
    // An empty directory can be there.
    let renamed = fs::rename(data, &target).and_then(|()| sync_directory_of(&target));
    renamed.map_err(|source| Error::Write { path: target, source })?;
    volume::keep_private(root).map_err(|source| Error::Write { path: root.join(path::DATA), source })?;
    remove(&root.join(DIRECTORY))
}

fn status(snapshot: &Path) -> Result<SnapshotStatus, Error> {
    let path = snapshot.display().to_string();
    let arguments = ["snapshot", "status", &path, "--write-out=json"].map(str::to_owned);
    let output = run("snapshot status", &arguments)?;
    serde_json::from_slice(&output.stdout).map_err(Error::Report)
}

/// None of its settings come from elsewhere than from us.
fn run(doing: &'static str, arguments: &[String]) -> Result<Output, Error> {
    let mut command = Command::new(TOOL);
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"ETCD") {
            command.env_remove(variable);
        }
    }
    let output = command.args(arguments).stdin(Stdio::null()).output().map_err(Error::Run)?;
    let words = String::from_utf8_lossy(&output.stderr);
    eprint!("{words}");
    if output.status.success() {
        return Ok(output);
    }
    let end = &words[words.ceil_char_boundary(words.len().saturating_sub(LAST_BYTES))..];
    Err(Error::Tool { doing, words: format!("{}: {}", output.status, end.trim()) })
}

fn remove(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::Write { path: directory.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The tool does not promise that everything is on the disk when it ends.
fn sync_all_below(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all_below(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(directory)?.sync_all()
}
