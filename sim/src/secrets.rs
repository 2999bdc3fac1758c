//! Secrets with certificates: which authority signed what, what pods and operators know of them, and what must never happen.

use std::collections::BTreeMap;

use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{self, Seen};
use etcd_operator_core::tls::{self, Certificate, Profiles, Purpose, Transport};

use crate::etcd::Tick;
use crate::execute::Wanted;
use crate::kube::{Cluster, Kube, Objects};
use crate::observe::{time, uid};
use crate::problem::Violation;
use crate::random::Random;
use crate::world::World;

/// How long an operator keeps what it has read, unless it has written since.
const KEPT: Tick = 600;
/// The same while a Secret is missing.
const KEPT_INCOMPLETE: Tick = 10;
/// How often, out of a thousand ticks, a kubelet mounts Secrets, or brings new ones into a pod that runs.
const MOUNTED: u64 = 300;
const REFRESHED: u64 = 5;

pub const EVERYWHERE: Transport = Transport::TLS;

/// What it holds is known by the key that signed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret {
    pub uid: u64,
    pub version: u64,
    /// The EtcdCluster that owns it, by its UID.
    pub cluster: u64,
    /// An authority signs itself.
    pub signed_by: u64,
    pub issued: Tick,
    pub expires: Tick,
}

pub type Secrets = BTreeMap<Purpose, Secret>;

/// The keys of the authorities for peers and for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authorities {
    peers: Option<u64>,
    clients: Option<u64>,
}

impl Authorities {
    /// Those in their own Secrets.
    pub fn of(secrets: &Secrets) -> Self {
        let key = |purpose| secrets.get(&purpose).map(|it| it.signed_by);
        Self { peers: key(Purpose::PeerAuthority), clients: key(Purpose::ClientAuthority) }
    }

    /// Those that a pod trusts with these Secrets, in which each certificate comes with its authority.
    fn trusted(secrets: &Secrets) -> Self {
        let key = |purpose| secrets.get(&purpose).map(|it| it.signed_by);
        Self { peers: key(Purpose::Peer), clients: key(Purpose::Server) }
    }

    /// The one that this is issued by, or that it is.
    pub fn over(self, purpose: Purpose) -> Option<u64> {
        if purpose.issuer().unwrap_or(purpose) == Purpose::PeerAuthority { self.peers } else { self.clients }
    }
}

pub fn needed(transport: Transport) -> impl Iterator<Item = Purpose> {
    Purpose::ALL.into_iter().filter(move |it| it.is_needed(transport))
}

/// Names in certificates never differ here, so there are none, and nothing has to compare them.
pub fn profiles(transport: Transport, lifetime: Option<Tick>) -> Profiles {
    let names = Names { namespace: String::new(), cluster: String::new(), domain: String::new() };
    let mut profiles = if transport.is_plain() { Profiles::new() } else { tls::profiles(&names, transport) };
    for (purpose, profile) in &mut profiles {
        (profile.common_name, profile.dns_names, profile.ip_addresses) = Default::default();
        if let Some(ticks) = lifetime.filter(|_| purpose.issuer().is_some()) {
            profile.validity_seconds = ticks / 10;
        }
    }
    profiles
}

impl Secret {
    pub fn seen(&self) -> observed::Secret {
        let key = uid("key", self.signed_by);
        let certificate = Certificate {
            common_name: String::new(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            not_before: time(self.issued),
            not_after: time(self.expires),
            trusts: [key.clone()].into(),
            signed_by: Some(key),
        };
        observed::Secret { uid: uid("secret", self.uid), certificate: Seen::Known(certificate) }
    }
}

impl Objects {
    /// What pods are made with, as [`etcd_operator_core::observe::Objects::transport`] has it.
    pub fn transport(&self) -> Option<Transport> {
        let cluster = self.cluster.as_ref()?.uid;
        let recorded = self.record.filter(|it| it.cluster == cluster).map(|it| it.form.transport);
        let of_set = self.set.map(|it| it.spec.template).filter(|it| it.cluster == cluster);
        let mut of_pods = self.pods.values().map(|it| it.template).filter(|it| it.cluster == cluster);
        recorded.or_else(|| Some(of_set.or_else(|| of_pods.next())?.form.transport))
    }
}

/// What an operator has read. It may neither list nor watch Secrets.
#[derive(Clone, Debug, Default)]
pub struct Known {
    cluster: u64,
    secrets: Secrets,
    read_at: Option<Tick>,
}

impl Known {
    /// Those of a cluster, read now if that is due.
    pub fn read(&mut self, cluster: &Cluster, transport: Transport, live: &Objects, now: Tick) -> Secrets {
        if self.cluster != cluster.uid {
            *self = Self { cluster: cluster.uid, ..Self::default() };
        }
        let complete = needed(transport).all(|it| self.secrets.contains_key(&it));
        let kept = if complete { KEPT } else { KEPT_INCOMPLETE };
        if !transport.is_plain() && self.read_at.is_none_or(|read_at| now - read_at >= kept) {
            let ours = live.secrets.iter().filter(|(_, it)| it.cluster == cluster.uid);
            self.secrets = ours.map(|(&purpose, &secret)| (purpose, secret)).collect();
            self.read_at = Some(now);
        }
        let mut known = self.secrets.clone();
        known.retain(|it, _| !cluster.deleting && it.is_needed(transport));
        known
    }

