//! Kubernetes, etcd, nodes and a client that writes all the time, in one place and one clock.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::agent::Protocol;
use etcd_operator_core::observed::{self, Blocked, ClusterId, MemberId, Ordinal, Process};

use crate::agent::{self, Bugs, Verdict};
use crate::auth;
use crate::client::{self, Client};
use crate::downgrade::Enabled;
use crate::etcd::consensus::{self, Network, Servers, Truth};
use crate::etcd::{self, Exit, Release, Server, Tick};
use crate::form::{Flaw, Forms};
use crate::kube::{Kube, Template};
use crate::lineage::Lineage;
use crate::past::Past;
use crate::problem::Violation;
use crate::random::{Random, mix};
use crate::recovery::Recoveries;
use crate::rolling::Ended;

/// How long DNS can return the previous address of a pod.
const LONGEST_IN_CACHE: Tick = 100;

#[derive(Debug)]
pub struct World {
    pub now: Tick,
    pub random: Random,
    pub kube: Kube,
    pub servers: Servers,
    pub network: Network,
    pub truth: Truth,
    pub client: Client,
    pub strict: bool,
    /// The users of each cluster.
    pub auth: BTreeMap<ClusterId, auth::Store>,
    /// The version to which etcd is on its way back.
    pub downgrade: Option<Enabled>,
    pub agent_bugs: Bugs,
    /// How often, out of a thousand times, etcd is killed between the agent's note on the volume and the first entry in the
    /// log.
    pub killed_at_first_start: u64,
    pub past: Past,
    /// Pods that reach each other, but that no operator reaches.
    pub unreachable: BTreeSet<Ordinal>,
    pub lineage: Lineage,
    pub forms: Forms,
    /// The agent that operators bring, and the oldest that they can work with.
    pub agent: Protocol,
    pub ended: Ended,
    /// The pod, by its UID, in which each ordinal last ran, and until when DNS returns the address of the one before it.
    pub addresses: BTreeMap<Ordinal, (u64, Tick)>,
    /// More than one operator acts.
    pub has_rivals: bool,
    /// Until then, peer URLs can be what a late request made of them.
    pub urls_excused_until: Tick,
    /// Of certificates that are not authorities, unless it is that of the operator.
    pub lifetime: Option<Tick>,
    pub recoveries: Recoveries,
    /// The first violation.
    pub violation: Option<Violation>,
    /// More volumes were lost than a quorum bears.
    pub data_at_risk: bool,
    /// A volume was lost while its pod could still follow the order: it might follow it again.
    pub order_at_risk: bool,
    pub trace: Option<Vec<String>>,
}

