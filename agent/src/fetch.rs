//! etcd as a child of this process, which receives the data of the others and is ended then.
//!
//! A learner makes itself known as soon as it hears of the leader, and the leader makes the snapshot for it only then.
//! So the learner finds its own announcement in the snapshot, and not among the entries that follow, where it looks
//! for it. It repeats it after seven seconds and serves nobody until then. Started again with the snapshot on its
//! disk, it serves at once.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_operator_core::etcd_config::InitialState;
use etcd_operator_core::start::Member;
use serde_json::Value;

use crate::etcd::{Error, command};
use crate::metrics::applied_index;
use crate::settings::Settings;

const DEADLINE: Duration = Duration::from_secs(1);

/// The etcd that receives, while there is one. Whoever ends this process ends it first.
#[derive(Clone, Default)]
pub struct Receiver {
    child: Arc<Mutex<Option<Child>>>,
}

impl Receiver {
    /// Ends it. As long as the result is held, no other is started and this process does not become etcd.
    ///
    /// It is killed: what it has received was written to its disk before it was applied, and its log is made for a
    /// crash at any moment. It has no clients that would notice.
    pub fn end(&self) -> MutexGuard<'_, Option<Child>> {
        let mut child = self.lock();
        if let Some(mut child) = child.take() {
            // It fails only for one that has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        child
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs etcd until it has applied so many entries. Gigabytes take as long as they take: `wait` is told how far it is,
/// again and again, and pauses.
pub fn until(
    wanted: u64,
    settings: &Settings,
    members: &[Member],
    receiver: &Receiver,
    mut wait: impl FnMut(u64),
) -> Result<(), Error> {
    let failed = |source| Error::Run(settings.etcd.display().to_string(), source);
    let [clients, metrics] = free_addresses(settings.local.listen).map_err(failed)?;
    let mut etcd = command(settings, InitialState::Fetches { members, clients, metrics })?;
    let mut started = receiver.lock();
    let mut child = etcd.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let log = child.stderr.take();
    *started = Some(child);
    drop(started);
    let log = std::thread::spawn(move || log.and_then(pass_on));
    let mut applied = 0;
    while applied < wanted {
        wait(applied);
        let ended = receiver.lock().as_mut().map(Child::try_wait).transpose().map_err(failed)?.flatten();
        if let Some(status) = ended {
            let complaint = log.join().ok().flatten().unwrap_or_else(|| "it logged no error".into());
            return Err(Error::Ended { status, complaint });
        }
        // While it does not tell, it still has what it had.
        applied = applied_index(metrics, DEADLINE).unwrap_or(applied);
    }
    drop(receiver.end());
    // Nothing of its log is lost when this process becomes etcd.
    let _ = log.join();
    Ok(())
}

/// Two addresses that only this pod reaches and that nobody listens on.
fn free_addresses(like: IpAddr) -> io::Result<[SocketAddr; 2]> {
    let own = match like {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
    };
    let (one, other) = (TcpListener::bind((own, 0))?, TcpListener::bind((own, 0))?);
    Ok([one.local_addr()?, other.local_addr()?])
}

/// Copies etcd's log to ours, and gives what etcd died of, if it says so.
fn pass_on(log: impl Read) -> Option<String> {
    let mut died_of = None;
    let mut lines = BufReader::new(log);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let _ = io::stderr().write_all(&line);
        died_of = complaint(&line).or(died_of);
        line.clear();
    }
    died_of
}

fn complaint(line: &[u8]) -> Option<String> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let text = |field: &str| line.get(field).and_then(Value::as_str);
    text("level").filter(|level| ["fatal", "panic"].contains(level))?;
    let words: Vec<&str> = [text("msg"), text("error")].into_iter().flatten().collect();
    Some(words.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_died_of_is_found_in_its_log() {
        let log = concat!(
            r#"{"level":"info","msg":"starting an etcd server"}"#,
            "\n",
            r#"{"level":"fatal","msg":"discovery failed","error":"member count is unequal","stacktrace":"..."}"#,
            "\nexit\n",
        );
        assert_eq!(pass_on(log.as_bytes()).as_deref(), Some("discovery failed: member count is unequal"));
        assert_eq!(pass_on(&b"{\"level\":\"warn\",\"msg\":\"slow\"}\nkilled"[..]), None);
    }

    #[test]
    fn addresses_are_of_the_family_that_the_pod_has() {
        let [clients, metrics] = free_addresses(Ipv4Addr::UNSPECIFIED.into()).expect("there are free ones");
        assert_eq!(clients.ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
        assert_ne!(clients.port(), metrics.port());
    }
}
