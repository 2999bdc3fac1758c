//! Kubernetes, etcd, nodes and a client that writes all the time, in one place and one clock.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::decide::OnDelete;
use etcd_operator_core::observed::{self, ClusterId, MemberId, Ordinal, Process};

use crate::agent::{self, Bugs, Verdict};
use crate::client::{self, Client};
use crate::etcd::consensus::{self, Network, Servers, Truth};
use crate::etcd::{self, Exit, Release, Server, Tick};
use crate::kube::{Kube, Order};
use crate::random::Random;

#[derive(Debug)]
pub struct World {
    pub now: Tick,
    pub random: Random,
    pub kube: Kube,
    pub servers: Servers,
    pub network: Network,
    pub truth: Truth,
    pub client: Client,
    pub release: Release,
    pub strict: bool,
    pub agent_bugs: Bugs,
    /// Who followed which order, ever.
    pub founders: BTreeSet<(u64, Ordinal)>,
    /// The pods that are cut off; one that is made anew comes to another node.
    away: BTreeMap<Ordinal, u64>,
    /// The first violation.
    pub violation: Option<(Promise, String)>,
    /// A volume was lost while its pod could still follow the order: who knows what it does then.
    pub order_at_risk: bool,
    /// Orders that were claimed, and whose creation is still under way.
    pub late_orders: Vec<(Tick, Order)>,
    pub deleted: Option<OnDelete>,
    pub trace: Option<Vec<String>>,
}

/// What must hold at every moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing that was acknowledged is lost.
    Data,
    /// There is one cluster, for ever.
    Identity,
    /// The operator takes nothing away that is needed.
    Service,
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
            release: Release::V3_5,
            strict: true,
            agent_bugs: Bugs::default(),
            founders: BTreeSet::new(),
            away: BTreeMap::new(),
            violation: None,
            order_at_risk: false,
            late_orders: Vec::new(),
            deleted: None,
            trace: traced.then(Vec::new),
        }
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>7.1} {}", (self.now as f64 - 1000.0) / 10.0, text()));
        }
    }

    pub fn violate(&mut self, promise: Promise, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let text = text();
            self.note(|| format!("VIOLATION: {text}"));
            self.violation = Some((promise, text));
        }
    }

    pub fn tick(&mut self) {
        self.now += 1;
        self.kube.tick(&mut self.random, self.now, &self.network.cut);
        for (_, order) in self.late_orders.extract_if(.., |(when, _)| self.now >= *when) {
            self.kube.objects.order.get_or_insert(order);
        }
        let Self { kube, away, network, .. } = self;
        network.cut.retain(|ordinal| {
            let sandbox = kube.sandboxes.get(ordinal);
            sandbox.is_some_and(|sandbox| away.get(ordinal) == Some(&sandbox.uid))
        });
        self.run_containers();
        consensus::tick(&mut self.servers, &self.network, &mut self.truth, &mut self.random, self.now);
        self.reap();
        client::write(self);
        client::read(self);
        if let Some(diverged) = self.truth.diverged.clone() {
            self.violate(Promise::Data, || format!("a committed entry was lost: {diverged}"));
        }
    }

    pub fn cut_off(&mut self, ordinal: Ordinal) {
        if let Some(sandbox) = self.kube.sandboxes.get(&ordinal) {
            self.away.insert(ordinal, sandbox.uid);
            self.network.cut.insert(ordinal);
        }
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
        if self.now < sandbox.starts || sandbox.ends.is_some() {
            return;
        }
        let id = sandbox.volume;
        let Some((verdict, mut memory)) = agent::judge(self, ordinal) else { return };
        let on_volume = self.kube.volumes.get(&id).and_then(|volume| volume.data.clone());
        let (state, data) = match verdict {
            Verdict::Wait(state) => (state, None),
            Verdict::Restart => (Process::Started, on_volume),
            Verdict::Join(cluster, member) => (Process::Started, Some(etcd::join(cluster, member))),
            Verdict::Found(order) => {
                self.founding(order.uid, ordinal);
                memory.followed.insert(order.uid);
                if let Some(volume) = self.kube.volumes.get_mut(&id) {
                    volume.followed = Some(order.uid);
                }
                // Killed between the note on the volume and the first entry in the log.
                let died = self.random.chance(5);
                (Process::Started, (!died).then(|| etcd::found(order.uid, order.size, ordinal)))
            }
        };
        if let Some(data) = data {
            self.note(|| format!("etcd {ordinal} starts as {} with {} entries", data.member, data.log.len()));
            if let Some(volume) = self.kube.volumes.get_mut(&id) {
                volume.data = Some(data.clone());
            }
            self.servers.insert(ordinal, Server::start(data, self.release, self.now));
        }
        if let Some(sandbox) = self.kube.sandboxes.get_mut(&ordinal) {
            sandbox.memory = memory;
            let failing = state == Process::Started && sandbox.failures >= 3;
            sandbox.state = if failing {
                Process::Failing(observed::Exit { code: 1, message: String::new() })
            } else {
                state
            };
        }
    }

    /// A pod follows an order: that may happen once, and never in a cluster that has formed otherwise.
    fn founding(&mut self, order: u64, ordinal: Ordinal) {
        let again = !self.founders.insert((order, ordinal));
        let formed = self.formed();
        let other = formed.is_some_and(|cluster| cluster != etcd::cluster_id(order));
        self.note(|| format!("etcd {ordinal} bootstraps with order {order}"));
        if again && formed.is_some() {
            self.violate(Promise::Identity, || format!("pod {ordinal} used its bootstrap order twice"));
        }
        if other {
            self.violate(Promise::Identity, || format!("pod {ordinal} bootstraps a second cluster"));
        }
    }

    /// The cluster in which something was agreed upon.
    pub fn formed(&self) -> Option<ClusterId> {
        let mut clusters = self.truth.clusters.iter();
        clusters.find(|(_, committed)| committed.log.iter().any(|entry| entry.term > 1)).map(|(&id, _)| id)
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
        let committed = self.formed().and_then(|cluster| self.truth.clusters.get(&cluster));
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
