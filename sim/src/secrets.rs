//! Secrets with certificates: which authority signed what, what pods and operators know of them, and what must never happen.

use std::collections::BTreeMap;

use etcd_operator_core::names::Names;
use etcd_operator_core::observed::{self, Handshake, Ordinal, Seen};
use etcd_operator_core::request::Change;
use etcd_operator_core::tls::{self, Authority, Certificate, Profiles, Purpose, Stage, Transport};

use crate::etcd::Tick;
use crate::execute::Wanted;
use crate::gift::{self, Gift};
use crate::kube::{Cluster, Kube, Objects, Sandbox};
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
/// How often, out of a thousand, a kubelet mounts Secrets as they were before they changed, and for how long after that.
const STALE: u64 = 200;
const STALE_FOR: Tick = 20;
/// Ten ticks are a second: clocks differ, so certificates are valid from before they are issued.
const BACKDATED: Tick = 3000;

pub const EVERYWHERE: Transport = Transport::TLS;

/// The keys of authorities: of the operator and of users, each with those before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keys([Option<u64>; 8]);

impl Keys {
    fn of(keys: impl IntoIterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = keys.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut all = Self::default();
        all.0.iter_mut().zip(sorted).for_each(|(place, key)| *place = Some(key));
        all
    }

    fn iter(self) -> impl Iterator<Item = u64> {
        self.0.into_iter().flatten()
    }

    pub fn count(self) -> usize {
        self.iter().count()
    }

    pub fn contains(self, key: u64) -> bool {
        self.iter().any(|it| it == key)
    }
}

/// What it holds is known by the key that signed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret {
    pub uid: u64,
    pub version: u64,
    /// The EtcdCluster that owns it, by its UID.
    pub cluster: u64,
    /// An authority signs itself.
    pub signed_by: u64,
    pub trusts: Keys,
    /// The successor of an authority.
    pub next: Option<u64>,
    /// The authorities of a user beside this one.
    pub given: Keys,
    /// The serial number of a user's certificate of which it is a copy.
    pub copy_of: Option<u64>,
    pub issued: Tick,
    pub expires: Tick,
}

/// What a write changes of a Secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Holds {
    pub signed_by: u64,
    pub trusts: Keys,
    pub next: Option<u64>,
    pub given: Keys,
    pub copy_of: Option<u64>,
}

impl From<Secret> for Holds {
    fn from(Secret { signed_by, trusts, next, given, copy_of, .. }: Secret) -> Self {
        Self { signed_by, trusts, next, given, copy_of }
    }
}

pub type Secrets = BTreeMap<Purpose, Secret>;

/// One Secret for peers and one for clients: authorities, or what the two ports serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authorities {
    peers: Option<Secret>,
    clients: Option<Secret>,
}

impl Authorities {
    /// Those in their own Secrets.
    pub fn of(secrets: &Secrets) -> Self {
        let secret = |purpose| secrets.get(&purpose).copied();
        Self { peers: secret(Purpose::PeerAuthority), clients: secret(Purpose::ClientAuthority) }
    }

    /// The Secrets that a pod has for its ports, each with what it trusts.
    fn mounted(secrets: &Secrets, transport: Transport) -> Self {
        let secret =
            |purpose: Purpose| secrets.get(&purpose).copied().filter(|_| purpose.is_needed(transport));
        Self { peers: secret(Purpose::Peer), clients: secret(Purpose::Server) }
    }

    /// The one that this is issued by, or that it is.
    pub fn over(self, purpose: Purpose) -> Option<Secret> {
        if purpose.issuer().unwrap_or(purpose) == Purpose::PeerAuthority { self.peers } else { self.clients }
    }
}

pub fn needed(transport: Transport) -> impl Iterator<Item = Purpose> {
    Purpose::ALL.into_iter().filter(move |it| it.is_needed(transport))
}

/// Names in certificates never differ here, so there are none, and nothing has to compare them.
pub fn profiles(transport: Transport, lifetime: Option<Tick>, gift: Option<Gift>) -> Profiles {
    let names = Names::new("", "", "");
    let mut profiles = if transport.is_plain() { Profiles::new() } else { tls::profiles(&names, transport) };
    for (purpose, profile) in &mut profiles {
        (profile.common_name, profile.dns_names, profile.ip_addresses) = Default::default();
        if let Some(ticks) = lifetime.filter(|_| purpose.issuer().is_some()) {
            profile.validity_seconds = ticks / 10;
        }
        if gift.is_some() && *purpose == Purpose::Server {
            profile.source = Gift::source();
        }
    }
    profiles
}

