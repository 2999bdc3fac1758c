//! The certificate that a user gives for the client port, with its authority.

use etcd_operator_core::observed::Seen;
use etcd_operator_core::tls::{Certificate, Chain, Copy, Given, Key, Leaf, Purpose, Root, Source, Verified};

use crate::etcd::Tick;
use crate::execute::Wanted;
use crate::observe::{time, uid};
use crate::problem::Violation;
use crate::secrets::{EVERYWHERE, Holds, Keys, authority, profiles};
use crate::world::World;

/// A user's certificates outlast every story.
pub const LIFETIME: Tick = 1 << 36;
const SECOND: Tick = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gift {
    /// The key of the authority: no object of Kubernetes has such a number.
    pub authority: u64,
    /// Each certificate has another one.
    pub serial: u64,
    /// Otherwise its key belongs to another certificate.
    pub usable: bool,
}

impl Gift {
    pub const fn new(authority: u64, serial: u64) -> Self {
        Self { authority: (1 << 40) + authority, serial, usable: true }
    }

    pub const fn unusable(self) -> Self {
        Self { usable: false, ..self }
    }

    pub fn source() -> Source {
        Source::Secrets { certificate: "own".into(), authorities: None, issuer: None }
    }

    pub fn fingerprint(serial: u64) -> String {
        format!("given-{serial}")
    }

    pub fn seen(self) -> Given {
        let certificate = Certificate {
            common_name: String::new(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            not_before: time(0),
            not_after: time(LIFETIME),
            signed_by: Some(uid("key", self.authority)),
            trusts: Default::default(),
            fingerprint: Self::fingerprint(self.serial),
        };
        let root =
            Root { authority: authority(self.authority), not_after: time(LIFETIME), is_authority: true };
        let key = if self.usable { Key::Matches } else { Key::Differs };
        Given {
            certificate: Seen::Known(Leaf { certificate, serves: true, connects: true, is_authority: false }),
            authorities: Seen::Known(vec![root]),
            verified: Verified { key, chain: Chain::Complete },
            issuance: None,
        }
    }
}

impl World {
    /// A user corrects what cannot be used.
    pub fn correct_gift(&mut self) {
        let gift = self.kube.objects.cluster.as_ref().and_then(|cluster| cluster.gift);
        if let Some(gift) = gift {
            self.give(Some(Gift { usable: true, ..gift }));
        }
    }

    /// A user gives a certificate, or leaves it to the operator.
    pub fn give(&mut self, gift: Option<Gift>) {
        let Some(cluster) = self.kube.objects.cluster.as_mut().filter(|it| it.tls.client_tls_enabled) else {
            return;
        };
        if cluster.gift != gift {
            cluster.gift = gift;
            cluster.version += 1;
            self.note(|| format!("a user gives a certificate: {gift:?}"));
        }
    }

    /// A certificate of another authority goes live only when everybody trusts that.
    pub fn copied(&mut self, copy: Copy, trusts: Keys, wanted: Wanted) -> Option<Holds> {
        let held = wanted.server.map(Holds::from);
        let gift = match copy {
            Copy::Held => return Some(Holds { trusts, ..held? }),
            Copy::First | Copy::Given => wanted.gift?,
        };
        let holds = Holds {
            signed_by: gift.authority,
            trusts,
            next: None,
            given: Keys::default(),
            copy_of: Some(gift.serial),
        };
        if held.is_some_and(|it| it.signed_by != gift.authority) {
            self.authority_is_trusted(Purpose::Server, wanted.cluster, gift.authority);
            self.clients_trust(gift.authority);
        }
        if !gift.usable {
            self.violate(Violation::UnusableCertificate);
        }
        Some(holds)
    }

    /// Clients read what they trust from time to time.
    fn clients_trust(&mut self, key: u64) {
        let pickup = profiles(EVERYWHERE, self.lifetime, None)[&Purpose::Client].pickup().as_secs();
        let pickup = pickup.unsigned_abs() * 10;
        let client = self.kube.objects.secrets.get(&Purpose::Client);
        // Certificates have their times in whole seconds.
        let has_passed = |since: Tick| self.now + SECOND >= since + pickup;
        let knows = client.is_some_and(|it| it.trusts.contains(key) && has_passed(it.issued));
        let mut pods = self.kube.objects.pods.values();
        let serves_tls = pods.any(|pod| pod.template.form.transport.clients.is_tls());
        if !self.servers.is_empty() && serves_tls && !knows {
            self.violate(Violation::ClientsDistrust);
        }
    }
}
