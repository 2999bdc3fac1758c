//! What the ports of pods showed, and when they are asked again: often only while they show something else than their Secrets
//! hold, because etcd logs a warning for each handshake on the peer port.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::elapsed;
use crate::observed::{Handshake, Seen};
use crate::tls::Purpose;

/// While a port shows something else than its Secret holds.
const DIFFERING_EVERY: Duration = Duration::from_secs(2);
/// In a pod, files only become newer: what was found once stays.
const SETTLED_EVERY: Duration = Duration::from_secs(3600);

pub type Handshakes = BTreeMap<Purpose, Seen<Handshake, String>>;

/// By the UIDs of pods.
#[derive(Clone, Debug, Default)]
pub struct Shown(BTreeMap<String, (Timestamp, Handshakes)>);

impl Shown {
    /// Whether to ask this pod, whose ports should show this.
    pub(super) fn is_due(&self, pod: &str, wanted: &BTreeMap<Purpose, Handshake>, now: Timestamp) -> bool {
        let Some((at, shown)) = self.0.get(pod) else { return true };
        let rest = if shown.values().any(|it| it.known().is_none()) || shown.len() < wanted.len() {
            Duration::ZERO
        } else if wanted.iter().all(|(it, wanted)| shown.get(it).and_then(Seen::known) == Some(wanted)) {
            SETTLED_EVERY
        } else {
            DIFFERING_EVERY
        };
        elapsed(*at, now) >= rest
    }

    /// Forgets pods that are gone.
    pub(super) fn note(
        &mut self,
        pods: &BTreeSet<&String>,
        shown: impl Iterator<Item = (String, Handshakes)>,
        now: Timestamp,
    ) {
        self.0.retain(|pod, _| pods.contains(pod));
        self.0.extend(shown.map(|(pod, shown)| (pod, (now, shown))));
    }

    pub(super) fn of(&self, pod: &str) -> Handshakes {
        self.0.get(pod).map(|(_, shown)| shown.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(certificate: &str) -> Handshake {
        Handshake { certificate: certificate.into(), trusts: BTreeSet::from(["a".into()]) }
    }

    #[test]
    fn a_port_is_asked_until_it_shows_what_it_should_and_then_seldom() {
        let wanted = BTreeMap::from([(Purpose::Peer, handshake("new"))]);
        let uid = String::from("uid-0");
        let due = |shown: Seen<Handshake, String>, seconds| {
            let mut memory = Shown::default();
            assert!(memory.is_due(&uid, &wanted, Timestamp::UNIX_EPOCH), "nothing is known yet");
            let found = (uid.clone(), BTreeMap::from([(Purpose::Peer, shown)]));
            memory.note(&BTreeSet::from([&uid]), std::iter::once(found), Timestamp::UNIX_EPOCH);
            memory.is_due(&uid, &wanted, Timestamp::from_second(seconds).expect("a time"))
        };
        let unknown = || Seen::Unknown("connection refused".into());
        assert!(due(unknown(), 0));
        assert_eq!([1, 2].map(|it| due(Seen::Known(handshake("old")), it)), [false, true]);
        assert_eq!([3599, 3600].map(|it| due(Seen::Known(handshake("new")), it)), [false, true]);
    }

    #[test]
    fn what_a_pod_showed_is_forgotten_with_it() {
        let (mut memory, uid) = (Shown::default(), String::from("uid-0"));
        let found = (uid.clone(), BTreeMap::from([(Purpose::Peer, Seen::Known(handshake("new")))]));
        memory.note(&BTreeSet::from([&uid]), std::iter::once(found.clone()), Timestamp::UNIX_EPOCH);
        assert_eq!(memory.of(&uid), found.1);
        memory.note(&BTreeSet::new(), std::iter::empty(), Timestamp::UNIX_EPOCH);
        assert!(memory.of(&uid).is_empty());
    }
}