impl World {
    pub fn new(random: Random, traced: bool) -> Self {
        Self {
            now: 1000,
            random,
            kube: Kube::default(),
            servers: Servers::new(),
            network: Network::default(),
            truth: Truth::default(),
            client: Client::default(),
            strict: true,
            auth: BTreeMap::new(),
            downgrade: None,
            agent_bugs: Bugs::default(),
            killed_at_first_start: 0,
            past: Past::default(),
            unreachable: BTreeSet::new(),
            lineage: Lineage::default(),
            forms: Forms::default(),
            agent: Protocol(1),
            ended: Ended::default(),
            addresses: BTreeMap::new(),
            has_rivals: false,
            urls_excused_until: 0,
            lifetime: None,
            recoveries: Recoveries::default(),
            violation: None,
            data_at_risk: false,
            order_at_risk: false,
            trace: traced.then(Vec::new),
        }
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>7.1} {}", (self.now as f64 - 1000.0) / 10.0, text()));
        }
    }

    pub fn violate(&mut self, violation: Violation) {
        if self.violation.is_none() {
            self.note(|| format!("VIOLATION: {violation:?}"));
            self.violation = Some(violation);
        }
    }

    pub fn tick(&mut self) {
        self.remember();
        self.now += 1;
        self.kube.tick(&mut self.random, self.now);
        std::mem::take(&mut self.kube.created).into_iter().for_each(|ordinal| self.watch_creation(ordinal));
        self.network.cut = self.kube.pods_on_nodes_down();
        let moved = self.addresses.iter().filter(|(_, (_, until))| self.now < *until);
        self.network.moved = moved.map(|(&ordinal, _)| ordinal).collect();
        self.run_containers();
        consensus::tick(&mut self.servers, &self.network, &mut self.truth, &mut self.random, self.now);
        self.reap();
        self.advance_downgrade();
        client::write(self);
        let serving = client::read(self);
        self.watch_service(&serving);
        self.watch_peer_ports();
        if let Some(diverged) = self.truth.diverged.clone() {
            self.violate(Violation::EntryLost(diverged));
        }
    }

    /// Whether an operator reaches the pod.
    pub fn reaches(&self, ordinal: Ordinal) -> bool {
        !self.unreachable.contains(&ordinal) && !self.network.cut.contains(&ordinal)
    }

    /// The node of a pod loses its connection to everything; etcd goes on there.
    pub fn take_node_down(&mut self, ordinal: Ordinal) {
        if let Some(sandbox) = self.kube.sandboxes.get(&ordinal) {
            self.kube.nodes_down.entry(sandbox.node).or_insert(self.now);
            self.note(|| format!("the node of pod {ordinal} is down"));
        }
    }

    /// Deletes a pod without waiting for the kubelet: grace period 0. What runs on a node that is down does so in vain.
    pub fn force_deletion(&mut self, ordinal: Ordinal) {
        self.note(|| format!("pod {ordinal} is deleted by force"));
        self.stop(ordinal);
        self.kube.sandboxes.remove(&ordinal);
        self.kube.objects.pods.remove(&ordinal);
    }

    /// Ends the processes whose pods are gone, and starts what an agent lets start.
    fn run_containers(&mut self) {
        let gone: Vec<Ordinal> = self
            .servers
            .keys()
            .copied()
            .filter(|ordinal| {
                let sandbox = self.kube.sandboxes.get(ordinal);
                sandbox.is_none_or(|sandbox| !matches!(sandbox.state, Process::Started | Process::Failing(_)))
            })
            .collect();
        gone.into_iter().for_each(|ordinal| self.stop(ordinal));
        for (_, sandbox) in
            self.kube.sandboxes.iter_mut().filter(|(ordinal, _)| self.servers.contains_key(ordinal))
        {
            let long = self.now > sandbox.starts + 100;
            if long && sandbox.failures > 0 {
                sandbox.failures = 0;
                sandbox.state = Process::Started;
            }
        }
        for ordinal in self.kube.sandboxes.keys().copied().collect::<Vec<_>>() {
            if !self.servers.contains_key(&ordinal) {
                self.consider_start(ordinal);
            }
        }
    }

    /// The process ends; what it wrote stays on its volume, unless that was wiped.
    pub fn stop(&mut self, ordinal: Ordinal) {
        let Some(server) = self.servers.remove(&ordinal) else { return };
        let holder = self
            .kube
            .volumes
            .values_mut()
            .find(|volume| volume.data.as_ref().is_some_and(|data| data.member == server.id()));
        if let Some(volume) = holder {
            volume.data = Some(server.data);
        }
    }

    /// The container ends and is started again after a while.
    pub fn restart_container(&mut self, ordinal: Ordinal, after: Tick) {
        self.stop(ordinal);
        if let Some(sandbox) = self.kube.sandboxes.get_mut(&ordinal) {
            sandbox.starts = self.now + after;
        }
    }

    fn consider_start(&mut self, ordinal: Ordinal) {
        let Some(sandbox) = self.kube.sandboxes.get(&ordinal) else { return };
        let Some(mounted) = sandbox.mounted.filter(|_| sandbox.is_up(self.now)) else { return };
        let (id, Template { cluster, form, .. }) = (sandbox.volume, sandbox.template);
        if form.flaw == Some(Flaw::ImageMissing) {
            let (reason, message) = ("ImagePullBackOff".into(), String::new());
            let state = Process::CannotStart(Blocked::Container { reason, message });
            self.kube.sandboxes.entry(ordinal).and_modify(|sandbox| sandbox.state = state);
            return;
        }
        let Some((verdict, mut memory)) = agent::judge(self, ordinal) else { return };
        let on_volume = self.kube.volumes.get(&id).and_then(|volume| volume.data.clone());
        // The agent writes down whose volume it is before it starts anything.
        if !matches!(verdict, Verdict::Wait(_))
            && let Some(volume) = self.kube.volumes.get_mut(&id)
        {
            volume.owner = Some(cluster);
        }
        // A member that joins does not serve before others can connect to it.
        let is_hidden = |cluster, member| {
            let listed = self.members_of(cluster).get(&member).map(|peer| peer.schemes);
            listed.is_some_and(|schemes| !schemes.contains(form.transport.peers.scheme()))
        };
        let is_refused = match verdict {
            Verdict::Join(cluster, member) => {
                self.is_below_cluster(form.release) || is_hidden(cluster, member)
            }
            Verdict::Wait(_) | Verdict::Restart | Verdict::Force(_) | Verdict::Found(_) => false,
        };
        let (state, data) = match verdict {
            Verdict::Wait(state) => (state, None),
            Verdict::Restart => (Process::Started, on_volume),
            Verdict::Force(order) => {
                memory.followed.insert(order);
                if let Some(volume) = self.kube.volumes.get_mut(&id) {
                    volume.followed.insert(order);
                }
                let alone = on_volume.map(etcd::Data::without_others);
                if let Some(alone) = &alone {
                    self.continues_alone(order, ordinal, alone);
                }
                (Process::Started, alone)
            }
            Verdict::Join(cluster, member) => (Process::Started, Some(etcd::join(cluster, member))),
            Verdict::Found(order) => {
                self.founding(order, ordinal, cluster);
                memory.followed.insert(order.uid);
                if let Some(volume) = self.kube.volumes.get_mut(&id) {
                    volume.followed.insert(order.uid);
                }
                let died = self.random.chance(self.killed_at_first_start);
                (Process::Started, (!died).then(|| etcd::found(order.uid, order.size, ordinal, order.peers)))
            }
        };
        let unreadable =
            form.release == Release::V3_7 && data.as_ref().is_some_and(etcd::Data::has_old_entries);
        if unreadable {
            self.violate(Violation::OldEntriesRead(ordinal));
        }
        let crashes = state == Process::Started && (form.flaw.is_some() || unreadable || is_refused);
        if let Some(data) = data.filter(|_| !crashes) {
            self.note(|| format!("etcd {ordinal} starts as {} with {} entries", data.member, data.log.len()));
            if let Some(volume) = self.kube.volumes.get_mut(&id) {
                volume.data = Some(data.clone());
            }
            self.servers.insert(ordinal, Server::start(data, form.release, self.now));
            self.note_address(ordinal);
        }
        if let Some(sandbox) = self.kube.sandboxes.get_mut(&ordinal) {
            sandbox.memory = memory;
            sandbox.trusts = mounted;
            if crashes {
                sandbox.failures += 1;
                sandbox.starts = self.now + 20;
            }
            let failing = state == Process::Started && sandbox.failures >= 3;
            sandbox.state = if failing {
                Process::Failing(observed::Exit { code: 1, message: String::new() })
            } else {
                state
            };
        }
        if self.servers.contains_key(&ordinal) {
            self.meets_trusted(ordinal);
        }
    }

    /// Whether etcd exits in a pod, and its kubelet does not report yet that it does so again and again.
    pub fn has_unreported_exits(&self) -> bool {
        self.kube.sandboxes.iter().any(|(ordinal, sandbox)| {
            sandbox.failures > 0 && sandbox.state == Process::Started && !self.servers.contains_key(ordinal)
        })
    }

    /// A pod that was created again has another address, and others look up its name as soon as it ends.
    fn note_address(&mut self, ordinal: Ordinal) {
        let Some(uid) = self.kube.sandboxes.get(&ordinal).map(|sandbox| sandbox.uid) else { return };
        let until = match self.addresses.get(&ordinal) {
            Some((before, until)) if *before == uid => *until,
            Some(_) => self.now + mix(uid) % LONGEST_IN_CACHE,
            None => self.now,
        };
        self.addresses.insert(ordinal, (uid, until));
    }

    /// Processes that ended by themselves are started again by the kubelet.
    fn reap(&mut self) {
        let ended: Vec<(Ordinal, Exit)> =
            self.servers.iter().filter_map(|(&ordinal, server)| Some((ordinal, server.exit?))).collect();
        for (ordinal, exit) in ended {
            self.note(|| format!("etcd {ordinal} exits: {exit:?}"));
            self.restart_container(ordinal, 20);
            if let Some(sandbox) = self.kube.sandboxes.get_mut(&ordinal) {
                sandbox.failures += 1;
            }
        }
    }

    /// The members as they were last agreed upon.
    pub fn members(&self) -> BTreeMap<MemberId, etcd::Peer> {
        self.formed().map(|cluster| self.members_of(cluster)).unwrap_or_default()
    }

    pub fn members_of(&self, cluster: ClusterId) -> BTreeMap<MemberId, etcd::Peer> {
        let committed = self.truth.clusters.get(&cluster);
        committed.map(|committed| committed.applied.members.clone()).unwrap_or_default()
    }

    /// Whether the data of this member is still somewhere.
    pub fn has_data(&self, member: MemberId) -> bool {
        self.kube
            .volumes
            .values()
            .any(|volume| volume.data.as_ref().is_some_and(|data| data.member == member))
    }
}