impl Secret {
    pub fn seen(&self) -> observed::Secret {
        let backdated = BACKDATED.min((self.expires - self.issued) / 10);
        let before = time(0).duration_since(time(backdated));
        let certificate = Certificate {
            common_name: String::new(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            not_before: time(self.issued) + before,
            not_after: time(self.expires),
            trusts: self.trusts.iter().map(authority).collect(),
            signed_by: Some(uid("key", self.signed_by)),
            fingerprint: self.fingerprint(),
        };
        let (next, given) = (self.next.map(authority), self.given.iter().map(authority).collect());
        let (uid, copied) = (uid("secret", self.uid), self.copy_of.map(|_| time(self.issued)));
        observed::Secret { uid, certificate: Seen::Known(certificate), next, given, copied }
    }

    fn fingerprint(&self) -> String {
        self.copy_of.map_or_else(|| format!("{}-{}", self.uid, self.version), Gift::fingerprint)
    }

    /// What a step to the successor, or to the authority of a user, makes of an authority.
    fn rotated(self, stage: Stage, new: u64, gift: Option<Gift>) -> Self {
        match stage {
            Stage::Introduce => {
                Self { next: Some(new), trusts: Keys::of(self.trusts.iter().chain([new])), ..self }
            }
            Stage::Promote => Self { signed_by: self.next.unwrap_or(self.signed_by), next: None, ..self },
            Stage::Withdraw => {
                let needed = [self.signed_by].into_iter().chain(self.next).chain(self.given.iter());
                Self { trusts: Keys::of(needed), ..self }
            }
            Stage::Accept => {
                let given = Keys::of(gift.map(|it| it.authority));
                Self { given, trusts: Keys::of(self.trusts.iter().chain(given.iter())), ..self }
            }
        }
    }
}

pub fn authority(key: u64) -> Authority {
    Authority { key: uid("key", key), subject: subject(key), fingerprint: String::new() }
}

fn subject(key: u64) -> String {
    format!("CN={key}")
}

impl Objects {
    /// What pods are made with, as [`etcd_operator_core::observe::Objects::transport`] has it.
    pub fn transport(&self) -> Option<Transport> {
        let cluster = self.cluster.as_ref()?.uid;
        let recorded = self.record.filter(|it| it.cluster == cluster).map(|it| it.form.transport);
        let of_set = self.set.map(|it| it.spec.template).filter(|it| it.cluster == cluster);
        let mut of_pods = self.pods.values().map(|it| it.template).filter(|it| it.cluster == cluster);
        let of_pods = recorded.or_else(|| Some(of_set.or_else(|| of_pods.next())?.form.transport));
        let order = self.order.filter(|it| it.cluster == cluster && it.armed);
        let asked_for = Transport::asked_for(&self.cluster.as_ref()?.tls);
        of_pods.or_else(|| Some(Transport { peers: order?.peers.into(), ..asked_for }))
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

    /// The next observation reads them again.
    pub fn outdate(&mut self) {
        self.read_at = None;
    }

    /// The response to a write has the Secret; without one nothing is certain.
    pub fn wrote(&mut self, purpose: Purpose, secret: Option<Secret>) {
        match secret {
            Some(secret) => drop(self.secrets.insert(purpose, secret)),
            None => self.outdate(),
        }
    }
}

impl Kube {
    /// No container starts before all its Secrets are mounted, whoever owns them. Later the kubelet brings new ones into the
    /// pod; that one is deleted changes nothing in there.
    pub(crate) fn mount_secrets(&mut self, random: &mut Random, now: Tick) {
        let Self { objects, sandboxes, nodes_down, secrets_before, .. } = self;
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
            let (changed, before) = secrets_before;
            let is_stale = sandbox.mounted.is_none()
                && now - *changed < STALE_FOR
                && needed(transport).all(|it| it.directory().is_none() || before.contains_key(&it))
                && random.chance(STALE);
            let secrets = if is_stale { before } else { &objects.secrets };
            sandbox.mounted_late |= is_stale;
            sandbox.mounted = Some(Authorities::mounted(secrets, transport));
        }
    }
}

impl World {
    /// The keys of an authority and of a leaf are new; a leaf is signed by the authority that was read.
    pub fn issue(&mut self, purpose: Purpose, change: &Change, wanted: Wanted) -> Result<(), &'static str> {
        let cluster = wanted.cluster;
        let authority = wanted.authorities.over(purpose).ok_or("the authority's Secret is missing");
        if let Change::Rotate(_, stage) = change {
            let new = self.kube.uid();
            self.store(purpose, cluster, authority?.rotated(*stage, new, wanted.gift).into());
            self.keep_copy(purpose, cluster);
            return Ok(());
        }
        if let Change::Copy(copy, _) = change {
            let holds = self.copied(*copy, authority?.trusts, wanted).ok_or("there is nothing to copy")?;
            self.store(purpose, cluster, holds);
            return Ok(());
        }
        let (key, trusts) = match purpose.issuer() {
            None => {
                let key = self.kube.uid();
                (key, Keys::of([key]))
            }
            Some(_) => authority.map(|it| (it.signed_by, it.trusts))?,
        };
        let is_authority = purpose.issuer().is_none();
        // Nothing keeps a late request from creating what a user has deleted since.
        let counts = !(wanted.late && is_authority);
        if counts {
            self.authority_is_trusted(purpose, cluster, key);
        }
        let holds = Holds { signed_by: key, trusts, next: None, given: Keys::default(), copy_of: None };
        self.store(purpose, cluster, holds);
        if counts && is_authority {
            self.keep_copy(purpose, cluster);
        }
        Ok(())
    }

