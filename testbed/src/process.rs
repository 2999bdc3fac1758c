//! The testbed's long-running processes: started detached and marked, found by the mark, stopped by id.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::layout::{Layout, MARK};
use crate::shell::enter;

/// How much of the log of a daemon that exited is shown.
const EXIT_LOG_LINES: usize = 5;

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
    recorded(layout, name).filter(|&id| is_ours(layout, id))
}

fn recorded(layout: &Layout, name: &str) -> Option<u32> {
    std::fs::read_to_string(layout.pids().join(name)).ok()?.trim().parse().ok()
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

/// Whether a process still holds anything, such as a port.
pub fn alive(id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/status")).is_ok_and(|status| !has_ended(&status))
}

/// A zombie has closed its files once it is the last thread of its process: the first thread can end before others. The
/// program itself, /proc/ID/exe, disappears earlier, while files are still open.
fn has_ended(status: &str) -> bool {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default()
    };
    match field("State").chars().next() {
        Some('X') => true,
        Some('Z') => field("Threads").parse().is_ok_and(|threads: u32| threads <= 1),
        _ => false,
    }
}

/// Waits until one of these daemons is gone, and tells why: the last lines of its log.
pub async fn first_exit(layout: &Layout, names: &[&str]) -> anyhow::Error {
    loop {
        let ended = |name: &&&str| recorded(layout, name).is_some_and(|id| !alive(id));
        if let Some(name) = names.iter().find(ended) {
            let log = std::fs::read_to_string(layout.logs().join(format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(EXIT_LOG_LINES)..].join("\n");
            return anyhow!("{name} exited; the end of its log:\n{last}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_whose_other_threads_run_has_not_ended() {
        let status =
            |state: &str, threads: &str| format!("Name:\tetcd\nState:\t{state}\nThreads:\t{threads}\n");
        assert!(has_ended(&status("Z (zombie)", "1")));
        assert!(has_ended(&status("X (dead)", "1")));
        assert!(!has_ended(&status("Z (zombie)", "2")));
        assert!(!has_ended(&status("S (sleeping)", "1")));
        assert!(!has_ended("Name:\tetcd\n"), "unknown is not gone");
    }

    #[test]
    fn a_process_is_alive_until_it_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        assert!(alive(child.id()));
        child.kill().expect("it runs");
        // Nobody waits for it yet, so it stays as a zombie.
        while alive(child.id()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().expect("it is ours");
        assert!(!alive(child.id()));
    }

    #[tokio::test]
    async fn a_daemon_that_exits_at_once_is_reported_with_its_last_words() {
        let layout = Layout::at(std::env::temp_dir().join(format!("testbed-exit-{}", std::process::id())));
        for directory in [layout.logs(), layout.pids()] {
            std::fs::create_dir_all(directory).expect("a directory");
        }
        let script = "echo starting; echo the port is taken >&2; exit 1";
        Daemon::new("doomed", "sh").argument("-c").argument(script).start(&layout).await.expect("it starts");
        let waiting = tokio::time::timeout(Duration::from_secs(30), first_exit(&layout, &["doomed"]));
        let error = waiting.await.expect("it is noticed").to_string();
        assert!(error.contains("doomed exited") && error.ends_with("the port is taken"), "{error}");
        std::fs::remove_dir_all(layout.dir()).expect("removed");
    }
}
