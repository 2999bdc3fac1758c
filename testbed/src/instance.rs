//! What is known of one instance beyond its processes: a record in its directory, first to come and last to go.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::build::Programs;
use crate::control_plane::Addresses;
use crate::dns::DnsProfile;
use crate::layout::Layout;
use crate::process;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub kind: Kind,
    pub addresses: Addresses,
    pub programs: Programs,
    /// Whether it came up completely.
    pub ready: bool,
    /// The process that brings it up or, for one that lives as long as a test, uses it.
    pub owner: Option<Owner>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Cluster(Config),
    ApiOnly,
}

/// What can be chosen of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    pub nodes: u8,
    pub dns: DnsProfile,
}

/// A process, told from a later one with the same id by its start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    id: u32,
    started: String,
}

impl Owner {
    pub fn this_process() -> Self {
        let id = std::process::id();
        Self { id, started: start_time(id).unwrap_or_default() }
    }

    fn lives(&self) -> bool {
        process::alive(self.id) && start_time(self.id).as_ref() == Some(&self.started)
    }
}

/// Ticks since boot at which a process started. Fields are counted after the name, which may hold spaces.
fn start_time(id: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19).map(String::from)
}

impl Record {
    pub fn load(layout: &Layout) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(layout.dir().join("instance.json")).ok()?).ok()
    }

    pub fn save(&self, layout: &Layout) -> Result<()> {
        let path = layout.dir().join("instance.json");
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, serde_json::to_vec_pretty(self)?)
            .context("cannot write the instance's record")?;
        std::fs::rename(&temporary, &path).context("cannot replace the instance's record")
    }

    /// Makes the instance's directory. It appears with the record in it, so that nobody mistakes it for a left-over.
    pub fn create(&self, layout: &Layout) -> Result<()> {
        let unnamed = layout.unfinished();
        let parts = ["logs", "pids", "pki", "volumes", "images", "faults"];
        for dir in parts.map(|part| unnamed.dir().join(part)) {
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        self.save(&unnamed)?;
        std::fs::rename(unnamed.dir(), layout.dir())
            .with_context(|| format!("cannot create {}", layout.dir().display()))
    }
}

/// The condition an instance's directory is in.
#[derive(Debug, PartialEq, Eq)]
pub enum Condition {
    Absent,
    /// Another process is bringing it up, or uses it.
    InUse,
    Running,
    /// It was not brought up to the end, its owner is gone, or its processes are.
    LeftOver,
}

pub fn condition(layout: &Layout) -> Condition {
    if !layout.exists() {
        return Condition::Absent;
    }
    let Some(record) = Record::load(layout) else { return Condition::LeftOver };
    match &record.owner {
        Some(owner) if owner.lives() => Condition::InUse,
        Some(_) => Condition::LeftOver,
        None if record.ready && (all_run(layout) || fault_in_effect(layout)) => Condition::Running,
        None => Condition::LeftOver,
    }
}

/// Whether every daemon that was started still runs.
pub fn all_run(layout: &Layout) -> bool {
    daemons(layout).iter().all(|name| process::running(layout, name).is_some())
}

/// The names of all daemons that were started.
pub fn daemons(layout: &Layout) -> Vec<String> {
    let entries = std::fs::read_dir(layout.pids()).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// While a fault is in effect, missing daemons are what was asked for.
fn fault_in_effect(layout: &Layout) -> bool {
    std::fs::read_dir(layout.faults()).is_ok_and(|mut entries| entries.next().is_some())
}