    /// As users have it of what must not be lost.
    fn keep_copy(&mut self, purpose: Purpose, cluster: u64) {
        let copy = self.kube.objects.secrets.get(&purpose).copied();
        self.kube.backups.extend(copy.map(|it| ((cluster, purpose), it)));
    }

    fn store(&mut self, purpose: Purpose, cluster: u64, holds: Holds) {
        let Holds { signed_by, trusts, next, given, copy_of } = holds;
        self.kube.secrets_before = (self.now, self.kube.objects.secrets.clone());
        let lifetime = match copy_of {
            Some(_) => gift::LIFETIME,
            None => profiles(EVERYWHERE, self.lifetime, None)[&purpose].validity_seconds * 10,
        };
        let before = self.kube.objects.secrets.get(&purpose).copied();
        let (uid, version) = before.map_or_else(|| (self.kube.uid(), 1), |it| (it.uid, it.version + 1));
        let (issued, expires) = (self.now, self.now + lifetime);
        let secret =
            Secret { uid, version, cluster, signed_by, trusts, next, given, copy_of, issued, expires };
        self.kube.objects.secrets.insert(purpose, secret);
    }

    /// Whoever runs reads authorities only when it starts. So neither an authority nor what it signs is replaced by another
    /// one under pods that run.
    pub fn authority_is_trusted(&mut self, purpose: Purpose, cluster: u64, key: u64) {
        let running = self.kube.sandboxes.iter().filter(|(it, _)| self.servers.contains_key(it));
        let own = running.filter(|(_, sandbox)| sandbox.template.cluster == cluster);
        let others = own.filter(|(_, sandbox)| !self.has_mounted_what_was_deleted(sandbox, purpose));
        let mut started = others.filter_map(|(_, sandbox)| sandbox.trusts.over(purpose));
        if started.any(|it| !it.trusts.contains(key)) {
            self.violate(Violation::OtherAuthority(purpose));
        }
    }

    pub fn delete_secret(&mut self, purpose: Purpose) {
        if let Some(secret) = self.kube.objects.secrets.remove(&purpose) {
            if purpose.issuer().is_none() {
                self.kube.deleted_authorities.insert(secret.signed_by);
            }
            self.note(|| format!("a user deletes the Secret of {purpose:?}"));
        }
    }

    /// A user who deleted an authority that is in use has a copy of it.
    pub fn restore_authorities(&mut self) {
        let objects = &self.kube.objects;
        let Some(cluster) = objects.cluster.as_ref().filter(|cluster| !cluster.deleting) else { return };
        let (cluster, transport) = (cluster.uid, objects.transports());
        for purpose in needed(transport).filter(|it| it.issuer().is_none()) {
            let holds = |it: &Secret| Holds::from(*it);
            let backup = self.kube.backups.get(&(cluster, purpose)).map(holds);
            let there = self.kube.objects.secrets.get(&purpose).map(holds);
            if let Some(holds) = backup.filter(|it| there != Some(*it)) {
                self.note(|| format!("a user restores the Secret of {purpose:?}"));
                self.store(purpose, cluster, holds);
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
            let authority = authorities.over(purpose);
            let is_gift =
                |it: &Secret, gift: Gift| (it.signed_by, it.copy_of) == (gift.authority, Some(gift.serial));
            secret.zip(authority).is_some_and(|(it, authority)| {
                let is_wanted = match cluster.gift.filter(|_| purpose == Purpose::Server) {
                    Some(gift) if gift.usable => is_gift(it, gift),
                    // Whatever is there stays.
                    Some(_) => true,
                    None => it.signed_by == authority.signed_by,
                };
                is_wanted && it.trusts == authority.trusts && it.expires > self.now
            })
        }) && self.rotations_are_over(cluster)
    }

