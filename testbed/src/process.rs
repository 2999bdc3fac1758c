//! The testbed's long-running processes: started detached and marked, found by the mark, stopped by id.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::layout::{Layout, MARK};
use crate::shell::enter;

/// A program to be started and left running.
pub struct Daemon {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    namespace: Option<String>,
}

impl Daemon {
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), program: program.into(), arguments: Vec::new(), namespace: None }
    }

    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// `--name=value`
    pub fn flag(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.argument(format!("--{name}={value}"))
    }

    pub fn file(self, name: &str, path: impl AsRef<Path>) -> Self {
        self.flag(name, path.as_ref().display())
    }

    pub fn in_namespace(mut self, namespace: Option<String>) -> Self {
        self.namespace = namespace;
        self
    }

    /// Starts it in a session of its own, so that it outlives us and our terminal.
    /// Its output goes to the instance's logs, its id to the instance's pids.
    pub async fn start(self, layout: &Layout) -> Result<u32> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(layout.logs().join(format!("{}.log", self.name)))
            .with_context(|| format!("cannot open the log of {}", self.name))?;
        let mut words = enter(self.namespace.as_deref());
        words.push(self.program.display().to_string());
        words.extend(self.arguments);
        let child = Command::new("setsid")
            .args(&words)
            .env(MARK, layout.dir())
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        let id = child.id().with_context(|| format!("{} exited immediately", self.name))?;
        std::fs::write(layout.pids().join(&self.name), id.to_string())
            .with_context(|| format!("cannot record the id of {}", self.name))?;
        Ok(id)
    }
}

/// The recorded id of a daemon, if that process is still there and still ours.
pub fn running(layout: &Layout, name: &str) -> Option<u32> {
    let id = std::fs::read_to_string(layout.pids().join(name)).ok()?.trim().parse().ok()?;
    is_ours(layout, id).then_some(id)
}

/// Every process that carries the instance's mark: daemons, and what they started (containerd's shims).
pub fn ours(layout: &Layout) -> Vec<u32> {
    all_ids().filter(|&id| is_ours(layout, id)).collect()
}

/// All process ids of the machine.
pub fn all_ids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn is_ours(layout: &Layout, id: u32) -> bool {
    let mark = [MARK.as_bytes(), b"=", layout.dir().as_os_str().as_encoded_bytes()].concat();
    alive(id)
        && std::fs::read(format!("/proc/{id}/environ"))
            .is_ok_and(|environment| environment.split(|&byte| byte == 0).any(|entry| entry == mark))
}

/// Whether a process runs. A zombie does not: it keeps its directory in /proc but has no program any more.
pub fn alive(id: u32) -> bool {
    std::fs::read_link(format!("/proc/{id}/exe")).is_ok()
}

/// Sends a signal to one process; one that is gone already is fine.
pub fn signal(id: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw).context("not a process id")?;
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot signal process {id}")),
    }
}

/// Kills processes and waits until they are gone.
pub async fn kill_and_wait(ids: &[u32]) -> Result<()> {
    for &id in ids {
        signal(id, Signal::KILL)?;
    }
    wait_gone(ids).await
}

pub async fn wait_gone(ids: &[u32]) -> Result<()> {
    let what =
        || format!("processes {:?} did not exit", ids.iter().filter(|&&id| alive(id)).collect::<Vec<_>>());
    until(Duration::from_secs(10), Duration::from_millis(20), what, async || {
        Ok(ids.iter().all(|&id| !alive(id)))
    })
    .await
}

/// Asks again and again until the answer is yes; an error counts as "not yet" and is told at the end.
pub async fn until(
    limit: Duration,
    pause: Duration,
    what: impl Fn() -> String,
    mut ask: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = ask().await;
        if matches!(answer, Ok(true)) {
            return Ok(());
        }
        if began.elapsed() > limit {
            return match answer {
                Err(error) => Err(error.context(format!("timed out after {limit:?}: {}", what()))),
                Ok(_) => bail!("timed out after {limit:?}: {}", what()),
            };
        }
        tokio::time::sleep(pause).await;
    }
}
