//! Kubernetes as far as it matters here: objects with UIDs and resource versions, the StatefulSet controller
//! (Parallel, OnDelete), the protection of volume claims in use, garbage collection.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_core::decide::{Goal, OnDelete};
use etcd_operator_core::observed::{ClusterId, MemberId, Ordinal, Process};

use crate::agent::Memory;
use crate::etcd::{Data, Tick};
use crate::random::Random;

/// What the API server holds.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub cluster: Option<Cluster>,
    pub order: Option<Order>,
    pub set: Option<Set>,
    pub pods: BTreeMap<Ordinal, Pod>,
    pub claims: BTreeMap<Ordinal, Claim>,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub uid: u64,
    pub version: u64,
    pub goal: Goal,
    pub deleting: bool,
    pub finalizer: bool,
    pub formed: Option<(ClusterId, Tick)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Also its nonce.
    pub uid: u64,
    pub armed: bool,
    pub size: u8,
}

#[derive(Clone, Copy, Debug)]
pub struct Set {
    pub uid: u64,
    pub version: u64,
    pub replicas: u8,
}

#[derive(Clone, Debug)]
pub struct Pod {
    pub uid: u64,
    pub terminating: bool,
    pub published: bool,
    /// What the kubelet last reported.
    pub reported: Process,
}

#[derive(Clone, Debug)]
pub struct Claim {
    pub uid: u64,
    pub version: u64,
    pub terminating: bool,
    pub cluster_uid: u64,
    pub member: Option<MemberId>,
    pub volume: Option<u64>,
}

/// What lies on a disk.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    pub data: Option<Data>,
    /// The order that was followed here.
    pub followed: Option<u64>,
}

/// What a node knows of a pod on it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub uid: u64,
    pub volume: u64,
    /// The order as the kubelet last mounted it.
    pub order: Option<Order>,
    /// When the container is started, or started again.
    pub starts: Tick,
    pub published_from: Tick,
    pub state: Process,
    /// How often in a row etcd ended by itself.
    pub failures: u32,
    pub memory: Memory,
    /// When a pod that was told to end is gone.
    pub ends: Option<Tick>,
}

#[derive(Clone, Debug, Default)]
pub struct Kube {
    pub objects: Objects,
    pub volumes: BTreeMap<u64, Volume>,
    pub sandboxes: BTreeMap<Ordinal, Sandbox>,
    /// Pods that no node has room for.
    pub unplaceable: BTreeSet<Ordinal>,
    last_uid: u64,
}

impl Kube {
    pub fn uid(&mut self) -> u64 {
        self.last_uid += 1;
        self.last_uid
    }

    /// One pass of the controllers and kubelets, each of which may be late.
    pub fn tick(&mut self, random: &mut Random, now: Tick, away: &BTreeSet<Ordinal>) {
        self.collect_garbage();
        if random.chance(700) {
            self.run_statefulset_controller();
        }
        for ordinal in self.objects.pods.keys().copied().collect::<Vec<_>>() {
            self.run_kubelet(ordinal, random, now);
        }
        self.protect_claims();
        for (ordinal, sandbox) in &mut self.sandboxes {
            if random.chance(300) && !away.contains(ordinal) {
                sandbox.order = self.objects.order;
            }
            if let Some(pod) = self.objects.pods.get_mut(ordinal) {
                let published = now >= sandbox.published_from;
                let heard = random.chance(500) && !away.contains(ordinal);
                if heard && (pod.reported != sandbox.state || pod.published != published) {
                    pod.reported = sandbox.state.clone();
                    pod.published = published;
                    if let Some(set) = &mut self.objects.set {
                        set.version += 1;
                    }
                }
            }
        }
    }

    /// What belongs to a cluster goes with it; what belongs to a StatefulSet likewise.
    fn collect_garbage(&mut self) {
        if self.objects.cluster.is_none() {
            self.objects.set = None;
            self.objects.order = None;
        }
        if self.objects.set.is_none() {
            self.objects.pods.values_mut().for_each(|pod| pod.terminating = true);
        }
    }

