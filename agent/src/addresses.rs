//! Where the other pods are: what the operator told, and what the peer Service's name says.

use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_core::etcd_config::PEER_PORT;

const AGAIN: Duration = Duration::from_secs(1);

/// The addresses that a name has, looked up again and again in the background: a resolver may take seconds.
pub struct Lookup {
    result: Arc<(Mutex<Option<BTreeSet<IpAddr>>>, Condvar)>,
}

impl Lookup {
    pub fn begin(host: &str) -> Self {
        let result = Arc::new((Mutex::new(None), Condvar::new()));
        let (host, shared) = (absolute(host), Arc::clone(&result));
        std::thread::spawn(move || {
            let (found, changed) = &*shared;
            loop {
                let addresses = (host.as_str(), PEER_PORT).to_socket_addrs();
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                match addresses {
                    Ok(addresses) => *found = Some(addresses.map(|address| address.ip()).collect()),
                    // What was found before is still the best guess.
                    Err(_) => *found = found.take().or_else(|| Some(BTreeSet::new())),
                }
                changed.notify_all();
                drop(found);
                std::thread::sleep(AGAIN);
            }
        });
        Self { result }
    }

    /// None if nothing has come back yet.
    pub fn found(&self) -> Option<BTreeSet<IpAddr>> {
        self.result.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, but the first answer is waited for.
    pub fn found_within(&self, limit: Duration) -> BTreeSet<IpAddr> {
        let (found, changed) = &*self.result;
        let found = found.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(found, limit, |found| found.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone().unwrap_or_default()
    }
}

/// With a dot at the end, no search domain is tried first.
fn absolute(host: &str) -> String {
    let complete = host.parse::<IpAddr>().is_ok() || host.ends_with('.');
    if complete { host.to_owned() } else { format!("{host}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_they_are() {
        assert_eq!(absolute("kv-peer.ns.svc.cluster.local"), "kv-peer.ns.svc.cluster.local.");
        assert_eq!(absolute("kv-peer.ns.svc.cluster.local."), "kv-peer.ns.svc.cluster.local.");
        assert_eq!(absolute("127.0.0.1"), "127.0.0.1");
        assert_eq!(absolute("::1"), "::1");
    }
}