    /// The response to a write has the Secret; without one nothing is certain.
    pub fn wrote(&mut self, purpose: Purpose, secret: Option<Secret>) {
        match secret {
            Some(secret) => drop(self.secrets.insert(purpose, secret)),
            None => self.read_at = None,
        }
    }
}

impl Kube {
    /// No container starts before all its Secrets are mounted, whoever owns them. Later the kubelet brings new ones into the
    /// pod; that one is deleted changes nothing in there.
    pub(crate) fn mount_secrets(&mut self, random: &mut Random, now: Tick) {
        let Self { objects, sandboxes, nodes_down, .. } = self;
        let there =
            |purpose: Purpose| purpose.directory().is_none() || objects.secrets.contains_key(&purpose);
        for sandbox in sandboxes.values_mut() {
            let transport = sandbox.template.form.transport;
            let up = !nodes_down.contains_key(&sandbox.node);
            let often = if sandbox.mounted.is_none() { MOUNTED } else { REFRESHED };
            if transport.is_plain() || !up || !random.chance(often) || !needed(transport).all(there) {
                continue;
            }
            if sandbox.mounted.is_none() {
                sandbox.starts = now + random.between(1, 15);
                sandbox.published_from = now + random.between(0, 10);
            }
            sandbox.mounted = Some(Authorities::trusted(&objects.secrets));
        }
    }
}

impl World {
    /// The keys of an authority and of a leaf are new; a leaf is signed by the authority that was read.
    pub fn issue(&mut self, purpose: Purpose, wanted: Wanted) -> Result<(), &'static str> {
        let cluster = wanted.cluster;
        let key = match purpose.issuer() {
            None => self.kube.uid(),
            Some(_) => wanted.authorities.over(purpose).ok_or("the authority's Secret is missing")?,
        };
        let is_authority = purpose.issuer().is_none();
        // Nothing keeps a late request from creating what a user has deleted since.
        if !(wanted.late && is_authority) {
            self.authority_is_trusted(purpose, cluster, key);
            if is_authority {
                self.kube.backups.insert((cluster, purpose), key);
            }
        }
        self.store(purpose, cluster, key);
        Ok(())
    }

    fn store(&mut self, purpose: Purpose, cluster: u64, signed_by: u64) {
        let lifetime = profiles(EVERYWHERE, self.lifetime)[&purpose].validity_seconds * 10;
        let before = self.kube.objects.secrets.get(&purpose).copied();
        let (uid, version) = before.map_or_else(|| (self.kube.uid(), 1), |it| (it.uid, it.version + 1));
        let (issued, expires) = (self.now, self.now + lifetime);
        let secret = Secret { uid, version, cluster, signed_by, issued, expires };
        self.kube.objects.secrets.insert(purpose, secret);
    }

    /// Whoever runs reads authorities only when it starts. So neither an authority nor what it signs is replaced by another
    /// one under pods that run.
    fn authority_is_trusted(&mut self, purpose: Purpose, cluster: u64, key: u64) {
        let running = self.kube.sandboxes.iter().filter(|(it, _)| self.servers.contains_key(it));
        let own = running.filter(|(_, sandbox)| sandbox.template.cluster == cluster);
        let others =
            own.filter_map(|(_, sandbox)| sandbox.trusts.over(purpose)).any(|trusted| trusted != key);
        if others {
            self.violate(Violation::OtherAuthority(purpose));
        }
    }

    pub fn delete_secret(&mut self, purpose: Purpose) {
        if self.kube.objects.secrets.remove(&purpose).is_some() {
            self.note(|| format!("a user deletes the Secret of {purpose:?}"));
        }
    }

    /// A user who deleted an authority that is in use has a copy of it.
    pub fn restore_authorities(&mut self) {
        let objects = &self.kube.objects;
        let Some(cluster) = objects.cluster.as_ref().filter(|cluster| !cluster.deleting) else { return };
        let (cluster, transport) = (cluster.uid, objects.transports());
        for purpose in needed(transport).filter(|it| it.issuer().is_none()) {
            let secrets = &self.kube.objects.secrets;
            let mut leafs =
                secrets.iter().filter(|(it, leaf)| it.issuer() == Some(purpose) && leaf.cluster == cluster);
            let signer = leafs.next().map(|(_, leaf)| leaf.signed_by);
            let backup = signer.or(self.kube.backups.get(&(cluster, purpose)).copied());
            let there = secrets.get(&purpose).map(|it| it.signed_by);
            if let Some(key) = backup.filter(|key| there != Some(*key)) {
                self.note(|| format!("a user restores the Secret of {purpose:?}"));
                self.store(purpose, cluster, key);
            }
        }
    }

    /// A certificate that nobody has renewed in time.
    pub fn expired(&self) -> Option<Purpose> {
        let transport = self.kube.objects.transports();
        let mut secrets = self.kube.objects.secrets.iter().filter(|(it, _)| it.is_needed(transport));
        secrets.find(|(_, secret)| secret.expires <= self.now).map(|(&purpose, _)| purpose)
    }

    /// Whether every Secret that the cluster needs is there, valid, and of the authority that is there.
    pub fn certificates_are_valid(&self) -> bool {
        let objects = &self.kube.objects;
        let Some(cluster) = objects.cluster.as_ref().filter(|cluster| !cluster.deleting) else { return true };
        // Before a user has decided what becomes of those, nothing is issued.
        if !self.kube.foreign_claims().is_empty() {
            return true;
        }
        let authorities = Authorities::of(&objects.secrets);
        needed(objects.transports()).all(|purpose| {
            let secret = objects.secrets.get(&purpose).filter(|it| it.cluster == cluster.uid);
            secret.is_some_and(|it| Some(it.signed_by) == authorities.over(purpose) && it.expires > self.now)
        })
    }
}