    /// Only those of a cluster that is known to have bootstrapped begin and go on.
    fn rotations_are_over(&self, cluster: &Cluster) -> bool {
        let objects = &self.kube.objects;
        let transport = objects.transports();
        if cluster.formed.is_none() || transport.is_plain() {
            return true;
        }
        let accepted = cluster.rotation.as_ref().map(|(token, _)| token);
        let asked = cluster.goal.asked.rotation.as_ref();
        let is_unusable = cluster.gift.is_some_and(|gift| !gift.usable);
        let authorities = needed(transport).filter(|it| it.issuer().is_none());
        let authorities: Vec<_> = authorities.filter_map(|it| objects.secrets.get(&it)).collect();
        let one_each =
            |it: &&Secret| it.trusts == Keys::of([it.signed_by].into_iter().chain(it.given.iter()));
        asked.is_none_or(|token| Some(token) == accepted)
            && (is_unusable || authorities.iter().all(one_each))
            && !self.servers.keys().any(|&it| self.distrusts(it, &objects.secrets))
    }

    /// Whether the etcd of a pod trusts something else than it would after a restart with these Secrets.
    pub fn distrusts(&self, ordinal: Ordinal, secrets: &Secrets) -> bool {
        let Some(sandbox) = self.kube.sandboxes.get(&ordinal) else { return false };
        let held = Authorities::mounted(secrets, sandbox.template.form.transport);
        [Purpose::Peer, Purpose::Server].into_iter().any(|purpose| {
            let pair = sandbox.trusts.over(purpose).zip(held.over(purpose));
            pair.is_some_and(|(started, held)| started.trusts != held.trusts)
        })
    }

    /// What the ports of a pod show to an operator that reaches it.
    pub fn handshakes(&self, ordinal: Ordinal, reached: bool) -> BTreeMap<Purpose, Seen<Handshake, String>> {
        let Some(sandbox) = self.kube.sandboxes.get(&ordinal) else { return BTreeMap::new() };
        let transport = sandbox.template.form.transport;
        let ports = needed(transport).filter(|it| it.is_shown(transport));
        let runs = reached && self.servers.contains_key(&ordinal);
        let shown = |purpose: Purpose| {
            let started = sandbox.trusts.over(purpose).filter(|_| runs)?;
            let mounted = sandbox.mounted?.over(purpose)?;
            let trusts = started.trusts.iter().map(subject).collect();
            Some(Handshake { certificate: mounted.fingerprint(), trusts })
        };
        let seen = |purpose| shown(purpose).map_or_else(|| Seen::Unknown("refused".into()), Seen::Known);
        ports.map(|purpose| (purpose, seen(purpose))).collect()
    }

    /// A kubelet can mount what was there before a user deleted the authority. Its member is restarted when the handshake shows
    /// that.
    fn has_mounted_what_was_deleted(&self, sandbox: &Sandbox, purpose: Purpose) -> bool {
        let is_deleted = |it: Secret| self.kube.deleted_authorities.contains(&it.signed_by);
        sandbox.mounted_late && sandbox.trusts.over(purpose).is_some_and(is_deleted)
    }

    /// A member that starts meets only certificates that it trusts.
    pub fn meets_trusted(&mut self, ordinal: Ordinal) {
        let Some(own) = self.kube.sandboxes.get(&ordinal) else { return };
        let Some(peer) = own.trusts.over(Purpose::Peer) else { return };
        let running = self.kube.sandboxes.iter().filter(|(it, _)| self.servers.contains_key(it));
        let excused = |it: &Sandbox| self.has_mounted_what_was_deleted(it, Purpose::Peer);
        if excused(own) {
            return;
        }
        let others = running.filter(|(_, it)| it.template.cluster == own.template.cluster && !excused(it));
        let served = others.filter(|(_, it)| Purpose::Peer.is_shown(it.template.form.transport));
        let shown = served.filter_map(|(_, it)| it.mounted?.over(Purpose::Peer));
        if shown.into_iter().any(|it| !peer.trusts.contains(it.signed_by)) {
            self.violate(Violation::PeersDistrusted(ordinal));
        }
    }

    /// A user asks for other authorities.
    pub fn rotate_authorities(&mut self) {
        let token = format!("rotation-{}", self.now);
        if let Some(cluster) = &mut self.kube.objects.cluster {
            cluster.goal.asked.rotation = Some(token);
            cluster.version += 1;
        }
    }
}
