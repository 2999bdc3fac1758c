//! The addresses of the other pods: from the operator, and from the DNS name of the peer Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use etcd_operator_core::etcd_config::PEER_PORT;
use etcd_operator_core::start::{Evidence, MemberList};

const AGAIN: Duration = Duration::from_secs(1);
/// Nearly every response is there by then.
const FIRST_ANSWERS: Duration = Duration::from_millis(200);

/// The addresses of a name, looked up repeatedly in the background until this is dropped: a resolver can take seconds.
pub struct Lookup {
    result: Arc<(Mutex<Option<BTreeSet<IpAddr>>>, Condvar)>,
}

impl Lookup {
    pub fn begin(host: &str) -> Self {
        let result = Arc::new((Mutex::new(None), Condvar::new()));
        let (host, wanted) = (absolute(host), Arc::downgrade(&result));
        std::thread::spawn(move || {
            loop {
                let addresses = (host.as_str(), PEER_PORT).to_socket_addrs();
                let Some(shared) = wanted.upgrade() else { return };
                let (found, changed) = &*shared;
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                match addresses {
                    Ok(addresses) => *found = Some(addresses.map(|address| address.ip()).collect()),
                    // What was found before is still the best guess.
                    Err(_) => *found = found.take().or_else(|| Some(BTreeSet::new())),
                }
                changed.notify_all();
                drop(found);
                drop(shared);
                std::thread::sleep(AGAIN);
            }
        });
        Self { result }
    }

    /// None if nothing has come back yet.
    pub fn found(&self) -> Option<BTreeSet<IpAddr>> {
        self.result.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, but waits for the first response.
    pub fn found_within(&self, limit: Duration) -> BTreeSet<IpAddr> {
        let (found, changed) = &*self.result;
        let found = found.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(found, limit, |found| found.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone().unwrap_or_default()
    }
}

/// The names of members, each looked up on its own.
#[derive(Default)]
pub struct Names {
    lookups: BTreeMap<String, Lookup>,
}

impl Names {
    /// The addresses of the members that could be joined. No name is looked up before there is a list to join by: a name
    /// that does not exist yet would be cached as missing.
    pub fn of_those_to_join(&mut self, evidence: &Evidence) -> BTreeMap<String, BTreeSet<IpAddr>> {
        let confirmed = evidence.lists().filter(|list| list.confirmed);
        self.follow(&confirmed.flat_map(MemberList::started_hosts).collect())
    }

    /// The addresses of each of these. Only these are looked up from now on.
    fn follow(&mut self, hosts: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<IpAddr>> {
        self.lookups.retain(|host, _| hosts.contains(host));
        for host in hosts {
            self.lookups.entry(host.clone()).or_insert_with(|| Lookup::begin(host));
        }
        let until = Instant::now() + FIRST_ANSWERS;
        let found = |lookup: &Lookup| lookup.found_within(until.saturating_duration_since(Instant::now()));
        self.lookups.iter().map(|(host, lookup)| (host.clone(), found(lookup))).collect()
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
    fn only_the_names_that_are_asked_for_are_followed() {
        let mut names = Names::default();
        let found = names.follow(&["127.0.0.1", "127.0.0.2"].map(String::from).into());
        assert_eq!(found["127.0.0.2"], BTreeSet::from([IpAddr::from([127, 0, 0, 2])]));
        assert_eq!(names.follow(&["127.0.0.1"].map(String::from).into()).len(), 1);
        assert!(names.follow(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn names_are_absolute() {
        assert_eq!(absolute("kv-peer.ns.svc.cluster.local"), "kv-peer.ns.svc.cluster.local.");
        assert_eq!(absolute("kv-peer.ns.svc.cluster.local."), "kv-peer.ns.svc.cluster.local.");
        assert_eq!(absolute("127.0.0.1"), "127.0.0.1");
        assert_eq!(absolute("::1"), "::1");
    }
}
