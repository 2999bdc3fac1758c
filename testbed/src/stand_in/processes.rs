//! Members as bare processes, without Kubernetes: each has an address on loopback of its own, because the ports are
//! always the same, and a log. They end with the value that they belong to, however a test ends.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::Signal;

use crate::process::signal;

/// How much of a log is shown when a test fails.
const SHOWN_LINES: usize = 30;

/// Lets a process write into a file, behind what is in there.
pub fn log_to(command: &mut Command, log: &Path) -> io::Result<()> {
    let log = File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(())
}

pub struct Processes {
    directory: PathBuf,
    network: [u8; 3],
    running: Vec<Option<Child>>,
}

impl Processes {
    /// With a directory and a network of their own.
    pub fn new(label: &str) -> io::Result<Self> {
        Self::below(&std::env::temp_dir(), label)
    }

    /// With a directory of their own in another place than usual.
    pub fn below(parent: &Path, label: &str) -> io::Result<Self> {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = parent.join(format!("{label}-{process}-{count}"));
        fs::create_dir_all(&directory)?;
        let [.., high, low] = process.to_be_bytes();
        Ok(Self { directory, network: [127, 20 + (high ^ low) % 200, count], running: Vec::new() })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn address(&self, ordinal: u8) -> IpAddr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, 1 + ordinal).into()
    }

    pub fn start(&mut self, ordinal: u8, mut command: Command) -> io::Result<()> {
        log_to(&mut command, &self.log_file(ordinal))?;
        let index = usize::from(ordinal);
        if self.running.len() <= index {
            self.running.resize_with(index + 1, || None);
        }
        self.running[index] = Some(command.spawn()?);
        Ok(())
    }

    /// Of one that was started and not killed.
    pub fn id(&self, ordinal: u8) -> u32 {
        self.child(ordinal).id()
    }

    pub fn signal(&self, ordinal: u8, what: Signal) {
        signal(self.id(ordinal), what).expect("it is ours");
    }

    pub fn kill(&mut self, ordinal: u8) {
        let mut child = self.running[usize::from(ordinal)].take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }

    /// How it ended, if it did.
    pub fn ended(&mut self, ordinal: u8) -> Option<ExitStatus> {
        let child = self.running[usize::from(ordinal)].as_mut().expect("it was started");
        let ended = child.try_wait().expect("it is ours")?;
        self.running[usize::from(ordinal)] = None;
        Some(ended)
    }

    pub fn log(&self, ordinal: u8) -> String {
        fs::read_to_string(self.log_file(ordinal)).unwrap_or_default()
    }

    fn log_file(&self, ordinal: u8) -> PathBuf {
        self.directory.join(format!("log-{ordinal}"))
    }

    fn child(&self, ordinal: u8) -> &Child {
        self.running[usize::from(ordinal)].as_ref().expect("it runs")
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for ordinal in 0..u8::try_from(self.running.len()).unwrap_or(u8::MAX) {
                let log = self.log(ordinal);
                let lines: Vec<&str> = log.lines().collect();
                let end = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
                eprintln!("--- process {ordinal}\n{}", end.join("\n"));
            }
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}