    fn run_statefulset_controller(&mut self) {
        let Some(set) = self.objects.set else { return };
        let Some(owner) = self.objects.cluster.as_ref().map(|cluster| cluster.uid) else { return };
        for ordinal in Ordinal::below(set.replicas) {
            if self.objects.pods.contains_key(&ordinal) {
                continue;
            }
            match self.objects.claims.get(&ordinal) {
                // The real one reports an error and tries again, too.
                Some(claim) if claim.terminating => continue,
                Some(_) => {}
                None => {
                    let claim = Claim {
                        uid: self.uid(),
                        version: 1,
                        terminating: false,
                        cluster_uid: owner,
                        member: None,
                        volume: None,
                    };
                    self.objects.claims.insert(ordinal, claim);
                }
            }
            let reported = Process::CannotStart("not scheduled yet".into());
            let pod = Pod { uid: self.uid(), terminating: false, published: false, reported };
            self.objects.pods.insert(ordinal, pod);
        }
        for (_, pod) in self.objects.pods.iter_mut().filter(|(ordinal, _)| ordinal.0 >= set.replicas) {
            pod.terminating = true;
        }
    }

    fn run_kubelet(&mut self, ordinal: Ordinal, random: &mut Random, now: Tick) {
        let Some(pod) = self.objects.pods.get(&ordinal) else { return };
        let (uid, terminating) = (pod.uid, pod.terminating);
        match self.sandboxes.get_mut(&ordinal) {
            Some(sandbox) if terminating => {
                let ends = *sandbox.ends.get_or_insert(now + random.between(1, 20));
                if now >= ends {
                    self.sandboxes.remove(&ordinal);
                    self.objects.pods.remove(&ordinal);
                }
            }
            None if terminating => {
                self.objects.pods.remove(&ordinal);
            }
            Some(_) => {}
            None if self.unplaceable.contains(&ordinal) || !random.chance(300) => {}
            None => self.place(ordinal, uid, random, now),
        }
    }

    fn place(&mut self, ordinal: Ordinal, uid: u64, random: &mut Random, now: Tick) {
        let Some(claim) = self.objects.claims.get(&ordinal).filter(|claim| !claim.terminating) else {
            return;
        };
        let volume = match claim.volume {
            Some(volume) => volume,
            None => {
                let volume = self.uid();
                self.volumes.insert(volume, Volume::default());
                if let Some(claim) = self.objects.claims.get_mut(&ordinal) {
                    claim.volume = Some(volume);
                    claim.version += 1;
                }
                volume
            }
        };
        let sandbox = Sandbox {
            uid,
            volume,
            order: self.objects.order,
            starts: now + random.between(1, 15),
            published_from: now + random.between(0, 10),
            state: Process::Beginning,
            failures: 0,
            memory: Memory::default(),
            ends: None,
        };
        self.sandboxes.insert(ordinal, sandbox);
    }

    /// A claim that is going goes when no pod on a node uses it, and its volume with it.
    fn protect_claims(&mut self) {
        let sandboxes = &self.sandboxes;
        let gone: Vec<Ordinal> = self
            .objects
            .claims
            .iter()
            .filter(|(ordinal, claim)| claim.terminating && !sandboxes.contains_key(ordinal))
            .map(|(&ordinal, _)| ordinal)
            .collect();
        for ordinal in gone {
            self.lose_claim(ordinal);
        }
    }

    pub fn lose_claim(&mut self, ordinal: Ordinal) {
        if let Some(volume) = self.objects.claims.remove(&ordinal).and_then(|claim| claim.volume) {
            self.volumes.remove(&volume);
        }
    }

    /// Somebody asks for the end of the cluster.
    pub fn delete_cluster(&mut self, on_delete: OnDelete) {
        if let Some(cluster) = &mut self.objects.cluster {
            cluster.goal.on_delete = on_delete;
            cluster.deleting = true;
            cluster.version += 1;
            if !cluster.finalizer {
                self.objects.cluster = None;
            }
        }
    }
}
